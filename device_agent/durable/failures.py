"""Tasks of a device with an allowance that ended in a way that cannot be hidden: a crash, a time-out, memory that ran
out.

A coordinator can choose a model that crashes on some data and not on others, so each such end tells something, and no
noise covers it. They are counted on disk for each coordinator's key, before the coordinator is told. After `MOST` of
them the device works for that key no more, until its owner deletes the file.

A task that takes the whole agent with it counts as well: it is on disk before it begins, and what is still there when
the agent starts again did not end. Unless the machine has booted since: power cuts say nothing about the data.
"""

import json
from pathlib import Path

from edgefl.base.errors import RemoteError, StoreError
from edgefl.system.disk import Disk
from edgefl.system.json_text import parse_json

NAME = "failures.json"
MOST = 10
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Failures:
    """How many tasks of each coordinator failed, and which task has begun."""

    def __init__(self, disk: Disk, boot: str = "") -> None:
        self._disk, self._boot = disk, boot
        self._counts: dict[str, int] = {}
        self._begun: tuple[str, str] | None = None  # key and boot
        if (raw := disk.read(NAME)) is not None:
            try:
                table = parse_json(raw)
                self._counts = {str(key): int(count) for key, count in table["failures"].items()}
                self._begun = (str(table["begun"][0]), str(table["begun"][1])) if table["begun"] else None
            except (ValueError, TypeError, KeyError, AttributeError, IndexError):
                raise StoreError(
                    f"{self.where}: damaged, so it is not known how often tasks failed; restore it, or delete it to"
                    " count from 0"
                ) from None
        if self._begun is not None:
            key, boot_then = self._begun
            self.end(failed_for=key if boot_then == boot else None)

    @property
    def where(self) -> str:
        return self._disk.where(NAME)

    def of(self, key: str) -> int:
        """Return how many tasks of this coordinator failed."""
        return self._counts.get(key, 0)

    def check(self, key: str) -> None:
        """Raise if the device works for this coordinator no more."""
        if (failures := self.of(key)) >= MOST:
            raise RemoteError(
                "privacy.closed",
                f"this device no longer works for this coordinator: {failures} of its tasks could not be done; the"
                " device's owner can change that",
                free_of_data=True,
            )

    def begin(self, key: str) -> None:
        """After this returns, it is on disk that a task of this coordinator has begun."""
        if self._begun != (key, self._boot):
            self._write(self._counts, (key, self._boot))

    def end(self, *, failed_for: str | None = None) -> None:
        """After this returns, it is on disk that no task is under way, and that one failed for this coordinator."""
        counts = self._counts
        if failed_for is not None:
            counts = {**counts, failed_for: self.of(failed_for) + 1}
        if self._begun is not None or counts is not self._counts:
            self._write(counts, None)

    def _write(self, counts: dict[str, int], begun: tuple[str, str] | None) -> None:
        self._disk.write(NAME, json.dumps({"failures": counts, "begun": begun}, indent=1).encode())
        self._counts, self._begun = counts, begun


def boot() -> str:
    """Return the name of this start of the machine; empty where the kernel gives it none."""
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
