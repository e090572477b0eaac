"""Updates that wait for their receipt, on the device's own disk: a power cut after training costs no training."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from edgefl import store
from edgefl.errors import StoreError
from edgefl.faults import before_write
from edgefl.protocol import chunks
from edgefl.vector import State

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """An update, ready to be sent, and what the device keeps once it is accepted."""

    job: str
    life: str
    round: int
    attempt: str
    model: str  # the session's key of what it was trained from
    frame: bytes
    digest: bytes
    kept: State


class Spools:
    """Updates of different runs wait side by side, `most` of them.

    Of each run there is at most one: a newer task supersedes an older one.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._most = most
        # One more: a new update is written before an old one makes room.
        self._free = [Spool(folder, number) for number in range(most + 1)]
        self._used: dict[str, Spool] = {}  # by the life of the job

    def take(self) -> dict[str, Held]:
        """What waited when the device was last switched off, by the life of its job, the oldest first.

        A power cut may have come after a new update was written and before an old one was cleared: then the old one is
        there as well, of the same life or as one too many.
        """
        taken: dict[str, Held] = {}
        waiting = [(spool, held) for spool in self._free if (held := spool.take())]
        for spool, held in sorted(waiting, key=lambda pair: pair[0].path.stat().st_mtime_ns):
            taken.pop(held.life, None)
            self.clear(held.life)
            taken[held.life] = held
            self._free.remove(spool)
            self._used[held.life] = spool
        for life in list(taken)[: -self._most]:
            del taken[life]
            self.clear(life)
        return taken

    def put(self, held: Held) -> None:
        """After this returns, the update survives anything but the loss of the disk."""
        if held.life not in self._used:
            self._used[held.life] = self._free.pop(0)
        self._used[held.life].put(held)

    def clear(self, life: str) -> None:
        """Nothing of this life waits any more."""
        if spool := self._used.pop(life, None):
            spool.clear()
            self._free.insert(0, spool)


class Spool:
    """The file of one update.

        length of the note 8 | note, sealed by its hash | frame, whose hash stands in the note

    The file is written in place: a torn one is known by its hashes, and its round is trained again. So an update costs
    one sync and no rename, which on an SD card is most of what a small round costs.
    """

    def __init__(self, folder: Path, number: int = 0) -> None:
        self.path = folder / (f"update.{number}.spool" if number else "update.spool")

    def put(self, held: Held) -> None:
        """After this returns, the update survives anything but the loss of the disk."""
        about = {
            "job": held.job,
            "life": held.life,
            "round": held.round,
            "attempt": held.attempt,
            "model": held.model,
            "digest": held.digest.hex(),
        }
        note = store.sealed(held.kept, about)
        try:
            before_write()
            known = self.path.exists()
            with self.path.open("r+b" if known else "w+b") as file:
                os.fchmod(file.fileno(), store.OURS)
                file.write(len(note).to_bytes(8, "little"))
                file.write(note)
                file.write(held.frame)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            if not known:
                store.sync_folder(self.path.parent)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({error.strerror}); free some space") from None

    def take(self) -> Held | None:
        """What waited when the device was last switched off; what is damaged is put away, and trained again."""
        raw = self.path.read_bytes() if self.path.exists() else b""
        end = 8 + int.from_bytes(raw[:8], "little")
        if end == 8:
            return None
        try:
            kept, about = store.opened(raw[8:end], str(self.path))
            frame, digest = raw[end:], bytes.fromhex(about["digest"])
            if chunks.digest(frame) != digest:
                raise StoreError(f"{self.path}: torn, its update is not the one it names")
        except StoreError as error:
            log.warning("the spooled update cannot be used: %s", error)
            self.path.replace(self.path.with_suffix(".damaged"))
            return None
        return Held(about["job"], about["life"], about["round"], about["attempt"], about["model"], frame, digest, kept)

    def clear(self) -> None:
        """Nothing waits any more; should this not reach the disk, the update is sent twice and counted once."""
        if self.path.exists():
            with self.path.open("r+b") as file:
                file.write(bytes(8))  # no note: cheaper than to give the space back
