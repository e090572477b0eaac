"""Fetching one published model from the broker: its manifest and its retained chunks, group by group."""

from dataclasses import dataclass, field

from device_agent.durable.trust import RequestedModel, Trust
from edgefl.base.errors import WireError
from edgefl.wire import topics
from edgefl.wire.chunks import Assembler, count, read
from edgefl.wire.messages import Manifest


@dataclass(slots=True)
class Download:
    """What has come so far of the model that is wanted."""

    fleet: str
    target: RequestedModel
    trust: Trust
    limit: int
    manifest: Manifest | None = None
    signed: bytes = b""  # the same as it came
    touched: float = 0.0  # when something last came, or was asked for again
    progressed: float = 0.0  # when something last came
    refused: int = 0  # manifests that were not believed
    received: int = 0
    _group: int = 0
    _assembler: Assembler = field(init=False)
    _whole: tuple[bytes, bytes | bytearray] | None = None

    def __post_init__(self) -> None:
        self._assembler = Assembler(self.limit, transfers=1)

    @property
    def id(self) -> str:
        return self.target.id

    @property
    def frame(self) -> bytes | bytearray | None:
        """The model's bytes, once they have come and are what the manifest says."""
        if self._whole is None or self.manifest is None or self._whole[0].hex() != self.manifest.digest:
            return None
        return self._whole[1]

    def filters(self) -> tuple[str, ...]:
        """What to subscribe to now: the manifest, and one group of chunks."""
        manifest = topics.manifest(self.fleet, self.target.job, self.id)
        return manifest, topics.group(self.fleet, self.target.job, self.id, self._group)

    def add(self, last: str, payload: bytes | memoryview) -> bool:
        """Take in one message, whose topic ends in `last`; True when another group must be asked for."""
        if not payload:
            return False  # a retained chunk being cleared away
        if last == "manifest":
            self._believe(payload)
            return bool(self._assembler.underway()) and self._next_group()  # chunks may have been faster
        known_as = self.manifest.digest if self.manifest else self.id
        part = read(payload, self.limit)
        if not part.digest.hex().startswith(known_as):
            raise WireError("wire.corrupt", f"model {self.id} came with chunks of another one")
        strange = part.size != self.manifest.size if self.manifest else part.index >= topics.GROUP
        if strange:
            raise WireError("wire.too_large", f"model {self.id} came with a chunk that was not asked for")
        self.received += len(payload)
        whole = self._assembler.add(payload)
        if whole is not None:
            self._whole = whole
            return False
        return self._next_group()

    def _believe(self, payload: bytes | memoryview) -> None:
        """Take the manifest in, if it is the coordinator's; one that was believed stays, whatever comes later."""
        if self.manifest is not None:
            return
        try:
            manifest = self.trust.manifest(bytes(payload), self.target)
            if manifest.size > self.limit:
                limit = f"agent.limit_mb = {self.limit >> 20}"
                why = f"model {self.id} has {manifest.size} bytes, more than {limit}"
                raise WireError("model.too_large", why, free_of_data=True)
        except WireError:
            self.refused += 1
            raise
        self.manifest, self.signed = manifest, bytes(payload)
        for known_as in self._assembler.underway():
            if known_as.hex() != manifest.digest:
                self._assembler.drop(known_as)

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
