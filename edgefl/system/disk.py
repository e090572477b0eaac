"""One folder, and what can be promised about the files in it. Everything durable goes through here.

    write      the old or the new content, never anything between; on the disk when it returns
    append     as it was, or longer by all of this; on the disk when it returns
    overwrite  on the disk when it returns; before that the file may be torn, which its reader must notice
    patch      the first bytes only, and not synced: for what may as well not have happened
    create     as write, but only where there is nothing yet

`FolderDisk` is a real folder; `MemoryDisk` (memory_disk.py) is one for emulated devices. Contents are
synced without the times of a file, which are not needed. So overwriting part of a file adds no entry to the journal of
the file system, for which every process on that disk would wait.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from mmap import ACCESS_READ, ALLOCATIONGRANULARITY, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Protocol, TypeAlias

from edgefl.base.errors import StoreError
from edgefl.system.faults import before_write
from edgefl.system.portable import BINARY, OURS, close_to_others, reserve, sync_contents, sync_folder, write_parts
from edgefl.system.store import create_atomically, make_folder, write_atomically

Bytes: TypeAlias = bytes | bytearray | memoryview
GATHERED = 512  # parts handed to the kernel at a time; Linux takes 1024
ALIGNED = 64  # bytes: numpy adds up numbers in another order that stand elsewhere


class Disk(Protocol):
    """Files by name, without folders in them. What cannot be done is a StoreError that names the file."""

    def where(self, name: str = "") -> str:
        """The file, or the folder, as a human would look for it."""
        ...

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        """Return the bytes of a file from `start` on, at most `size` of them; None: there is no such file."""
        ...

    def view(self, name: str, start: int, size: int) -> memoryview:
        """These bytes of a file, read where they lie when they are looked at; fewer, if it is shorter.

        Only for files that no longer change. They stay readable when the file is removed.
        """
        ...

    def scratch(self, size: int) -> memoryview:
        """Return a buffer that lies on this disk and not in memory, until its last reference is gone."""
        ...

    def size(self, name: str) -> int | None:
        """How many bytes it has; None: there is no such file."""
        ...

    def mode(self, name: str) -> int:
        """Who may do what with a file that is there, as chmod says it."""
        ...

    def names(self, pattern: str = "*") -> list[str]:
        """The files that are there, sorted."""
        ...

    def write(self, name: str, data: Bytes) -> None:
        """After this returns, the file holds exactly this, even if the power fails; before, what it held."""
        ...

    def create(self, name: str, data: Bytes) -> bool:
        """The same, unless the file is there already: of two who do this at the same time, the first one's stays."""
        ...

    def append(self, name: str, *parts: Bytes) -> None:
        """After this returns, the parts stand at the end; a power cut before may leave any piece of them there."""
        ...

    def overwrite(self, name: str, *parts: Bytes, synced: bool = True) -> None:
        """After this returns, the file is these parts; a power cut before may leave it torn.

        One sync and no rename: on an SD card that is most of what a small file costs. A caller that syncs later
        by itself has content that outlives the process, and until then no power cut.
        """
        ...

    def patch(self, name: str, data: Bytes) -> None:
        """The first bytes of a file are these from now on, or after a power cut perhaps not."""
        ...

    def truncate(self, name: str, size: int) -> None:
        """After this returns, what stood behind these bytes is gone for good."""
        ...

    def sync(self, name: str) -> None:
        """Make what can be read here survive a power cut: a process that was killed may have left it unsynced."""
        ...

    def rename(self, name: str, to: str) -> None:
        """It has another name from now on, or after a power cut perhaps the old one."""
        ...

    def remove(self, name: str) -> None:
        """It is gone, if it was there; after a power cut perhaps not."""
        ...


class FolderDisk:
    """A folder of the machine, made when something is first written, for its owner alone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._folder = folder, str(folder)
        self._lasting: set[str] = set()  # names that we have synced ourselves: of others it is not known

    def where(self, name: str = "") -> str:
        return str(self.folder / name)

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        try:
            with (self.folder / name).open("rb") as file:
                file.seek(start)
                return file.read(size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.where(name)}: cannot be read ({error.strerror})") from None

    def view(self, name: str, start: int, size: int) -> memoryview:
        before = start % ALLOCATIONGRANULARITY
        if before % ALIGNED:
            return memoryview(self.read(name, start, size) or b"")
        try:
            with (self.folder / name).open("rb") as file:
                size = max(0, min(size, os.fstat(file.fileno()).st_size - start))
                if not size:
                    return memoryview(b"")
                mapped = mmap(file.fileno(), before + size, access=ACCESS_READ, offset=start - before)
        except OSError as error:
            raise StoreError(f"{self.where(name)}: cannot be read ({error.strerror})") from None
        return memoryview(mapped)[before:]

    def scratch(self, size: int) -> memoryview:
        with self._reported("scratch"), TemporaryFile(dir=self.folder) as file:
            reserve(file.fileno(), max(1, size))
            return memoryview(mmap(file.fileno(), max(1, size)))[:size]

    def size(self, name: str) -> int | None:
        try:
            return os.stat(self._path(name)).st_size  # noqa: PTH116 - see _path
        except FileNotFoundError:
            return None

    def mode(self, name: str) -> int:
        return (self.folder / name).stat().st_mode & 0o777

    def names(self, pattern: str = "*") -> list[str]:
        if not self.folder.is_dir():
            return []
        with os.scandir(self._folder) as inside:
            shown = [entry for entry in inside if fnmatchcase(entry.name, pattern) and not entry.name.startswith(".")]
            return sorted(entry.name for entry in shown if entry.is_file())

    def write(self, name: str, data: Bytes) -> None:
        write_atomically(self.folder / name, data)
        self._lasting.add(name)

    def create(self, name: str, data: Bytes) -> bool:
        with self._reported(name):
            return create_atomically(self.folder / name, data)

    def append(self, name: str, *parts: Bytes) -> None:
        with self._reported(name):
            before_write()
            with self._opened(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
                before = os.fstat(file).st_size
                try:
                    _write_all(file, parts)
                    sync_contents(file)
                except OSError:
                    with suppress(OSError):  # the next writer cuts it again, and durably
                        os.ftruncate(file, before)
                    raise

    def overwrite(self, name: str, *parts: Bytes, synced: bool = True) -> None:
        with self._reported(name):
            before_write()
            with self._opened(name, os.O_RDWR | os.O_CREAT) as file:
                _write_all(file, parts)
                if os.fstat(file).st_size > (size := sum(map(len, parts))):  # else ext4 would note that nothing changed
                    os.ftruncate(file, size)
                if synced:
                    sync_contents(file)

    def patch(self, name: str, data: Bytes) -> None:
        try:
            file = os.open(self._path(name), os.O_WRONLY | BINARY)
            try:
                _write_all(file, (data,))
            finally:
                os.close(file)
        except OSError as error:
            raise self._unwritten(name, error) from None

    def truncate(self, name: str, size: int) -> None:
        with self._reported(name), self._opened(name, os.O_RDWR) as file:
            os.ftruncate(file, size)
            os.fsync(file)

    def sync(self, name: str) -> None:
        with self._reported(name), self._opened(name, os.O_RDWR) as file:
            sync_contents(file)

    def rename(self, name: str, to: str) -> None:
        with self._reported(name):
            (self.folder / name).replace(self.folder / to)
            self._lasting -= {name, to}

    def remove(self, name: str) -> None:
        with self._reported(name):
            (self.folder / name).unlink(missing_ok=True)
            self._lasting.discard(name)

    def _path(self, name: str) -> str:
        """As text: to make a `Path` takes longer than to open the file."""
        return f"{self._folder}/{name}"

    @contextmanager
    def _opened(self, name: str, flags: int) -> Iterator[int]:
        """The file, for its owner alone; its name lasts once it is closed."""
        try:
            file = os.open(self._path(name), flags | BINARY, OURS)
        except FileNotFoundError:
            make_folder(self.folder)
            file = os.open(self._path(name), flags | BINARY, OURS)
        try:
            if name not in self._lasting:
                close_to_others(file)  # by any process
            yield file
        finally:
            os.close(file)
        if name not in self._lasting:
            sync_folder(self.folder)
            self._lasting.add(name)

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unwritten(name, error) from None

    def _unwritten(self, name: str, error: OSError) -> StoreError:
        return StoreError(
            f"{self.where(name)}: cannot be written ({error.strerror}); free some space or choose another folder"
        )


def _write_all(file: int, parts: tuple[Bytes, ...]) -> None:
    """Unbuffered: what could not be written must not come later, when the file is closed."""
    rest = [memoryview(part) for part in parts]
    while rest:
        written = write_parts(file, rest[:GATHERED])
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if written:
            rest[0] = rest[0][written:]
