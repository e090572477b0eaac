"""Publishing models: once for everybody, as retained chunks and a retained manifest, cleared when superseded."""

from collections import OrderedDict
from dataclasses import dataclass

from edgefl.algorithms.shelf import describe
from edgefl.job import Job
from edgefl.protocol import chunks, topics
from edgefl.protocol.messages import Graphs, Manifest, Shape, frame
from edgefl.protocol.transport import Transport
from edgefl.vector import State, Vector
from edgefl.work import pack_broadcast

KEPT = 2  # the current model, and the one before it for devices that look back


@dataclass(frozen=True, slots=True)
class Publication:
    """A model as it was published."""

    id: str
    round: int
    frame: bytes
    digest: bytes
    manifest: bytes


class Publisher:
    """What stands at the broker for everybody to fetch."""

    def __init__(self, transport: Transport, fleet: str, job: Job) -> None:
        self.transport, self.fleet, self.job = transport, fleet, job
        self.algorithm = describe(job.algorithm)
        self.shape = Shape.of(job.model.layout)
        self.published: OrderedDict[int, Publication] = OrderedDict()
        self.graphs: Publication | None = None
        if job.graphs is not None:
            self.graphs = self._publish(0, frame(Graphs(job=job.name), (job.graphs,), compress=True))

    def publish(self, round: int, params: Vector, extra: State) -> Publication:
        """Put the model of a round at the broker; again is the same."""
        if round in self.published:
            return self.published[round]
        wire = self.job.run.wire
        packed = pack_broadcast(self.job.name, round, params, extra, self.job.codec, compress=wire.compress)
        made = self.published[round] = self._publish(round, packed)
        while len(self.published) > KEPT:
            self._clear(self.published.popitem(last=False)[1])
        return made

    def _publish(self, round: int, data: bytes) -> Publication:
        digest = chunks.digest(data)
        made = Publication(digest.hex()[:16], round, data, digest, self._manifest(round, data, digest))
        self.send(made)
        return made

    def send(self, made: Publication) -> None:
        """Every chunk, then the manifest."""
        for index, part in enumerate(chunks.split(made.frame, made.digest)):
            self.transport.publish(topics.chunk(self.fleet, self.job.name, made.id, index), part, retain=True)
        self.transport.publish(topics.manifest(self.fleet, self.job.name, made.id), made.manifest, retain=True)

    def again(self, id: str | None = None) -> bool:
        """Publish once more what is known by `id`, or everything: a broker may have lost it."""
        everything = [*([self.graphs] if self.graphs else []), *self.published.values()]
        wanted = [made for made in everything if id in (None, made.id)]
        for made in wanted:
            self.send(made)
        return bool(wanted)

    def clear(self) -> None:
        """Leave nothing behind at the broker."""
        while self.published:
            self._clear(self.published.popitem()[1])
        if self.graphs:
            self._clear(self.graphs)

    def _clear(self, old: Publication) -> None:
        for index in range(chunks.count(len(old.frame))):
            self.transport.publish(topics.chunk(self.fleet, self.job.name, old.id, index), b"", retain=True)
        self.transport.publish(topics.manifest(self.fleet, self.job.name, old.id), b"", retain=True)

    def _manifest(self, round: int, data: bytes, digest: bytes) -> bytes:
        job = self.job
        manifest = Manifest(
            job=job.name,
            round=round,
            digest=digest.hex(),
            size=len(data),
            layout=self.shape,
            algorithm=self.algorithm,
            network=job.run.task.model,
            sample=job.sample,
            classes=job.classes,
            loss=job.run.task.loss,
            codec=job.codec.name,
            seed=job.run.run.seed,
            compress=job.run.wire.compress,
        )
        return manifest.model_dump_json().encode()
