"""Which key belongs to a device's name: the fleet's members say so, or the run file (`[devices]`), or else it is the
first that comes with it.

Where a fleet has members (`edgefl fleet init`), no other device is heard, and none is believed because it came first. A
run file may name fewer of them. The members are read again when their file changes.

The first key of each name is kept for the whole fleet, one line for each (`pi-01 ed25519:...`). So in no run can
another device take a name while its owner is away. A device that was installed anew has a new key; it may come back
when `edgefl coordinator forget` has taken its line away, which a running coordinator notices.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from edgefl.base.errors import StoreError
from edgefl.fleet.members import MembersFile, ended_remedy
from edgefl.system.faults import before_write
from edgefl.system.portable import OURS, sync_folder
from edgefl.system.store import make_folder, write_atomically
from edgefl.watch.overview.troubles import NOT_IN_RUN
from edgefl.wire import signing

NAME = "identity.devices"


class DeviceKeys:
    """The keys of a fleet's devices; without a path they are forgotten with the run."""

    def __init__(
        self, path: Path | None = None, listed: Mapping[str, str] | None = None, members: MembersFile | None = None
    ) -> None:
        self.path, self.listed, self.members = path, dict(listed or {}), members
        self._pinned: dict[str, str] = {}
        self._read_at: tuple[int, int] | None = None
        self._refresh()

    def of(self, device: str) -> str | None:
        """The key of this name, if there is one."""
        if self.members is not None and (self.members.key_of(device) is None or not self.listed):
            return self.members.key_of(device)
        return self.listed.get(device) if self.listed else self._pinned.get(device)

    def is_member(self, device: str) -> bool:
        """Whether the fleet has members, whose names a broker checks, and the run is for this one of them."""
        return self.members is not None and self.of(device) is not None

    def admits(self, device: str, key: str) -> bool:
        """Whether who has this key may call itself by this name."""
        if self.members is not None and self.members.key_of(device) != key:
            return False
        if self.listed:
            return self.listed.get(device) == key
        if self.members is not None:
            return True
        if self._pinned.get(device) != key:
            self._refresh()
        return self._pinned.get(device) in (None, key)

    def pin(self, device: str, key: str) -> None:
        """From now on the name belongs to this key; after a power cut too, unless the disk is full."""
        if self.listed or self.members is not None or self._pinned.get(device) == key:
            return
        self._pinned[device] = key
        if self.path is None:
            return
        fresh = not self.path.exists()
        try:
            make_folder(self.path.parent)
            before_write()
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, OURS)
            try:
                os.write(handle, f"{device} {key}\n".encode())  # at once: runs of one fleet share the file
                os.fsync(handle)
            finally:
                os.close(handle)
            if fresh:
                sync_folder(self.path.parent)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({error.strerror}); free some space") from None

    def forget(self, device: str) -> bool:
        """Give the name to the next device that comes; return False if none had it."""
        self._refresh()
        if self.path is None or self._pinned.pop(device, None) is None:
            return False
        write_atomically(self.path, "".join(f"{name} {key}\n" for name, key in self._pinned.items()).encode())
        return True

    def not_in_run(self, device: str, key: str) -> str:
        """Return why the run is not for a device with this key, though nothing is wrong with it; empty if it is."""
        if not self.listed or device in self.listed:
            return ""
        if self.members is not None and self.members.key_of(device) != key:
            return ""
        return (
            f"{NOT_IN_RUN}: [devices] of its run file names {len(self.listed)}, and '{device}' is not among them;"
            f' if it should be, add {device} = "{key}" there'
        )

    def enrolled(self) -> tuple[tuple[str, ...], tuple[tuple[str, float, str], ...]]:
        """Return who belongs to the run, as far as that is known; and of these whose certificate has ended."""
        if self.members is None:
            return tuple(sorted(self.listed)), ()
        active = self.members.now().active()
        names = tuple(name for name in active if not active[name].hosts and (not self.listed or name in self.listed))
        ends = {name: end.timestamp() for name in names if (end := active[name].expires) is not None}
        ended = ((name, at) for name, at in ends.items() if at <= self.members.wall())
        return names, tuple((name, at, ended_remedy(name, active[name])) for name, at in ended)

    def remedy(self, device: str) -> str:
        """What the operator has to do to let another key in."""
        if self.members is not None and self.members.key_of(device) is None:
            if member := self.members.now().active().get(device):
                return f"its certificate has ended: {ended_remedy(device, member)}"
            return f"it is not a member of this fleet; if it should be, `edgefl fleet add {device}` makes its kit"
        if self.members is not None and not self.listed:
            return f"if it was installed anew, `edgefl fleet add {device} --replace` makes it a new kit"
        if self.listed:
            return f"if it is the right one, set devices.{device} in the run file to its key"
        return f"if it was installed anew, `edgefl coordinator forget run.toml {device}` lets it in"

    def _refresh(self) -> None:
        """Read the file, if it is another one than the last time."""
        if self.path is None:
            return
        try:
            known = self.path.stat()
            if (stamp := (known.st_mtime_ns, known.st_size)) == self._read_at:
                return
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            self._pinned, self._read_at = {}, None
            return
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be read ({error.strerror})") from None
        self._pinned, self._read_at = {}, stamp
        for line in text.splitlines():
            name, _, key = line.partition(" ")
            if _is_key(key):  # a line that a power cut spoiled is none
                self._pinned.setdefault(name, key)  # of two who came at the same moment, the first


def _is_key(text: str) -> bool:
    try:
        signing.key_bytes(text)
    except ValueError:
        return False
    return True
