"""A disk in memory, for emulated devices: it lasts as long as the process, and nothing goes wrong on it."""

import errno
import os
from fnmatch import fnmatchcase

from edgefl.base.errors import StoreError
from edgefl.system.disk import Bytes
from edgefl.system.portable import OURS


class MemoryDisk:
    """A `Disk` whose files are bytes in memory."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}

    def where(self, name: str = "") -> str:
        return f"memory/{name}" if name else "memory"

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        file = self._files.get(name)
        return None if file is None else bytes(file[start : None if size is None else start + size])

    def view(self, name: str, start: int, size: int) -> memoryview:
        return memoryview(bytes(self._existing(name, "read")[start : start + size]))

    def scratch(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def size(self, name: str) -> int | None:
        return len(self._files[name]) if name in self._files else None

    def mode(self, name: str) -> int:  # noqa: ARG002 - there is no other process
        return OURS

    def names(self, pattern: str = "*") -> list[str]:
        return sorted(name for name in self._files if fnmatchcase(name, pattern) and not name.startswith("."))

    def write(self, name: str, data: Bytes) -> None:
        self._files[name] = bytearray(data)

    def create(self, name: str, data: Bytes) -> bool:
        if name in self._files:
            return False
        self.write(name, data)
        return True

    def append(self, name: str, *parts: Bytes) -> None:
        file = self._files.setdefault(name, bytearray())
        for part in parts:
            file += part

    def overwrite(self, name: str, *parts: Bytes, synced: bool = True) -> None:  # noqa: ARG002 - no power fails
        self._files[name] = bytearray().join(parts)

    def patch(self, name: str, data: Bytes) -> None:
        self._existing(name)[: len(data)] = data

    def truncate(self, name: str, size: int) -> None:
        del self._existing(name)[size:]

    def sync(self, name: str) -> None:
        self._existing(name)

    def rename(self, name: str, to: str) -> None:
        self._files[to] = self._existing(name)
        if to != name:
            del self._files[name]

    def remove(self, name: str) -> None:
        self._files.pop(name, None)

    def _existing(self, name: str, action: str = "written") -> bytearray:
        if name not in self._files:
            cause = os.strerror(errno.ENOENT)
            advice = "" if action == "read" else "; free some space or choose another folder"
            raise StoreError(f"{self.where(name)}: cannot be {action} ({cause}){advice}")
        return self._files[name]
