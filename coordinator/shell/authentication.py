"""Who said it: the key behind every message, and whether it was said before.

A device has proven its name when it signed with the key that the name belongs to (device_keys.py). What any client
could have sent in its name is `Unproven`, and not counted against it.
"""

import logging
from dataclasses import dataclass, field

from coordinator.shell.device_keys import DeviceKeys
from edgefl.base.errors import StoreError
from edgefl.wire import chunks, signed, topics
from edgefl.wire.messages import Presence
from edgefl.wire.signed import Envelope, SigningContext, Unproven

log = logging.getLogger(__name__)

QUOTED = 64  # characters of a name from outside, which may be as long as a topic


@dataclass(slots=True)
class ProvenDevice:
    """A device that has proven its name."""

    key: str
    presence: Presence
    announced: int = -1  # the counter of the last presence that said it is there
    heard: int = -1  # the counter of the last thing it said
    series: tuple[str, bytes, bytes] = ("", b"", b"")  # of a frame in many chunks: run, signature, what is signed
    indexes: set[int] = field(default_factory=set)  # of its chunks that have come
    copied: bool = False  # another agent with its keys was told of


class DeviceAuthentication:
    """Of one run's devices."""

    def __init__(self, fleet: str, job: str, keys: DeviceKeys) -> None:
        self.fleet, self.job, self.keys = fleet, job, keys
        self.known: dict[str, ProvenDevice] = {}
        self._said: dict[str, tuple[Envelope, Presence]] = {}  # the last presence of each that may take part

    def of_presence(self, id: str, message: bytes | memoryview) -> Envelope:
        """Return what the sender says of itself; its right to the name is checked elsewhere."""
        if not topics.is_name(id):
            raise Unproven("device.name", f"'{id[:QUOTED]}' cannot be the name of a device")
        envelope = signed.opened(message)
        envelope.prove(SigningContext("presence", self.fleet, device=id))
        return envelope

    def of_message(self, id: str, message: bytes | memoryview) -> Envelope:
        """What this very device says, and has not said before."""
        device = self.known.get(id)
        if device is None:
            raise Unproven("device.unknown", f"device '{id[:QUOTED]}' has not announced itself")
        envelope = signed.opened(message)
        if self.keys.members is not None and not self.keys.members.still(id, device.key):
            raise Unproven("device.revoked", f"'{id}' is no longer a member of this fleet")
        if envelope.key != device.key:
            raise Unproven("message.signature", f"a message in the name of '{id}' has the key of another device")
        common = chunks.series(envelope.payload)
        series = envelope.run_id, envelope.signature, common or b""
        if common is None or envelope.counter != device.heard or series != device.series:
            envelope.prove(SigningContext("up", self.fleet, self.job, envelope.run_id, id))
            if envelope.counter <= device.heard:
                raise Unproven("message.replayed", f"an old message of '{id}' came again")
            device.heard, device.series = envelope.counter, series
            device.indexes.clear()
        if common is not None and chunks.indexes(envelope.payload)[0] in device.indexes:
            raise Unproven("message.replayed", f"an old message of '{id}' came again")
        return envelope

    def fits(self, id: str, part: bytes | memoryview) -> None:
        """Chunks were taken in, and do not come again; of those that fit there are not more than the frame has."""
        self.known[id].indexes.update(chunks.indexes(part))

    def is_news(self, id: str, envelope: Envelope, presence: Presence) -> bool | None:
        """Whether a presence is new; None: it is the last one again, which a broker may well say."""
        known = self.known.get(id)
        self._said[id] = envelope, presence
        if known is None or known.key != envelope.key:
            return True
        if not presence.online:  # a last will was signed long ago, and counts once
            runs = known.presence.online or (_rests(known.presence) and not _rests(presence))
            return envelope.counter > known.heard or (runs and presence.birth >= known.presence.birth)
        if envelope.counter > known.announced:
            return True
        if (presence.installation, presence.host) != (known.presence.installation, known.presence.host):
            return self._copied(id, known, presence)
        if envelope.counter < known.announced or not known.presence.online:
            raise Unproven("message.replayed", f"an old presence of '{id}' came again")
        return None

    def _copied(self, id: str, known: ProvenDevice, presence: Presence) -> bool:
        """A key has one agent, whose counter only grows: this is another one, and that is said once."""
        if known.copied:
            return False
        known.copied = True
        raise Unproven(
            "device.copied",
            f"two agents have the keys of '{id}', on hosts '{known.presence.host}' and '{presence.host}', or it was"
            " installed a second time: the coordinator listens to only one of them. Stop the other one; another device"
            f" needs a kit of its own (`edgefl fleet add NAME`), and if neither should be there,"
            f" `edgefl fleet add {id} --replace`",
        )

    def unwelcome(self) -> list[str]:
        """Return the devices with a proven name that is no longer theirs: the fleet's members have changed."""
        if self.keys.members is None:
            return []
        return [id for id, device in self.known.items() if not self.keys.admits(id, device.key)]

    def meet(self, id: str) -> None:
        """The device of this key is the one of this name, from now on."""
        envelope, presence = self._said.pop(id)
        device = self.known.get(id)
        if device is None or device.key != envelope.key:
            device = self.known[id] = ProvenDevice(envelope.key, presence)
        device.presence = presence
        if presence.online:
            device.announced = envelope.counter
        device.heard = max(device.heard, envelope.counter)
        try:
            self.keys.pin(id, envelope.key)
        except StoreError as error:  # it holds for this life of the coordinator
            log.warning("the key of a device is not pinned device=%s why=%s", id, error)


def _rests(presence: Presence) -> bool:
    """Whether its agent runs though the device is not there: a last will gives no reason."""
    return not presence.online and bool(presence.resting or presence.trouble)
