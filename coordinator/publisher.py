"""Publishing models: once for everybody, as retained chunks and a retained manifest, cleared when superseded."""

from collections import OrderedDict
from dataclasses import dataclass

from edgefl.algorithms.shelf import describe
from edgefl.job import Job
from edgefl.protocol import chunks, topics
from edgefl.protocol.messages import Manifest, Shape
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

    def publish(self, round: int, params: Vector, extra: State) -> Publication:
        """Put the model of a round at the broker; again is the same."""
        if round in self.published:
            return self.published[round]
        wire = self.job.run.wire
        frame = pack_broadcast(self.job.name, round, params, extra, self.job.codec, compress=wire.compress)
        digest = chunks.digest(frame)
        made = Publication(digest.hex()[:16], round, frame, digest, self._manifest(round, frame, digest))
        self.published[round] = made
        self.send(made)
        while len(self.published) > KEPT:
            self._clear(self.published.popitem(last=False)[1])
        return made

    def send(self, made: Publication) -> None:
        """Every chunk, then the manifest."""
        for index, part in enumerate(chunks.split(made.frame, made.digest)):
            self.transport.publish(topics.chunk(self.fleet, self.job.name, made.id, index), part, retain=True)
        self.transport.publish(topics.manifest(self.fleet, self.job.name, made.id), made.manifest, retain=True)

    def again(self, id: str | None = None) -> bool:
        """Publish once more what is known by `id`, or everything: a broker may have lost it."""
        wanted = [made for made in self.published.values() if id in (None, made.id)]
        for made in wanted:
            self.send(made)
        return bool(wanted)

    def clear(self) -> None:
        """Leave nothing behind at the broker."""
        while self.published:
            self._clear(self.published.popitem()[1])

    def _clear(self, old: Publication) -> None:
        for index in range(chunks.count(len(old.frame))):
            self.transport.publish(topics.chunk(self.fleet, self.job.name, old.id, index), b"", retain=True)
        self.transport.publish(topics.manifest(self.fleet, self.job.name, old.id), b"", retain=True)

    def _manifest(self, round: int, frame: bytes, digest: bytes) -> bytes:
        job = self.job
        manifest = Manifest(
            job=job.name,
            round=round,
            digest=digest.hex(),
            size=len(frame),
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
