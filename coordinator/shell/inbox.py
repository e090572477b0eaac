"""What comes in from devices in pieces: frames are put together from chunks, and each sender has a quota."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from coordinator.shell.guards import Guard
from coordinator.shell.outbox import CoordinatorOutbox
from edgefl.base.errors import WireError
from edgefl.job.config.schema import Guards
from edgefl.wire import chunks
from edgefl.wire.chunks import Assembler
from edgefl.wire.messages import INDEXES, SMALL, Missing

log = logging.getLogger(__name__)

REMINDERS = 5  # how often a device is asked for missing chunks before its transfer is forgotten
SILENT = 2.0  # seconds without a chunk before a device is asked for those that are missing
ABANDONED = 600.0  # seconds after which the chunks of a device that is gone are no longer kept

Whole: TypeAlias = tuple[bytes, bytes | bytearray]  # a frame's digest, and the frame


@dataclass(slots=True)
class Transfers:
    """What one device is sending."""

    assembler: Assembler
    touched: float = 0.0  # when its last chunk came
    reminders: dict[bytes, int] = field(default_factory=dict)  # how often each transfer was asked for
    offered: tuple[bytes, float] = (b"", 0.0)  # the answer it was last told to send, and when

    @property
    def patience(self) -> float:
        return SILENT * 2.0 ** max(self.reminders.values(), default=0)


@dataclass(slots=True)
class Evicted:
    """A transfer that had to go for want of room: its device may have sent all of it, and would wait for ever."""

    digest: bytes
    size: int
    at: float  # when it went, or was last asked for
    reminders: int = 0


class Inbox:
    """The unfinished transfers of all devices, and what each of them may still send; `online` knows who is there."""

    def __init__(self, outbox: CoordinatorOutbox, guards: Guards, limit: int, online: Callable[[str], bool]) -> None:
        self.outbox, self.online = outbox, online
        self.frame = SMALL  # bytes of a frame: until the model is known, only small ones
        self.total = limit  # bytes of all transfers together that are not complete
        self.held = 0
        self.guard = Guard(guards)
        self.transfers: dict[str, Transfers] = {}
        self.underway: dict[str, Transfers] = {}  # those that are not complete
        self.evicted: dict[str, Evicted] = {}  # by device, the longest gone first

    def meet(self, id: str) -> None:
        """The device may send from now on; one that comes again is told again what is wanted."""
        self.transfers.setdefault(id, Transfers(Assembler(self.frame))).offered = b"", 0.0

    def gather(self, id: str, payload: bytes | memoryview, now: float) -> Whole | Literal["begun"] | None:
        """Take in one chunk: a frame that is whole with it, or whether it was the first of one that is not."""
        device = self.transfers[id]
        device.touched = now
        device.reminders.clear()
        self.evicted.pop(id, None)  # it comes
        begun = id not in self.underway
        before = 0 if begun else device.assembler.held()
        try:
            whole = device.assembler.add(payload)
        finally:
            self._changed(id, device, before)
        self._make_room(device, now)
        return ("begun" if begun else None) if whole is None else whole

    def weigh(self, id: str, size: int, now: float) -> None:
        """Count these bytes against the quota."""
        if not self.guard.allows(id, size, now):
            raise WireError("device.flooding", f"device '{id}' sends more than guards.megabytes_per_minute")

    def count(self, id: str, now: float) -> None:
        """One more message besides the answers to a round: each makes the coordinator do something."""
        if not self.guard.may_speak(id, now):
            raise WireError("device.flooding", f"device '{id}' sends more than guards.messages_per_minute")

    def ask_for(self, id: str, digest: bytes, size: int, now: float) -> None:
        """Ask for whatever is missing of an answer that the device holds, unless it has just been told."""
        device = self.transfers[id]
        if size > self.frame:
            raise WireError("wire.too_large", f"a frame of {size} bytes; the limit is {self.frame}")
        if device.offered[0] == digest and now - device.offered[1] < SILENT:
            return
        device.offered = digest, now
        gaps = device.assembler.missing(digest) or range(chunks.count(size))
        self.outbox.say(id, Missing(digest=digest, indexes=tuple(gaps)[:INDEXES]))

    def ask_for_all(self, id: str, part: bytes | memoryview) -> None:
        """Ask for the whole frame of this chunk once more: something in it was changed on its way."""
        whole = chunks.read(part, self.frame)
        self.outbox.say(id, Missing(digest=whole.digest, indexes=tuple(range(whole.count))[:INDEXES]))

    def allow(self, frame: int) -> None:
        """Allow frames of up to this number of bytes from here on."""
        self.frame, self.total = frame, max(self.total, 2 * frame)
        for device in self.transfers.values():
            device.assembler.limit = frame

    def deadline(self) -> float | None:
        """Return when a device has to be reminded, or can be forgotten."""
        if not self.underway and not self.evicted:
            return None
        due = [self._due(id, device) for id, device in self.underway.items()]
        return min([*due, *(one.at + SILENT for one in self._fitting().values())], default=None)

    def remind(self, now: float) -> None:
        """Ask devices that fell silent in the middle of a frame for the rest; forget what will not be finished."""
        for id, device in list(self.underway.items()):
            if now < self._due(id, device):
                continue
            if not self.online(id):
                for digest in device.assembler.underway():
                    self._drop(id, device, digest)
            else:
                device.touched = now
                self._ask_again(id, device)
        for id, one in self._fitting().items():
            if now >= one.at + SILENT:
                self._ask_for_evicted(id, one, now)

    def _fitting(self) -> dict[str, Evicted]:
        """Those that went first, as far as there is room for them again."""
        fitting, room = dict[str, Evicted](), self.total - self.held
        for id, one in self.evicted.items():
            room -= one.size
            if room < 0:
                break
            fitting[id] = one
        return fitting

    def _ask_for_evicted(self, id: str, one: Evicted, now: float) -> None:
        if one.reminders == REMINDERS or not self.online(id):
            del self.evicted[id]
            return
        one.at, one.reminders = now, one.reminders + 1
        log.info("asked again, as there is room device=%s transfer=%s", id, one.digest.hex()[:16])
        self.ask_for(id, one.digest, one.size, now)

    def _due(self, id: str, device: Transfers) -> float:
        return device.touched + (device.patience if self.online(id) else ABANDONED)

    def _ask_again(self, id: str, device: Transfers) -> None:
        for digest in device.assembler.underway():
            device.reminders[digest] = device.reminders.get(digest, 0) + 1
            if device.reminders[digest] > REMINDERS:
                log.info("given up device=%s transfer=%s", id, digest.hex()[:16])
                self._drop(id, device, digest)
                del device.reminders[digest]
                continue
            gaps = device.assembler.missing(digest)[:1024]
            log.info("asked again device=%s chunks=%d", id, len(gaps))
            self.outbox.say(id, Missing(digest=digest, indexes=tuple(gaps)))

    def _make_room(self, latest: Transfers, now: float) -> None:
        """While transfers are too large together, the one that waits longest goes, until there is room for it."""
        while self.held > self.total:
            id = min(self.underway, key=lambda one: (self.underway[one] is latest, self.underway[one].touched))
            digest = self.underway[id].assembler.underway()[0]
            self.evicted[id] = Evicted(digest, self._drop(id, self.underway[id], digest), now)

    def _drop(self, id: str, device: Transfers, digest: bytes) -> int:
        before = device.assembler.held()
        size = device.assembler.drop(digest)
        self._changed(id, device, before)
        return size

    def _changed(self, id: str, device: Transfers, before: int) -> None:
        self.held += device.assembler.held() - before
        if device.assembler.underway():
            self.underway[id] = device
        else:
            self.underway.pop(id, None)
