"""Fetching one published model from the broker: its manifest and its retained chunks, group by group."""

from dataclasses import dataclass, field

from edgefl.errors import WireError
from edgefl.protocol import topics
from edgefl.protocol.chunks import Assembler, count
from edgefl.protocol.messages import Manifest, read_json


@dataclass(slots=True)
class Download:
    """What has come so far of the model that is known by `id`."""

    fleet: str
    job: str
    id: str
    limit: int
    manifest: Manifest | None = None
    frame: bytes | bytearray | None = None
    touched: float = 0.0  # when something last came
    received: int = 0
    _group: int = 0
    _assembler: Assembler = field(init=False)

    def __post_init__(self) -> None:
        self._assembler = Assembler(self.limit, transfers=1)

    def filters(self) -> tuple[str, ...]:
        """What to subscribe to now: the manifest, and one group of chunks."""
        manifest = topics.manifest(self.fleet, self.job, self.id)
        return manifest, topics.group(self.fleet, self.job, self.id, self._group)

    def add(self, last: str, payload: bytes) -> bool:
        """Take in one message, whose topic ends in `last`; True when another group must be asked for."""
        if not payload:
            return False  # a retained chunk being cleared away
        if last == "manifest":
            self.manifest = read_json(Manifest, payload)
            return False
        self.received += len(payload)
        whole = self._assembler.add(payload)
        if whole is not None:
            if not whole[0].hex().startswith(self.id):
                raise WireError("wire.corrupt", f"model {self.id} came with chunks of another one")
            self.frame = whole[1]
            return False
        return self._next_group()

    def _next_group(self) -> bool:
        """Whether the group in hand is complete; then the next one is in hand."""
        (underway,) = self._assembler.underway()
        first_missing = self._assembler.missing(underway)[0]
        if self.manifest is None or first_missing >= count(self.manifest.size):
            return False
        if first_missing // topics.GROUP <= self._group:
            return False
        self._group = first_missing // topics.GROUP
        return True
