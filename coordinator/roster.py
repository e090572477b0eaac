"""Who is there: what the coordinator knows about each device, and who may call itself by a name."""

from dataclasses import dataclass, field

from edgefl.errors import WireError
from edgefl.protocol.chunks import Assembler
from edgefl.protocol.messages import SMALL, Presence

DEVICES = 10_000  # whose names are kept


@dataclass(slots=True)
class Device:
    """One device as the coordinator sees it."""

    id: str
    presence: Presence
    assembler: Assembler
    live: bool = False  # heard from in this life of the coordinator, not only read from a retained message
    doing: str = "idle"
    seconds_per_step: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    touched: float = 0.0  # when its last chunk came
    reminders: dict[bytes, int] = field(default_factory=dict)  # how often each transfer was asked for
    offered: tuple[bytes, float] = (b"", 0.0)  # the answer it was last told to send, and when
    key: str = ""  # who signed its presence
    announced: int = -1  # the counter of the last presence that said it is there
    heard: int = -1  # the counter of the last thing it said
    series: tuple[str, bytes, bytes] = (
        "",
        b"",
        b"",
    )  # of a frame in many chunks: run, signature, what is signed
    indexes: set[int] = field(default_factory=set)  # of its chunks that have come

    @property
    def online(self) -> bool:
        return self.presence.online


@dataclass(slots=True)
class Roster:
    """All devices by id."""

    limit: int = SMALL  # bytes of a frame
    devices: dict[str, Device] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.devices)

    def claim(self, id: str, new: Presence, *, retained: bool) -> str | None:
        """Take in a presence message: None if it stands, else why this one may not call itself `id`.

        The same installation may always come again: it has restarted. Another one may take the name only of a
        device that is offline, or that nobody has heard of since the coordinator started.
        """
        known = self.devices.get(id)
        if known is None and len(self.devices) >= DEVICES:
            raise WireError("device.too_many", f"{DEVICES} devices are known, '{id}' would be one more")
        if known is None:
            self.devices[id] = Device(id, new, Assembler(self.limit), live=not retained)
            return None
        same = known.presence.installation == new.installation
        if same and new.birth < known.presence.birth:
            return "stale"  # the last will of an earlier life
        if not same and not new.online:
            return "stale"  # the last will of one that was refused, or of a former holder of the name
        if taken := self.taken(id, new):
            return taken
        known.presence = new
        known.live = known.live or not retained
        return None

    def taken(self, id: str, new: Presence) -> str | None:
        """Why another installation may not have this name now: its device is here."""
        known = self.devices.get(id)
        if known is None or known.presence.installation == new.installation or not (known.online and known.live):
            return None
        return (
            f"device '{id}' is already connected from host '{known.presence.host}'; this one is on host"
            f" '{new.host}': give each device its own agent.id"
        )
