"""What devices say, as events of the core: every message becomes one event, or none.

What cannot be used becomes one as well, `Misbehaved`: a whole frame that cannot be read is refused by its digest, for
it may have been an answer. The frame of an answer is put aside under its digest until the core has a verdict.
"""

import logging
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeAlias, TypeVar

from coordinator.decide import rounds, vocabulary
from coordinator.decide.devices import NAMELESS
from coordinator.decide.roster import Announcement
from coordinator.decide.strikes import Conduct
from coordinator.shell import gateways
from coordinator.shell.artifacts import Artifacts
from coordinator.shell.authentication import DeviceAuthentication
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.inbox import Inbox
from coordinator.shell.outbox import CoordinatorOutbox
from coordinator.shell.retained_cleanup import RetainedCleanup
from edgefl.base import events
from edgefl.base.errors import WireError
from edgefl.wire import chunks, topics
from edgefl.wire.messages import (
    NOT_IN_RUN,
    TO_COORDINATOR,
    Absent,
    Answer,
    BusyMessage,
    DeclinedMessage,
    Holding,
    Presence,
    Renewal,
    ToCoordinator,
    WireVitals,
    Working,
    peek,
    read_json,
)
from edgefl.wire.signed import Envelope, Unproven
from edgefl.wire.transport import Message

T = TypeVar("T")
_Hear: TypeAlias = Callable[[str, Message, float], vocabulary.Event | None]

log = logging.getLogger(__name__)

OTHER_VERSION = "message.unsigned", "message.version"  # what another version of edgefl sends


class CoordinatorInbound:
    """Listens for one run."""

    def __init__(
        self,
        outbox: CoordinatorOutbox,
        inbox: Inbox,
        keys: DeviceKeys,
        artifacts: Artifacts,
        retained_cleanup: RetainedCleanup,
    ) -> None:
        self.name, self.run_id, self.key = outbox.job, outbox.run_id, outbox.speaker.key
        self.inbox, self.artifacts, self.retained_cleanup = inbox, artifacts, retained_cleanup
        self.proofs = DeviceAuthentication(outbox.fleet, outbox.job, keys)

    def event(self, message: Message, conduct: Conduct, now: float) -> vocabulary.Event | None:
        """Return what the message means; a device in quarantine is not heard."""
        match topics.parts(message.topic):
            case ("site", site) if message.payload in (b"0", b"1"):
                return vocabulary.SiteBack(now, site) if message.payload == b"1" else vocabulary.SiteLost(now, site)
            case ("presence", device) if message.payload:
                hear: _Hear = self._presence
            case (self.name, "dev", device, "up") if conduct.quarantined(device, now):
                return vocabulary.Misbehaved(now, device, "device.quarantined", "it is not heard now")
            case (self.name, "dev", device, "up"):
                hear = self._up
            case _:
                return self._leftover(message, now)
        try:
            return hear(device, message, now)
        except WireError as error:
            return self.misbehaved(device, error, now)

    def meet(self, id: str) -> None:
        """From now on this device takes part."""
        self.proofs.meet(id)
        self.inbox.meet(id)

    def dismiss(self, id: str) -> None:
        """From now on it does not."""
        self.proofs.known.pop(id, None)

    def revoked(self, now: float) -> list[vocabulary.Revoked]:
        """Devices that have taken part, and may not any more."""
        proofs = self.proofs
        return [vocabulary.Revoked(now, id, proofs.keys.remedy(id)) for id in proofs.unwelcome()]

    def misbehaved(self, device: str, error: WireError, now: float) -> vocabulary.Misbehaved:
        """Return an unusable message as an event that counts against its signer alone."""
        nobody = isinstance(error, Unproven) or self.proofs.keys.of(device) is None
        return vocabulary.Misbehaved(now, NAMELESS if nobody else device, error.code, str(error))

    def _leftover(self, message: Message, now: float) -> vocabulary.Event | None:
        before = self.retained_cleanup.searched
        self.retained_cleanup.hear(message)
        return vocabulary.Searched(now) if self.retained_cleanup.searched and not before else None

    def _presence(self, id: str, message: Message, now: float) -> vocabulary.Event | None:
        try:
            envelope = self.proofs.of_presence(id, message.payload)
        except Unproven as error:
            if error.code in OTHER_VERSION and self.proofs.keys.is_member(id):
                return vocabulary.Unreadable(now, id, error.code, str(error))
            raise
        keys, refusal, key = self.proofs.keys, None, None
        if why := keys.not_in_run(id, envelope.key):
            self._nameless(lambda: self.inbox.count(id if keys.members else NAMELESS, now))
            presence = self._nameless(lambda: read_json(Presence, envelope.payload))
            if not presence.online:  # whether it runs is nothing to this run
                return None
            refusal, key = (NOT_IN_RUN, why), envelope.key
        elif not keys.admits(id, envelope.key):  # who has the name is not blamed, who came is told, but not without end
            why = f"the name '{id}' belongs to another key than {envelope.key}: {keys.remedy(id)}"
            self._nameless(lambda: self.inbox.count(NAMELESS, now), "device.key", why)
            presence = self._nameless(lambda: read_json(Presence, envelope.payload))
            refusal, key = ("device.key", why), envelope.key
        else:
            presence = self._read(id, envelope, now)
            news = self.proofs.is_news(id, envelope, presence)
            if news is False or (news is None and not message.retained):
                return None
            if news:
                self.inbox.count(id, now)
        if refusal is None and presence.protocol != topics.PROTOCOL:
            why = f"device '{id}' speaks protocol {presence.protocol}, the coordinator {topics.PROTOCOL}"
            refusal = "protocol.version", f"{why}: install the same version of edgefl on both sides"
        if refusal is None:
            refusal = gateways.objection(id, presence.speaks_for, self.artifacts.run)
        announcement = Announcement(**{one.name: getattr(presence, one.name) for one in fields(Announcement)})
        return vocabulary.Announced(now, id, announcement, message.retained, refusal, key, _vitals(id, presence.vitals))

    def _read(self, id: str, envelope: Envelope, now: float) -> Presence:
        try:
            return read_json(Presence, envelope.payload)
        except WireError:
            self.inbox.count(id, now)
            raise

    def _nameless(self, act: Callable[[], T], code: str = "", why: str = "") -> T:
        """Carry it out; an error counts against no device, for its sender is not proven."""
        try:
            return act()
        except WireError as error:
            raise Unproven(code or error.code, why or str(error)) from None

    def _up(self, id: str, message: Message, now: float) -> vocabulary.Event | None:
        envelope = self.proofs.of_message(id, message.payload)
        part = envelope.payload
        if envelope.run_id == self.run_id:
            self.inbox.weigh(id, len(part), now)
        else:
            self._nameless(lambda: self.inbox.weigh(NAMELESS, len(part), now))
        try:
            gathered = self.inbox.gather(id, part, now)
        except WireError as error:
            self._changed(id, part, error, now)
            raise
        self.proofs.fits(id, part)
        match gathered:
            case "begun":
                return vocabulary.Begun(now, id)
            case (digest, frame) if envelope.run_id != self.run_id:
                return self._foreign(id, digest, frame, now)
            case (digest, frame):
                return self._frame(id, digest, frame, now)
        return None

    def _changed(self, id: str, part: bytes | memoryview, error: WireError, now: float) -> None:
        """Of a frame in many chunks only the whole is signed: a chunk that does not fit counts against no device."""
        if chunks.series(part) is None or error.code == "wire.too_large":  # that much it signed
            return
        if error.code == "wire.corrupt":
            self._nameless(lambda: self.inbox.count(NAMELESS, now), error.code, str(error))
            self.inbox.ask_for_all(id, part)
        raise Unproven(error.code, str(error)) from None

    def _foreign(self, id: str, digest: bytes, data: bytes | bytearray, now: float) -> vocabulary.Event:
        """Of another run of this job: the device may not have heard of its end, or it is a replay."""
        message = peek(TO_COORDINATOR, data)[0]
        why = f"device '{id}' sent a message for another run of this job"
        if not isinstance(message, Holding | Answer):
            raise Unproven("update.foreign", why)
        self._nameless(lambda: self.inbox.count(NAMELESS, now), "update.foreign", why)
        known_as = message.digest if isinstance(message, Holding) else digest
        return vocabulary.Offered(now, id, message.round, known_as, len(data), ours=False)

    def _frame(self, id: str, digest: bytes, data: bytes | bytearray, now: float) -> vocabulary.Event | None:
        try:
            message, unread = peek(TO_COORDINATOR, data)
        except WireError as error:
            return replace(self.misbehaved(id, error, now), frame=digest)
        if isinstance(message, Answer):
            self.artifacts.answers.receive(id, digest, message, unread, data)
            return self._answered(id, digest, message, len(data), now)
        unread.body(limit=0)
        self.inbox.count(id, now)
        return self._short(id, message, now)

    def _short(self, id: str, message: ToCoordinator, now: float) -> vocabulary.Event | None:
        match message:
            case DeclinedMessage(to=key) if key not in (None, self.key):
                log.debug("declined a task of another coordinator device=%s", id)
            case DeclinedMessage(round=round, reason=reason):
                return rounds.DeviceDeclined(id, round, now, reason)
            case BusyMessage(round=round, reason=reason):
                return rounds.DeviceBusy(id, round, now, reason)
            case Working(round=round, steps=steps, vitals=vitals):
                return vocabulary.ProgressReported(now, id, round, steps, _vitals(id, vitals))
            case Holding():
                ours = (message.job, message.run_id) == (self.name, self.run_id)
                return vocabulary.Offered(now, id, message.round, message.digest, message.size, ours)
            case Renewal(request=request):
                return vocabulary.Expiring(now, id, request)
            case Absent(model=model, forged=forged):
                self.artifacts.publish_again(id, model, now, whole=not forged)
        return None

    def _answered(self, id: str, digest: bytes, answer: Answer, size: int, now: float) -> vocabulary.AnswerArrived:
        ours = (answer.device, answer.job, answer.run_id) == (id, self.name, self.run_id)
        foreign = "" if ours else f"it is of device '{answer.device}', job '{answer.job}', run '{answer.run_id}'"
        return vocabulary.AnswerArrived(
            now, id, answer.round, digest, size, answer.steps, answer.seconds_per_step, foreign
        )


def _vitals(id: str, vitals: WireVitals | None) -> events.Vitals | None:
    return None if vitals is None else events.Vitals(id, **vitals.model_dump())
