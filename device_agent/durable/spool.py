"""Updates that wait for their receipt, on the device's own disk: a power cut after training costs no training."""

import logging
from dataclasses import dataclass, field, replace

from edgefl.base.errors import StoreError
from edgefl.base.schedule import Purpose
from edgefl.base.vector import State
from edgefl.system import store
from edgefl.system.disk import Disk
from edgefl.wire import chunks

log = logging.getLogger(__name__)

NOTED = ("job", "run_key", "round", "attempt", "model", "number", "seal", "purpose")  # of an update, beside its digest


@dataclass(frozen=True, slots=True)
class SpooledUpdate:
    """An update, ready to be sent, and what the device keeps once it is accepted."""

    job: str
    run_key: str
    round: int
    attempt: str
    model: str  # the id of what it was trained from
    frame: bytes | bytearray
    digest: bytes
    kept: State
    seal: str | None = None  # the key it is sealed for
    purpose: Purpose = "train"  # of its task
    number: int = field(default=0, compare=False)  # grows with every update that is put
    note: bytes = field(default=b"", compare=False, repr=False)  # what is kept, as the spool has it: sealed once

    @property
    def run_id(self) -> str:
        return self.run_key.removeprefix(f"{self.job}.")


class Spools:
    """Updates of different runs wait side by side, `most` of them.

    Of each run there is at most one: a newer task supersedes an older one.
    """

    def __init__(self, disk: Disk, most: int) -> None:
        self._most, self._number = most, 0
        # One more: a new update is written before an old one makes room.
        self._free = [Spool(disk, place) for place in range(most + 1)]
        self._used: dict[str, Spool] = {}  # by the run of the job

    def take(self) -> dict[str, SpooledUpdate]:
        """What waited when the device was last switched off, by the run of its job, the oldest first.

        After a power cut between the write of a new update and the removal of an old one, both are on disk. The old
        one is then of the same run, or one more than the limit.
        """
        taken: dict[str, SpooledUpdate] = {}
        waiting = [(spool, held) for spool in self._free if (held := spool.take())]
        for spool, held in sorted(waiting, key=lambda pair: pair[1].number):
            self._number = held.number
            taken.pop(held.run_key, None)
            self.clear(held.run_key)
            taken[held.run_key] = held
            self._free.remove(spool)
            self._used[held.run_key] = spool
        for run_key in list(taken)[: -self._most]:
            del taken[run_key]
            self.clear(run_key)
        return taken

    def put(self, held: SpooledUpdate) -> SpooledUpdate:
        """After this returns, the update survives the end of the agent, however sudden; as it lies there."""
        if held.run_key not in self._used:
            self._used[held.run_key] = self._free.pop(0)
        self._number += 1
        return self._used[held.run_key].put(replace(held, number=self._number))

    def sync(self, run_key: str) -> None:
        """After this returns, the update of this run, if one waits, survives anything but the loss of the disk."""
        if spool := self._used.get(run_key):
            spool.sync()

    def clear(self, run_key: str) -> None:
        """Nothing of this run waits any more."""
        if spool := self._used.pop(run_key, None):
            spool.clear()
            self._free.insert(0, spool)


class Spool:
    """The file of one update.

        length of the note 8 | note, sealed by its hash | frame, whose hash stands in the note

    The file is written in place: a torn one is known by its hashes, and its round is trained again. So an update costs
    one sync and no rename, which on an SD card is most of what a small round costs. The agent waits for that sync only
    if the device keeps a state from this round to the next. After a power cut it does no harm if the device has
    forgotten an answer that the coordinator has; a lost state would do harm.
    """

    def __init__(self, disk: Disk, place: int = 0) -> None:
        self._disk, self._name = disk, f"update.{place}.spool" if place else "update.spool"

    def put(self, held: SpooledUpdate) -> SpooledUpdate:
        """After this returns, the update survives the end of the agent, and a power cut if something is kept."""
        about = {name: getattr(held, name) for name in NOTED}
        note = store.sealed(held.kept, {**about, "digest": held.digest.hex()})
        self._disk.overwrite(self._name, len(note).to_bytes(8, "little"), note, held.frame, synced=bool(held.kept))
        return replace(held, note=note)

    def sync(self) -> None:
        """After this returns, a power cut leaves what was put."""
        self._disk.sync(self._name)

    def take(self) -> SpooledUpdate | None:
        """What waited when the device was last switched off; what is damaged is put away, and trained again."""
        raw, where = self._disk.read(self._name) or b"", self._disk.where(self._name)
        end = 8 + int.from_bytes(raw[:8], "little")
        if end == 8:
            return None
        try:
            kept, about = store.opened(raw[8:end], where)
            frame, digest = raw[end:], bytes.fromhex(about["digest"])
            if chunks.digest(frame) != digest:
                raise StoreError(f"{where}: torn, its update is not the one it names")
        except StoreError as error:
            log.warning("the spooled update cannot be used: %s", error)
            self._disk.rename(self._name, self._name.replace(".spool", ".damaged"))
            return None
        return SpooledUpdate(
            frame=frame, digest=digest, kept=kept, note=raw[8:end], **{name: about[name] for name in NOTED}
        )

    def clear(self) -> None:
        """Nothing waits any more; should this not reach the disk, the update is sent twice and counted once."""
        if self._disk.size(self._name) is not None:
            self._disk.patch(self._name, bytes(8))  # no note: cheaper than to give the space back
