"""What comes in from devices, checked before anything comes of it.

Bad input from the network ends here: it is counted, logged, told, and a device that does not stop is not heard for a
while. That is for what it signed itself: what anybody could have sent in its name is held against nobody. What is left
is a device that came or went, or a whole frame of one that may speak.
"""

import logging
from collections import Counter
from time import monotonic

from coordinator.device_keys import DeviceKeys
from coordinator.guards import Guard
from coordinator.roster import Device, Roster
from coordinator.voice import Voice
from edgefl import events
from edgefl.config import Guards
from edgefl.errors import StoreError, WireError
from edgefl.protocol import chunks, signed, topics
from edgefl.protocol.messages import (
    INDEXES,
    TEXT,
    TO_COORDINATOR,
    Answer,
    Holding,
    Missing,
    Presence,
    Refusal,
    peek,
    read_json,
)
from edgefl.protocol.signed import Envelope, Unproven, Where

log = logging.getLogger(__name__)

REMINDERS = 5  # how often a device is asked for missing chunks before its transfer is forgotten
SILENT = 2.0  # seconds without a chunk before a device is asked for those that are missing
ABANDONED = 600.0  # seconds after which the chunks of a device that is gone are no longer kept
QUOTED = 64  # characters of a name from outside, which may be as long as a topic
NAMELESS = "-"  # stands for all who have not proven their name: they are kept in mind as one device, and not answered


class Inbox:
    """All devices, their unfinished transfers, and how each of them behaves."""

    def __init__(
        self, voice: Voice, guards: Guards, limit: int, tell: events.Tell, keys: DeviceKeys | None = None
    ) -> None:
        self.voice, self.tell, self.keys = voice, tell, keys or DeviceKeys()
        self.roster = Roster()
        self.total = limit  # bytes of all transfers together that are not complete
        self.held = 0
        self.guard = Guard(guards)
        self.refusals: Counter[str] = Counter()

    @property
    def devices(self) -> dict[str, Device]:
        return self.roster.devices

    def announced(self, id: str, payload: bytes, *, retained: bool) -> Device | None:
        """The device that came or went; None where the message does not stand."""
        if not topics.is_name(id):
            raise Unproven("device.name", f"'{id[:QUOTED]}' cannot be the name of a device")
        envelope = signed.opened(payload)
        envelope.prove(Where("presence", self.voice.fleet, device=id))
        if not self.keys.admits(id, envelope.key):
            self._turn_away(id, envelope)
            return None
        presence = self._presence(id, envelope, retained=retained)
        if presence is None:
            return None
        if presence.protocol != topics.PROTOCOL:
            why = (
                f"device '{id}' speaks protocol {presence.protocol}, the coordinator {topics.PROTOCOL}:"
                " install the same version of edgefl on both sides"
            )
            self._refuse(id, presence, "protocol.version", why)
            return None
        refused = self.roster.claim(id, presence, retained=retained)
        if refused == "stale":
            return None
        if refused:
            self._refuse(id, presence, "device.duplicate", refused)
            return None
        device = self.devices[id]
        self._met(device, envelope)
        device.offered = b"", 0.0
        device.doing = "idle" if device.online else "offline"
        return device

    def _presence(self, id: str, envelope: Envelope, *, retained: bool) -> Presence | None:
        """What it says; None if it is old. Counted if it is new: anybody can say again what was said before."""
        try:
            presence = read_json(Presence, envelope.payload)
        except WireError:
            self._count(id)
            raise
        known = self.devices.get(id)
        if known is None or known.key != envelope.key:
            self._count(id)
        elif not presence.online:  # a last will was signed long ago, and counts once
            if envelope.counter <= known.heard and not (known.online and presence.birth >= known.presence.birth):
                return None
            self._count(id)
        elif envelope.counter > known.announced:
            self._count(id)
        elif envelope.counter < known.announced or not known.online:
            raise Unproven("message.replayed", f"an old presence of '{id}' came again")
        elif not retained:
            return None
        return presence

    def known(self, id: str) -> Device:
        """The device of this name, which must have announced itself."""
        device = self.devices.get(id)
        if device is None:
            raise Unproven("device.unknown", f"device '{id[:QUOTED]}' has not announced itself")
        return device

    def gather(self, device: Device, payload: bytes) -> tuple[bytes, bytes | bytearray] | None:
        """Take in one chunk; the digest and the data of a frame that is whole with it."""
        now = monotonic()
        if self.guard.quarantined(device.id, now):
            self.refusals["device.quarantined"] += 1
            return None
        envelope = self._proven(device, payload)
        ours, part = envelope.run == self.voice.run, envelope.payload
        if not self.guard.allows(device.id if ours else NAMELESS, len(part), now):
            flooding = WireError if ours else Unproven
            raise flooding("device.flooding", f"device '{device.id}' sends more than guards.megabytes_per_minute")
        device.live, device.touched = True, now
        device.reminders.clear()
        device.bytes_up += len(part)
        before = device.assembler.held()
        try:
            whole = device.assembler.add(part)
            device.indexes.add(chunks.index(part))  # of those that fit: there are not more than the frame has
        except WireError as error:
            self._changed(device, part, error)
            raise
        finally:
            self.held += device.assembler.held() - before
        self._make_room(device)
        if whole is None:
            device.doing = "sending"
        elif not ours:
            self._foreign(device, *whole)
            return None
        return whole

    def _proven(self, device: Device, payload: bytes) -> Envelope:
        """What this very device says, and has not said before."""
        envelope = signed.opened(payload)
        if envelope.key != device.key:
            raise Unproven("message.signature", f"somebody else than '{device.id}' spoke in its name")
        common = chunks.series(envelope.payload)
        series = envelope.run, envelope.signature, common or b""
        if common is None or envelope.counter != device.heard or series != device.series:
            envelope.prove(Where("up", self.voice.fleet, self.voice.job, envelope.run, device.id))
            if envelope.counter <= device.heard:
                raise Unproven("message.replayed", f"an old message of '{device.id}' came again")
            device.heard, device.series = envelope.counter, series
            device.indexes.clear()
        if common is not None and chunks.index(envelope.payload) in device.indexes:
            raise Unproven("message.replayed", f"an old message of '{device.id}' came again")
        return envelope

    def _changed(self, device: Device, part: bytes, error: WireError) -> None:
        """Of a frame in many chunks only the whole is signed: a chunk that does not fit is held against nobody."""
        if chunks.series(part) is None or error.code == "wire.too_large":  # that much it signed
            return
        if error.code == "wire.corrupt" and self.guard.may_speak(NAMELESS, monotonic()):
            whole = chunks.read(part, device.assembler.limit)
            self.voice.say(device.id, Missing(digest=whole.digest, indexes=tuple(range(whole.count))[:INDEXES]))
        raise Unproven(error.code, str(error)) from None

    def _foreign(self, device: Device, digest: bytes, data: bytes | bytearray) -> None:
        """Of another run of this job: perhaps the device has not heard of its end, perhaps somebody replays it."""
        said = peek(TO_COORDINATOR, data)[0]
        if isinstance(said, Holding | Answer) and self.guard.may_speak(NAMELESS, monotonic()):
            known_as = said.digest if isinstance(said, Holding) else digest
            self.voice.receipt(device.id, said.round, known_as, "refused", "of another run")
        raise Unproven("update.foreign", f"device '{device.id}' spoke to another run of this job")

    def _met(self, device: Device, envelope: Envelope) -> None:
        """The device of this key is the one of this name, from now on."""
        if device.key != envelope.key:
            device.key, device.announced, device.heard = envelope.key, -1, -1
        if device.online:
            device.announced = envelope.counter
        device.heard = max(device.heard, envelope.counter)
        try:
            self.keys.pin(device.id, envelope.key)
        except StoreError as error:  # it holds for this life of the coordinator
            log.warning("the key of a device is not pinned device=%s why=%s", device.id, error)

    def _turn_away(self, id: str, envelope: Envelope) -> None:
        """The name belongs to another key: its owner is not blamed, and who came is told, but not without end."""
        why = f"the name '{id}' belongs to another key than {envelope.key}: {self.keys.remedy(id)}"
        if not self.guard.may_speak(NAMELESS, monotonic()):
            raise Unproven("device.key", why)
        try:
            presence = read_json(Presence, envelope.payload)
        except WireError as error:
            raise Unproven(error.code, str(error)) from None
        if refused := self.roster.taken(id, presence):
            self._refuse(id, presence, "device.duplicate", refused, envelope.key)
        else:
            self._refuse(id, presence, "device.key", why, envelope.key)

    def heard(self, device: Device) -> None:
        """One more message besides the answers to a round: each makes the coordinator do something."""
        self._count(device.id)

    def allow(self, frame: int) -> None:
        """Devices may send frames of so many bytes from here on; until the model is known, only small ones."""
        self.roster.limit, self.total = frame, max(self.total, 2 * frame)
        for device in self.devices.values():
            device.assembler.limit = frame

    def blame(self, id: str, error: WireError) -> bool:
        """Count what could not be used; True when the device goes into quarantine for it."""
        self.refusals[error.code] += 1
        if isinstance(error, Unproven) or self.keys.of(id) is None:
            id = NAMELESS
        if self.guard.quarantined(id, monotonic()):
            return False
        log.warning("ignored device=%s code=%s why=%s", id, error.code, error)
        self.tell(events.Refused(id, error.code, str(error)))
        if not self.guard.strike(id, monotonic()):
            return False
        reason = f"device '{id}' sent too many messages that cannot be used; it is heard again later"
        log.warning("quarantined device=%s", id)
        self.tell(events.Quarantined(id, reason))
        if id == NAMELESS:
            return False
        self.voice.say(id, Refusal(code="device.quarantined", reason=reason))
        return True

    def quarantined(self, device: Device) -> bool:
        """Whether the device may not take part now."""
        held = self.guard.quarantined(device.id, monotonic())
        if held:
            device.doing = "in quarantine"
        return held

    def released(self, now: float) -> list[str]:
        """Devices that are there and whose quarantine has just ended."""
        free = [id for id in self.guard.released(now) if id in self.devices and self.devices[id].online]
        for id in free:
            log.info("out of quarantine device=%s", id)
        return free

    def remind(self, now: float) -> None:
        """Ask devices that fell silent in the middle of a frame for the rest; forget what nobody will finish."""
        for device in self.devices.values():
            patience = SILENT * 2.0 ** max(device.reminders.values(), default=0)
            if device.online and device.assembler.underway() and now - device.touched > patience:
                device.touched = now
                self._ask_again(device)
            elif now - device.touched > ABANDONED:
                for digest in device.assembler.underway():
                    self._drop(device, digest)

    def _ask_again(self, device: Device) -> None:
        for digest in device.assembler.underway():
            device.reminders[digest] = device.reminders.get(digest, 0) + 1
            if device.reminders[digest] > REMINDERS:
                log.info("given up device=%s transfer=%s", device.id, digest.hex()[:16])
                self._drop(device, digest)
                del device.reminders[digest]
                continue
            gaps = device.assembler.missing(digest)[:1024]
            log.info("asked again device=%s chunks=%d", device.id, len(gaps))
            self.voice.say(device.id, Missing(digest=digest, indexes=tuple(gaps)))

    def _count(self, id: str) -> None:
        if not self.guard.may_speak(id, monotonic()):
            raise WireError("device.flooding", f"device '{id}' sends more than guards.messages_per_minute")

    def _make_room(self, latest: Device) -> None:
        """While transfers are too large together, the one that waits longest goes; its device is asked again."""
        while self.held > self.total:
            sending = [device for device in self.devices.values() if device.assembler.underway()]
            waiting = min(sending, key=lambda device: (device is latest, device.touched))
            self._drop(waiting, waiting.assembler.underway()[0])

    def _drop(self, device: Device, digest: bytes) -> None:
        before = device.assembler.held()
        device.assembler.drop(digest)
        self.held += device.assembler.held() - before

    def _refuse(self, id: str, presence: Presence, code: str, reason: str, key: str | None = None) -> None:
        self.refusals[code] += 1
        if not presence.online:
            return
        log.warning("refused device=%s code=%s why=%s", id, code, reason)
        self.tell(events.Refused(id, code, reason))
        said = Refusal(code=code, reason=reason[:TEXT], installation=presence.installation, key=key)
        self.voice.say(id, said)
