"""A disk in memory whose power can fail: it then keeps what was synced, and of the rest whatever chance leaves.

Every call is made of the steps that a real file system would take (write data, sync data, change a name, sync the
names). `power` says how many of them are left; the one after them does not happen, and raises PowerCut. `crash` then
draws one of the states that such a disk could be found in:

    data that were not synced   each sector of 512 bytes as it was at any moment since the last sync, or zeros
    the size                    any that it had since, or one between
    names that were not synced  each change kept or lost
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from random import Random

from edgefl.base.errors import StoreError
from edgefl.system.disk import Bytes
from edgefl.system.portable import OURS

SECTOR = 512


class PowerCut(BaseException):
    """The machine is off: nothing of the program runs any more, so nothing of it may catch this."""


@dataclass(slots=True)
class _File:
    data: bytearray = field(default_factory=bytearray)
    undo: list[tuple[int, bytes, int]] = field(default_factory=list)  # since the last sync: from where, bytes, size

    def put(self, at: int, data: Bytes) -> None:
        self.undo.append((at, bytes(self.data[at : at + len(data)]), len(self.data)))
        self.data[at : at + len(data)] = data

    def cut(self, size: int) -> None:
        self.undo.append((size, bytes(self.data[size:]), len(self.data)))
        del self.data[size:]

    def versions(self) -> Iterator[bytes]:
        """What it held since the last sync, the newest first."""
        past = bytearray(self.data)
        yield bytes(past)
        for at, before, size in reversed(self.undo):
            past[at : at + len(before)] = before
            del past[size:]
            yield bytes(past)

    def crash(self, rng: Random) -> None:
        if self.undo:
            self.data = bytearray(_left_over(list(self.versions()), rng))
            self.undo.clear()


@dataclass(frozen=True, slots=True)
class _Renaming:
    """A name means this file from now on, or nothing; another one means nothing any more."""

    name: str
    file: _File | None
    old: str | None = None

    def apply(self, names: dict[str, _File]) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.file is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.file


class FailingDisk:
    """A Disk that forgets with the process, or earlier. `label` stands where messages name the folder.

    `capacity` is how many bytes fit; `power` how many steps are left (None: enough for ever); `writes` counts what was
    made durable, `written` its bytes.
    """

    def __init__(self, label: str = "memory", capacity: int | None = None) -> None:
        self.label, self.capacity = label, capacity
        self.power: int | None = None
        self.writes = self.written = self.steps = 0
        self._names: dict[str, _File] = {}
        self._lasting: dict[str, _File] = {}  # the names as they were last synced
        self._pending: list[_Renaming] = []  # and what was done to them since

    # ---- what only a test does ---------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """Bytes that are taken."""
        return sum(len(file.data) for file in self._names.values())

    def crash(self, rng: Random) -> None:
        """The power failed, and is back."""
        self._names = dict(self._lasting)
        for change, lost in zip(self._pending, _lost(len(self._pending), rng), strict=True):
            if not lost:
                change.apply(self._names)
        for _, file in sorted(self._names.items()):
            file.crash(rng)
        self._lasting, self._pending, self.power = dict(self._names), [], None

    # ---- a Disk ------------------------------------------------------------------------------------------------

    def where(self, name: str = "") -> str:
        return f"{self.label}/{name}" if name else self.label

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        self._alive()
        file = self._names.get(name)
        return None if file is None else bytes(file.data[start : None if size is None else start + size])

    def view(self, name: str, start: int, size: int) -> memoryview:
        read = self.read(name, start, size)
        if read is None:
            raise StoreError(f"{self.where(name)}: cannot be read ({os.strerror(errno.ENOENT)})")
        return memoryview(read)

    def scratch(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def size(self, name: str) -> int | None:
        self._alive()
        return len(self._names[name].data) if name in self._names else None

    def mode(self, name: str) -> int:  # noqa: ARG002 - there is no other process
        self._alive()
        return OURS

    def names(self, pattern: str = "*") -> list[str]:
        self._alive()
        return sorted(name for name in self._names if fnmatchcase(name, pattern) and not name.startswith("."))

    def write(self, name: str, data: Bytes) -> None:
        self._count(name, len(data), len(data))
        fresh = f".{name}.new"
        if fresh in self._names:
            self._rename(_Renaming(fresh, None))
        file = self._made(fresh)
        self._put(file, 0, data)
        self._sync(file)
        self._rename(_Renaming(name, file, old=fresh))
        self._sync_names()

    def create(self, name: str, data: Bytes) -> bool:
        if name in self._names:
            return False
        self.write(name, data)
        return True

    def append(self, name: str, *parts: Bytes) -> None:
        size = sum(map(len, parts))
        self._count(name, size, size)
        file = self._made(name)
        for part in parts:
            self._put(file, len(file.data), part)
        self._sync(file)
        self._lasts(name)

    def overwrite(self, name: str, *parts: Bytes, synced: bool = True) -> None:
        size = sum(map(len, parts))
        self._count(name, size, size - (self.size(name) or 0))
        file, at = self._made(name), 0
        for part in parts:
            self._put(file, at, part)
            at += len(part)
        self._cut(file, at)
        if synced:
            self._sync(file)
        self._lasts(name)

    def patch(self, name: str, data: Bytes) -> None:
        self._put(self._known(name), 0, data)

    def truncate(self, name: str, size: int) -> None:
        self._cut(self._known(name), size)
        self._sync(self._names[name])
        self._lasts(name)

    def sync(self, name: str) -> None:
        self._sync(self._known(name))
        self._lasts(name)

    def rename(self, name: str, to: str) -> None:
        self._rename(_Renaming(to, self._known(name), old=name))

    def remove(self, name: str) -> None:
        if name in self._names:
            self._rename(_Renaming(name, None))

    # ---- the steps ---------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """One more thing that may be the last."""
        self._alive()
        self.steps += 1
        if self.power is not None:
            self.power -= 1
            self._alive()

    def _alive(self) -> None:
        if self.power is not None and self.power < 0:
            raise PowerCut

    def _made(self, name: str) -> _File:
        if name not in self._names:
            self._rename(_Renaming(name, _File()))
        return self._names[name]

    def _put(self, file: _File, at: int, data: Bytes) -> None:
        self._alive()
        file.put(at, data)  # before the step: one that was under way when the power failed may be there in part
        self._step()

    def _cut(self, file: _File, size: int) -> None:
        if size < len(file.data):
            self._step()
            file.cut(size)

    def _sync(self, file: _File) -> None:
        self._step()
        file.undo.clear()

    def _rename(self, change: _Renaming) -> None:
        self._step()
        change.apply(self._names)
        self._pending.append(change)

    def _lasts(self, name: str) -> None:
        if self._lasting.get(name) is not self._names[name]:
            self._sync_names()

    def _sync_names(self) -> None:
        self._step()
        self._lasting, self._pending = dict(self._names), []

    def _known(self, name: str) -> _File:
        if name not in self._names:
            raise self._refused(name, errno.ENOENT)
        return self._names[name]

    def _count(self, name: str, size: int, growth: int) -> None:
        self._alive()
        if self.capacity is not None and self.used + growth > self.capacity:
            raise self._refused(name, errno.ENOSPC)
        self.writes, self.written = self.writes + 1, self.written + size

    def _refused(self, name: str, why: int) -> StoreError:
        return StoreError(
            f"{self.where(name)}: cannot be written ({os.strerror(why)}); free some space or choose another folder"
        )


def _lost(count: int, rng: Random) -> list[bool]:
    """Return which changes a power cut undoes: all, none, those after a moment, or any."""
    match rng.randrange(4):
        case 0:
            return [True] * count
        case 1:
            return [False] * count
        case 2:
            moment = rng.randint(0, count)
            return [number >= moment for number in range(count)]
        case _:
            return [rng.random() < 0.5 for _ in range(count)]


def _left_over(versions: list[bytes], rng: Random) -> bytes:
    """One of the contents that a file may have that was in these states since it was last synced, the newest first."""
    match rng.randrange(4):
        case 0:
            return versions[0]
        case 1:
            return versions[-1]
    sizes = sorted(map(len, versions))
    size = rng.choice([*sizes, rng.randint(sizes[0], sizes[-1])])
    sectors = (rng.choice(versions)[at : at + SECTOR] for at in range(0, size, SECTOR))
    return b"".join(sector.ljust(SECTOR, b"\0") for sector in sectors)[:size]
