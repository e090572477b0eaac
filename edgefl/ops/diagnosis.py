"""Ask a device how it is: questions of the fleet's operator, signed with the fleet's key, and their answers.

    presence of the device ─▶ does it answer? ─▶ request, again after half of the time ─▶ reply, signed by the device

`Asker` is what any process needs that has a transport of its own; `ask` is one question from a command. A question
counts once at a device, by its id. What is said on the wire: `docs/protocol.md`.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from coordinator.shell.device_keys import DeviceKeys
from edgefl.base.errors import ConfigError, EdgeflError, RunError, StoreError, WireError, nearest
from edgefl.fleet import last_seen
from edgefl.fleet.folder import FleetFolder
from edgefl.fleet.members import MembersFile
from edgefl.system import portable
from edgefl.system.store import make_folder, write_atomically
from edgefl.wire import chunks, key_file, signed, topics
from edgefl.wire.address import Address, parse, reachable
from edgefl.wire.messages import REPLY, TO_SERVER, DeviceRequest, Presence, Reply, frame, read, read_json
from edgefl.wire.opening import open_transport
from edgefl.wire.signed import SigningContext, Speaker, life_number
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionLost, ConnectionMade, Message, Transport, TransportEvent, Undelivered

GATEWAY = "gateway"  # what a gateway's presence has in place of an engine
BROKER = "mqtt://localhost:1883"  # of a fleet without identities, as in an agent file


class Unanswered(RunError):  # noqa: N818 - what it is, as Interrupted
    """The device is away, does not answer questions, or did not answer this one."""


class Lives:
    """The numbers of those who ask with one key, each larger than all before: one file for all processes."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self.path, self.wall = path, wall

    def next(self) -> int:
        """Return the next one, which is on disk."""
        try:
            make_folder(self.path.parent)
            with self.path.with_name(f".{self.path.name}.lock").open("a+") as file:
                portable.close_to_others(file.fileno())
                portable.lock(file.fileno())
                before = self.path.read_text(encoding="ascii", errors="replace") if self.path.exists() else ""
                number = life_number(self.wall(), int(before) if before.isdecimal() and len(before) < 11 else 0)
                write_atomically(self.path, f"{number}".encode())
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be changed ({error.strerror})") from None
        return number


@dataclass(frozen=True, slots=True)
class Question:
    """What one device is asked."""

    device: str
    request: DeviceRequest


@dataclass(frozen=True, slots=True)
class PresenceHeard:
    """What stands at the broker of a device; it has signed it."""

    device: str
    presence: Presence


@dataclass(frozen=True, slots=True)
class ReplyHeard:
    """The answer to a question that is open no longer."""

    question: Question
    reply: Reply


class Asker:
    """Asks devices of one fleet; its owner publishes what it makes, and hands it what comes."""

    def __init__(self, fleet: str, signer: Signer, keys: DeviceKeys, lives: Lives) -> None:
        self.fleet, self.signer, self.keys, self.lives = fleet, signer, keys, lives
        self.open: dict[str, Question] = {}
        self.first_keys: dict[str, str] = {}  # of devices without a written key: the first that signed

    def filters(self, device: str = "+") -> tuple[str, ...]:
        """Return what to subscribe to."""
        return topics.presence(self.fleet, device), topics.up(self.fleet, topics.SERVER, device)

    def question(self, device: str, what: str, by: str) -> Question:
        """Return a new question, which is open until its answer comes or it is given up."""
        request = DeviceRequest(id=uuid.uuid4().hex, what=what, by=by[:255])
        self.open[request.id] = question = Question(device, request)
        return question

    def message(self, question: Question) -> tuple[str, bytes]:
        """Return the topic and the bytes that ask it; each time with a newer counter."""
        data = frame(question.request)
        (part,) = chunks.split(data, chunks.digest(data))
        place = {"job": topics.SERVER, "run_id": topics.DIAGNOSIS, "device": question.device}
        sealed = Speaker(self.signer, self.fleet, self.lives.next()).seal("down", part, **place)
        return topics.down(self.fleet, topics.SERVER, question.device), sealed

    def give_up(self, question: Question) -> None:
        """Pass over its answer from now on."""
        self.open.pop(question.request.id, None)

    def heard(self, message: Message) -> PresenceHeard | ReplyHeard | None:
        """Return what a device says, None if it answers no open question; raise a WireError if it did not sign it."""
        match topics.parts(message.topic):
            case ("presence", device) if message.payload:
                envelope = signed.opened(message.payload)
                envelope.prove(SigningContext("presence", self.fleet, device=device))
                self._believe(device, envelope.key)
                return PresenceHeard(device, read_json(Presence, envelope.payload))
            case (topics.SERVER, "dev", device, "up"):
                return self._reply(device, message.payload)
        return None

    def _reply(self, device: str, payload: bytes | memoryview) -> ReplyHeard | None:
        envelope = signed.opened(payload)
        envelope.prove(SigningContext("up", self.fleet, topics.SERVER, topics.DIAGNOSIS, device))
        self._believe(device, envelope.key)
        whole = chunks.Assembler(REPLY).add(envelope.payload)
        if whole is None:
            raise WireError("wire.too_large", f"a reply in many chunks; the limit is {REPLY} bytes")
        reply = read(TO_SERVER, whole[1], limit=0)[0]
        question = self.open.get(reply.id) if isinstance(reply, Reply) else None
        if not isinstance(reply, Reply) or question is None or question.device != device:
            return None
        del self.open[reply.id]
        return ReplyHeard(question, reply)

    def _believe(self, device: str, key: str) -> None:
        known = self.keys.of(device) or self.first_keys.setdefault(device, key)
        if key != known:
            raise WireError("message.key", f"signed by {key}, but the key of '{device}' is {known}")


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """The way to the devices of one fleet from this machine."""

    folder: FleetFolder
    address: Address
    asker: Asker


def line(fleet: str, broker: str | None = None) -> FleetAccess:
    """Return the way to the devices of a fleet whose key is on this machine; `broker` where it has no identities."""
    folder = FleetFolder(fleet)
    if not folder.signing_key.exists():
        raise ConfigError(
            f"the key of fleet '{fleet}' is not on this machine ({folder.signing_key}): ask on its server, whose key"
            " devices trust"
        )
    secured = folder.exists()
    if secured and broker is not None:
        raise ConfigError(f"--broker: the broker of fleet '{fleet}' is on this machine: leave it out")
    address = folder.here if secured else parse(broker or BROKER, "--broker")
    if not address.local:
        raise ConfigError(f"--broker {address}: a fleet without identities is asked on its broker's own machine only")
    reachable(address)
    signer = key_file.opened(folder.signing_key, "the coordinator's", elsewhere="restore it", lost="restore it")
    members = MembersFile(folder.members) if secured else None
    keys = DeviceKeys(folder.signing_key.with_suffix(".devices"), members=members)
    return FleetAccess(folder, address, Asker(fleet, signer, keys, Lives(folder.questions)))


def ask(way: FleetAccess, device: str, what: str, by: str, timeout: float) -> Reply:
    """Return what the device answers; raise `Unanswered` if nothing comes in these seconds."""
    topics.check_name("device", device)
    members = way.asker.keys.members
    if members is not None and way.asker.keys.of(device) is None:
        known = [name for name, member in members.now().active().items() if not member.hosts]
        hint = "" if device in known or not known else f" ({nearest(device, known)})"
        raise ConfigError(f"'{device}'{hint}: {way.asker.keys.remedy(device)}")
    events: SimpleQueue[TransportEvent] = SimpleQueue()
    transport = open_transport(way.address, "asks")
    transport.start(events.put)
    try:
        return _Conversation(way, transport, device, what, by).play(events, timeout)
    finally:
        transport.close()


class _Conversation:
    """One question, from the first connection to the answer."""

    def __init__(self, way: FleetAccess, transport: Transport, device: str, what: str, by: str) -> None:
        self.way, self.transport, self.asker, self.device = way, transport, way.asker, device
        self.question = way.asker.question(device, what, by)
        self.presence: Presence | None = None
        self.odd: EdgeflError | None = None  # what came and was not believed

    def play(self, events: "SimpleQueue[TransportEvent]", timeout: float) -> Reply:
        end = time.monotonic() + timeout
        again = end - timeout / 2
        while (now := time.monotonic()) < end:
            if self.presence is not None and now >= again:
                self._say()
                again = end
            try:
                event = events.get(timeout=max(0.0, min(again if now < again else end, end) - now))
            except Empty:
                continue
            if (reply := self._handle(event)) is not None:
                return reply
        raise self._unanswered(timeout)

    def _handle(self, event: TransportEvent) -> Reply | None:
        match event:
            case ConnectionMade():
                self.transport.subscribe(*self.asker.filters(self.device))
            case ConnectionLost() if not event.passing:
                raise ConfigError(f"broker {self.way.address}: {event}")
            case Undelivered(topic, reason):
                raise Unanswered(f"the broker refused the question topic={topic}: {reason}")
            case Message():
                try:
                    news = self.asker.heard(event)
                except WireError as error:
                    self.odd = error
                    return None
                if isinstance(news, ReplyHeard):
                    return news.reply
                if isinstance(news, PresenceHeard) and self.presence is None:
                    self._meet(news.presence)
        return None

    def _meet(self, presence: Presence) -> None:
        runs = presence.online or presence.resting or presence.trouble
        if not runs:
            raise Unanswered(f"'{self.device}' is away{self._since()}")
        if presence.back_end == GATEWAY:
            raise Unanswered(f"'{self.device}' is a gateway, which answers no questions: ask the devices of its site")
        if not presence.answers:
            version = f"edgefl {presence.version}" if presence.version else "a version of edgefl"
            raise Unanswered(
                f"'{self.device}' runs {version} that answers no questions: install the version of this machine there"
            )
        self.presence = presence
        self._say()

    def _say(self) -> None:
        topic, payload = self.asker.message(self.question)
        self.transport.publish(topic, payload)

    def _since(self) -> str:
        seen = last_seen.read(self.way.folder.seen).get(self.device)
        if seen is None:
            return ""
        return f": last seen {seen.at:%Y-%m-%d %H:%M} UTC{f' ({seen.reason})' if seen.reason else ''}"

    def _unanswered(self, timeout: float) -> Unanswered:
        self.asker.give_up(self.question)
        if self.odd is not None:
            return Unanswered(f"what came in the name of '{self.device}' is not its own: {self.odd}")
        if self.presence is None:
            what = f"has not announced itself at {self.way.address} within {timeout:g} s{self._since()}"
            return Unanswered(f"'{self.device}' {what}: is its agent running?")
        return Unanswered(
            f"'{self.device}' is there, but did not answer within {timeout:g} s: its line is slow (--timeout), or it"
            " trusts another key; its log says so"
        )
