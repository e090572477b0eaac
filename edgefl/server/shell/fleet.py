"""One fleet of a server, as its broker tells of it: who is there, and whose certificate ends soon.

It speaks to devices as the job `server`, with the fleet's own key, which they trust. Certificates are renewed over the
same connection, whether or not a run is on: where one ends soon, the state of the job `server` is published, and a
device that hears it asks.
"""

import logging
from collections.abc import Callable
from typing import Any

from coordinator.decide import vocabulary
from coordinator.shell.authentication import DeviceAuthentication
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.renewals import Renewals
from edgefl.base import events
from edgefl.base.errors import WireError
from edgefl.base.events import Fact
from edgefl.base.records import replace
from edgefl.fleet.folder import FleetFolder
from edgefl.fleet.members import Members, MembersFile
from edgefl.fleet.notices import Notices
from edgefl.server.decide import presence
from edgefl.server.decide.presence import (
    BrokerBack,
    BrokerGone,
    DeviceAnnounced,
    DeviceBarred,
    DeviceStatus,
    FleetMembersRead,
    GraceOver,
)
from edgefl.wire import chunks, topics
from edgefl.wire.messages import (
    SMALL,
    TO_COORDINATOR,
    JobState,
    Presence,
    Renew,
    Renewal,
    Renewed,
    ToDevice,
    frame,
    read,
    read_json,
)
from edgefl.wire.signed import Speaker, Unproven
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionLost, ConnectionMade, Message, Undelivered
from edgefl.wire.wiring import Wiring

log = logging.getLogger(__name__)

JOB = topics.SERVER  # the name under which a server speaks to devices; no run may have it
MEMBERS = 1.0  # seconds between two looks at the list of members
NOTICES = 30.0  # seconds between two looks what devices have to be told
RENEW = 3600.0  # seconds between two looks whose certificate ends soon
SOON = 1 / 3  # of a certificate's time is left: the device asks for a new one


class FleetService:
    """Presence, inventory and certificates of one fleet. `tell` hears facts, stamped by the wall clock."""

    def __init__(
        self,
        fleet: str,
        wiring: Wiring,
        members: MembersFile,
        signer: Signer,
        tell: Callable[[str, Fact], None],
        *,
        life: int,
        lifetime: float,
    ) -> None:
        """`life` is larger than that of every start before; `lifetime` is of a new certificate, in seconds."""
        self.fleet, self.transport, self.clock, self.background = (
            fleet,
            wiring.transport,
            wiring.clock,
            wiring.background,
        )
        self.put, self.tell, self.lifetime = wiring.put, tell, lifetime
        self.keys = DeviceKeys(members=members)
        self.proofs = DeviceAuthentication(fleet, JOB, self.keys)
        self.speaker = Speaker(signer, fleet, life)
        self.run_id = f"{JOB}-{life}"
        self.renewals = Renewals(fleet)
        self.state = presence.PresenceState()
        self.parts: dict[str, chunks.Assembler] = {}  # what devices are sending
        self.notices = Notices(FleetFolder(fleet), members)
        self.members_at = self.renew_at = self.notices_at = self.clock.now()
        self.labelled, self.labels = Members(), dict[str, dict[str, str]]()  # the members that these labels are of
        self.refused: dict[str, int] = {}  # messages that could not be used, by code

    # ---- the reactor's part --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._look_at_members(self.clock.now())
        self.transport.start(self.put)

    def deadline(self) -> float | None:
        """When it wants to be woken."""
        due = [self.members_at, self.renew_at, self.notices_at, self.state.grace_ends]
        return min(moment for moment in due if moment is not None)

    def handle(self, event: Any) -> None:
        """What follows from an event of this fleet's transport or background."""
        now = self.clock.now()
        match event:
            case ConnectionMade():
                self._feed(BrokerBack(now))
                self.transport.subscribe(topics.presence(self.fleet, "+"), topics.up(self.fleet, JOB, "+"))
            case ConnectionLost():
                self._feed(BrokerGone(now, str(event)))
            case Message():
                self._message(event, now)
            case Undelivered(topic, reason):
                log.warning("the broker refused a message topic=%s reason=%s", topic, reason)
            case vocabulary.CertificateSigned(device=device, certificate=certificate):
                self.say(device, Renewed(certificate=certificate))
                self._told(events.Certified(device))
                self._tell_expiry(device)
            case vocabulary.Misbehaved(code=code, reason=reason):
                self._count(code, reason)

    def woken(self) -> None:
        """Do what is due by the clock."""
        now = self.clock.now()
        if self.state.grace_ends is not None and now >= self.state.grace_ends:
            self._feed(GraceOver(now))
        if now >= self.members_at:
            self.members_at = now + MEMBERS
            self._look_at_members(now)
        if now >= self.renew_at:
            self.renew_at = now + RENEW
            self.offer_renewals()
        if now >= self.notices_at:
            self.notices_at = now + NOTICES
            present = [(name, self.state.devices[name].moves) for name in self.state.online]
            for device, notice in self.notices.due(present, now, Renew(job=JOB, run_id=self.run_id)):
                self.say(device, notice)

    def close(self) -> None:
        """Let go of broker and background."""
        self.background.close()
        self.transport.close()

    # ---- what it says ----------------------------------------------------------------------------------------------

    def say(self, device: str, message: ToDevice) -> None:
        """One message to one device, signed with the fleet's key."""
        data = frame(message)
        for part in chunks.split(data, chunks.digest(data)):
            sealed = self.speaker.seal("down", part, job=JOB, run_id=self.run_id, device=device)
            self.transport.publish(topics.down(self.fleet, JOB, device), sealed)

    def offer_renewals(self) -> None:
        """Let devices ask for a new certificate, if one that is there needs it."""
        if not any(self._ends_soon(name) for name in self.state.online):
            return
        state = JobState(job=JOB, run_id=self.run_id, phase="gathering", round=0)
        payload = state.model_dump_json().encode()
        sealed = self.speaker.seal("state", payload, job=JOB, run_id=self.run_id)
        self.transport.publish(topics.state(self.fleet, JOB), sealed)

    # ---- what comes in ---------------------------------------------------------------------------------------------

    def _message(self, message: Message, now: float) -> None:
        try:
            match topics.parts(message.topic):
                case ("presence", device) if message.payload:
                    self._presence(device, message, now)
                case (job, "dev", device, "up") if job == JOB:
                    self._up(device, message, now)
        except WireError as error:
            self._count(error.code, str(error))

    def _presence(self, device: str, message: Message, now: float) -> None:
        envelope = self.proofs.of_presence(device, message.payload)
        if not self.keys.admits(device, envelope.key):
            if not self.keys.is_member(device):  # any client may make names up: they get no row
                raise Unproven("device.unknown", f"'{device}' is not a member: {self.keys.remedy(device)}")
            self._feed(DeviceBarred(now, device, "device.key", f"its key is another one: {self.keys.remedy(device)}"))
            return
        status = read_json(Presence, envelope.payload)
        if status.protocol != topics.PROTOCOL:
            why = f"it speaks protocol {status.protocol}, this server {topics.PROTOCOL}: install the same version"
            self._feed(DeviceBarred(now, device, "protocol.version", why, status.version, status.host))
            return
        news = self.proofs.is_news(device, envelope, status)
        if news is False or (news is None and device not in self.state.unheard):
            return
        self.proofs.meet(device)
        signs = status.vitals
        vitals = events.Vitals(device, **signs.model_dump()) if signs and not message.retained else None
        about = DeviceStatus(
            status.online,
            status.samples,
            status.host,
            status.version,
            status.back_end,
            status.resting,
            status.trouble,
            status.samples_from,
            status.arch,
            status.memory_mb,
            status.moves,
        )
        self._feed(DeviceAnnounced(now, device, about, vitals))
        if status.online:
            self._tell_expiry(device)
            if self._ends_soon(device):
                self.renew_at = now

    def _up(self, device: str, message: Message, now: float) -> None:
        envelope = self.proofs.of_message(device, message.payload)
        if envelope.run_id == topics.DIAGNOSIS:  # of a question, whose asker hears it too
            return
        if envelope.run_id != self.run_id:
            raise Unproven("message.run", f"'{device}' answered another start of this server")
        whole = self.parts.setdefault(device, chunks.Assembler(SMALL)).add(envelope.payload)
        self.proofs.fits(device, envelope.payload)
        if whole is None:
            return
        status = read(TO_COORDINATOR, whole[1], limit=0)[0]
        if isinstance(status, Renewal):
            self.background.start(self.renewals.work(device, status.request, now))

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _look_at_members(self, now: float) -> None:
        devices, expired = self.keys.enrolled()
        if devices != self.state.members or {name for name, _, _ in expired} != self.state.expired:
            self._feed(FleetMembersRead(now, devices, expired))
        self._look_at_labels()

    def _look_at_labels(self) -> None:
        """Tell the labels of devices that have other ones than before."""
        current = self.keys.members.now() if self.keys.members is not None else Members()
        if current is self.labelled:
            return
        self.labelled = current
        labels = {name: member.known_as for name, member in current.active().items() if not member.hosts}
        changed = {name: of_device for name, of_device in labels.items() if of_device != self.labels.get(name, {})}
        self.labels = labels
        if changed:
            self._told(events.Labelled(changed))

    def _feed(self, event: presence.PresenceEvent) -> None:
        self.state, facts = presence.step(self.state, event)
        for fact in facts:
            self._told(fact)

    def _told(self, fact: Fact) -> None:
        self.tell(self.fleet, replace(fact, at=self.clock.wall()))

    def _ends(self, device: str) -> float | None:
        """Until when it can show a certificate, by the wall clock."""
        members = self.keys.members
        member = members.now().members.get(device) if members is not None else None
        return member.expires.timestamp() if member is not None and member.expires is not None else None

    def _ends_soon(self, device: str) -> bool:
        ends = self._ends(device)
        return ends is not None and ends - self.clock.wall() < self.lifetime * SOON

    def _tell_expiry(self, device: str) -> None:
        if (ends := self._ends(device)) is not None:
            self._told(events.Certificate(device, ends))

    def _count(self, code: str, reason: str) -> None:
        """Count a message that cannot be used; log the first of each kind."""
        if code not in self.refused:
            log.warning("ignored a message fleet=%s code=%s why=%s", self.fleet, code, reason)
        self.refused[code] = self.refused.get(code, 0) + 1
