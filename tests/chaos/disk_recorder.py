"""What power loss can leave on a disk: writes are recorded as they happen, and every state they may end in is replayed.

A process that is killed leaves what it wrote; a machine that loses power leaves what was synced. Of the rest a disk may
keep any part: a write whole, torn, as zeros or not at all, a name with or without the data behind it, in any order.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fcntl import F_GETFL, fcntl
from functools import partial, partialmethod
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from edgefl.system import store

SUBSETS = 5  # of up to so many unsynced names every subset is tried, of more every beginning


@dataclass(frozen=True)
class Write:
    file: int
    at: int
    data: bytes


@dataclass(frozen=True)
class Cut:
    """The file has this size from now on."""

    file: int
    size: int


@dataclass(frozen=True)
class Name:
    """A name now means this file, a folder (-1), or nothing (None)."""

    path: str
    file: int | None


@dataclass(frozen=True)
class Rename:
    old: str
    new: str
    file: int


@dataclass(frozen=True)
class Sync:
    """The file's data are on the disk."""

    file: int


@dataclass(frozen=True)
class SyncFolder:
    """The names in a folder are on the disk."""

    path: str


@dataclass(frozen=True)
class Mark:
    """Something to know about this moment."""

    text: str


Op: TypeAlias = Write | Cut | Name | Rename | Sync | SyncFolder | Mark
Disk: TypeAlias = dict[str, bytes | None]  # None: a folder


class _Recorded(AbstractContextManager["_Recorded"]):
    """A file that is written to, and recorded."""

    def __init__(self, file: Any, number: int, disk_recorder: "DiskRecorder") -> None:
        self._file, self._number, self._tape = file, number, disk_recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        at = os.fstat(self._file.fileno()).st_size if "a" in self._file.mode else self._file.tell()
        self._tape.ops.append(Write(self._number, at, bytes(data)))
        return int(self._file.write(data))

    def truncate(self, size: int | None = None) -> int:
        self._tape.ops.append(Cut(self._number, self._file.tell() if size is None else size))
        return int(self._file.truncate(size))


def _instead(path: Path, real: Any, taped: Any, mine: Callable[[Path], bool], *args: Any, **more: Any) -> Any:
    """Called in the place of a method of Path; only what is ours is recorded."""
    return taped(real, path, *args, **more) if mine(path) else real(path, *args, **more)


@dataclass
class DiskRecorder(AbstractContextManager["DiskRecorder"]):
    """Records what is done to the files under `root`, through the calls that our file layer makes."""

    root: Path
    ops: list[Op] = field(default_factory=list)
    _files: dict[str, int] = field(default_factory=dict)
    _patch: pytest.MonkeyPatch = field(default_factory=pytest.MonkeyPatch)

    def __post_init__(self) -> None:
        for name in ("open", "replace", "unlink", "mkdir"):
            real, taped = getattr(Path, name), getattr(self, f"_{name}")
            self._patch.setattr(Path, name, partialmethod(_instead, real, taped, self._mine))
        self._new_file = store.new_file
        self._patch.setattr(store, "new_file", self._created)
        self._open_file, self._write, self._truncate = os.open, os.writev, os.ftruncate
        self._patch.setattr(os, "open", self._opened)
        self._patch.setattr(os, "writev", self._writev)
        self._patch.setattr(os, "ftruncate", self._cut)
        for name in ("fsync", "fdatasync"):
            self._patch.setattr(os, name, partial(self._synced, getattr(os, name)))

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """What is done from now on is not recorded."""
        self._patch.undo()

    def mark(self, text: str) -> None:
        self.ops.append(Mark(text))

    # ---- what our file layer calls -------------------------------------------------------------------------------

    def _created(self, path: Path, *, private: bool) -> Any:
        file = self._new_file(path, private=private)
        if not self._mine(path):
            return file
        name = self._name(path)
        self._files[name] = len(self.ops)  # a number that no other file has
        self.ops.append(Name(name, self._files[name]))
        return _Recorded(file, self._files[name], self)

    def _opened(self, path: Any, flags: int, *mode: int, **more: Any) -> int:
        fresh = isinstance(path, str) and flags & os.O_CREAT and not flags & os.O_EXCL and not Path(path).exists()
        handle = self._open_file(path, flags, *mode, **more)
        if fresh and self._mine(Path(path)):
            name = self._name(Path(path))
            self._files[name] = len(self.ops)  # a number that no other file has
            self.ops.append(Name(name, self._files[name]))
        return handle

    def _open(self, real: Callable[..., Any], path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        new = not path.exists()
        file = real(path, mode, *args, **more)
        if mode in ("r", "rb"):
            return file
        name = self._name(path)
        if new:
            self._files[name] = len(self.ops)  # a number that no other file has
            self.ops.append(Name(name, self._files[name]))
        elif mode.startswith("w"):
            self.ops.append(Cut(self._files[name], 0))
        return _Recorded(file, self._files[name], self)

    def _synced(self, real: Callable[[int], None], handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if self._mine(path):
            name = self._name(path)
            self.ops.append(SyncFolder(name) if path.is_dir() else Sync(self._files[name]))
        real(handle)

    def _cut(self, handle: int, size: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if self._mine(path):
            self.ops.append(Cut(self._files[self._name(path)], size))
        self._truncate(handle, size)

    def _writev(self, handle: int, parts: list[memoryview]) -> int:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if self._mine(path):
            added = fcntl(handle, F_GETFL) & os.O_APPEND
            at = os.fstat(handle).st_size if added else os.lseek(handle, 0, os.SEEK_CUR)
            for part in parts:  # any of them may be lost alone
                self.ops.append(Write(self._files[self._name(path)], at, bytes(part)))
                at += len(part)
        return self._write(handle, parts)

    def _replace(self, real: Callable[..., Any], path: Path, target: Path) -> Any:
        file = self._files[self._name(target)] = self._files.pop(self._name(path))
        self.ops.append(Rename(self._name(path), self._name(target), file))
        return real(path, target)

    def _unlink(self, real: Callable[..., Any], path: Path, *args: Any, **more: Any) -> None:
        real(path, *args, **more)
        if self._files.pop(self._name(path), None) is not None:  # else there was none
            self.ops.append(Name(self._name(path), None))

    def _mkdir(self, real: Callable[..., Any], path: Path, *args: Any, **more: Any) -> None:
        new = not path.exists()
        real(path, *args, **more)
        if new and self._name(path) not in self._files:
            self._files[self._name(path)] = -1
            self.ops.append(Name(self._name(path), -1))

    def _mine(self, path: Path) -> bool:
        return self.root in path.parents or path == self.root

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    # ---- what power loss may leave -------------------------------------------------------------------------------

    def endings(self, since: int = 0) -> Iterator[tuple[Disk, list[str]]]:
        """Every state the disk may be in, whenever the power fails, and what had been marked by then."""
        for length in range(since, len(self.ops) + 1):
            past = self.ops[:length]
            marks = [op.text for op in past if isinstance(op, Mark)]
            seen: set[tuple[tuple[str, bytes | None], ...]] = set()
            for state in _possible(past):
                key = tuple(sorted(state.items()))
                if key not in seen:
                    seen.add(key)
                    yield state, marks


def restore(disk: Disk, folder: Path) -> None:
    """Put that state of the disk into a fresh folder."""
    for name, data in sorted(disk.items()):
        if data is None:
            (folder / name).mkdir(parents=True, exist_ok=True)
        else:
            (folder / name).write_bytes(data)


def _possible(past: list[Op]) -> Iterator[Disk]:
    """The durable part, with any part of the rest."""
    synced: dict[int | str, int] = {}
    for at, op in enumerate(past):
        if isinstance(op, Sync | SyncFolder):
            synced[op.file if isinstance(op, Sync) else op.path] = at
    loose = [at for at, op in enumerate(past) if (where := _place(op)) is not None and at > synced.get(where, -1)]
    names = [at for at in loose if isinstance(past[at], Name | Rename)]
    data = [at for at in loose if at not in names]
    for lost_names in _losses(names):
        for lost_data in _losses(data):
            gone = {*lost_names, *lost_data}
            yield _played(op for at, op in enumerate(past) if at not in gone)
        for at in data:
            for worse in _spoiled(past[at]):
                yield _played(worse if n == at else op for n, op in enumerate(past) if n not in lost_names)


def _place(op: Op) -> int | str | None:
    """What must be synced for it to last: a file, or a folder."""
    match op:
        case Write(file, _, _) | Cut(file, _):
            return file
        case Name(path, _) | Rename(_, path, _):
            return str(Path(path).parent)
    return None


def _losses(pending: list[int]) -> Iterator[tuple[int, ...]]:
    if len(pending) <= SUBSETS:
        for count in range(len(pending) + 1):
            yield from combinations(pending, count)
    else:
        yield from (tuple(pending[count:]) for count in range(len(pending) + 1))


def _spoiled(op: Op) -> Iterator[Op]:
    """A write that was torn, or came as zeros."""
    if isinstance(op, Write) and op.data:
        size = len(op.data)
        yield Write(op.file, op.at, bytes(size))
        for cut in sorted({1, 7, size // 2, size - 1} & set(range(1, size))):
            yield Write(op.file, op.at, op.data[:cut])
            yield Write(op.file, op.at, op.data[:cut] + bytes(size - cut))
            yield Write(op.file, op.at + cut, op.data[cut:])


def _played(ops: Iterator[Op]) -> Disk:
    names: dict[str, int] = {}
    files: dict[int, io.BytesIO] = {}
    for op in ops:
        match op:
            case Write(file, at, data):
                held = files.setdefault(file, io.BytesIO())
                held.seek(at)
                held.write(data)
            case Cut(file, size):
                held = files.setdefault(file, io.BytesIO())
                held.truncate(size)
                held.seek(0, io.SEEK_END)
                held.write(bytes(size - held.tell()))
            case Name(path, None):
                names.pop(path, None)
            case Name(path, file):
                names[path] = file
            case Rename(old, new, file):
                names.pop(old, None)
                names[new] = file
    reached = {path: file for path, file in names.items() if all(str(p) in names for p in Path(path).parents[:-1])}
    empty = io.BytesIO()
    return {path: None if file == -1 else files.get(file, empty).getvalue() for path, file in reached.items()}
