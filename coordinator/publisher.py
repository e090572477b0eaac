"""Publishing models: once for everybody, as retained chunks and a retained manifest, cleared when superseded."""

from collections import OrderedDict
from dataclasses import dataclass

from edgefl.algorithms.registry import describe
from edgefl.protocol import chunks, topics
from edgefl.protocol.codecs import described
from edgefl.protocol.messages import Graphs, Manifest, Shape, frame
from edgefl.protocol.signing import Signer
from edgefl.protocol.transport import Transport
from edgefl.run.job import Job

KEPT = 2  # the current model, and the one before it for devices that look back
AGAIN = 10.0  # seconds between two times that a whole model is published because devices ask for it


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

    def __init__(self, transport: Transport, fleet: str, job: Job, *, run_id: str, signer: Signer) -> None:
        self.transport, self.fleet, self.job, self.run_id, self.signer = transport, fleet, job, run_id, signer
        self.algorithm = describe(job.algorithm)
        self.shape = Shape.of(job.model.layout)
        self.published: OrderedDict[int, Publication] = OrderedDict()
        self.graphs: Publication | None = None
        self.repeated: dict[str, float] = {}  # when a model was last sent again because a device asked
        if job.graphs is not None:
            self.graphs = self._made(0, frame(Graphs(job=job.name), (job.graphs,), compress=True))

    def publish(self, round: int, frame: bytes) -> Publication:
        """Put the model of a round at the broker; again is the same."""
        if round in self.published:
            return self.published[round]
        if self.graphs and not self.published:
            self.send(self.graphs)
        publication = self.published[round] = self._made(round, frame)
        self.send(publication)
        while len(self.published) > KEPT:
            self._clear(self.published.popitem(last=False)[1])
        return publication

    def _made(self, round: int, data: bytes) -> Publication:
        digest = chunks.digest(data)
        return Publication(digest.hex()[:16], round, data, digest, self._manifest(round, data, digest))

    def send(self, publication: Publication, *, whole: bool = True) -> None:
        """Every chunk, then the manifest."""
        for index, part in enumerate(chunks.split(publication.frame, publication.digest) if whole else ()):
            self.transport.publish(topics.chunk(self.fleet, self.job.name, publication.id, index), part, retain=True)
        self.transport.publish(
            topics.manifest(self.fleet, self.job.name, publication.id), publication.manifest, retain=True
        )

    def again(self, id: str | None = None, *, whole: bool = True) -> bool:
        """Publish once more what is known by `id`, or everything: a broker may have lost it."""
        publications = [publication for publication in self.all() if id in (None, publication.id)]
        for publication in publications:
            self.send(publication, whole=whole)
        return bool(publications)

    def asked_again(self, id: str, now: float, *, whole: bool) -> bool:
        """A device did not find this: publish it again, but not all of it twice in a few seconds, whoever asks."""
        if whole and now - self.repeated.get(id, -AGAIN) < AGAIN:
            return False
        sent = self.again(id, whole=whole)
        if sent and whole:
            self.repeated[id] = now
        return sent

    def clear(self) -> None:
        """Leave nothing behind at the broker."""
        for publication in reversed(self.all()):
            self._clear(publication)
        self.published.clear()

    def all(self) -> tuple[Publication, ...]:
        """What stands at the broker and is wanted there."""
        return (*([self.graphs] if self.graphs else []), *self.published.values())

    def _clear(self, old: Publication) -> None:
        self.repeated.pop(old.id, None)
        wipe(self.transport, self.fleet, self.job.name, old.id, chunks.count(len(old.frame)))

    def _manifest(self, round: int, data: bytes, digest: bytes) -> bytes:
        job = self.job
        manifest = Manifest(
            job=job.name,
            run_id=self.run_id,
            round=round,
            digest=digest.hex(),
            size=len(data),
            layout=self.shape,
            algorithm=self.algorithm,
            network=job.run.task.model,
            sample=job.sample,
            classes=job.classes,
            loss=job.run.task.loss,
            codec=described(job.up),
            down=described(job.down),
            seed=job.run.run.seed,
            compress=job.run.wire.compress,
            class_names=job.class_names or (),
        )
        return self.signer.sign(manifest.model_dump_json().encode())


def wipe(transport: Transport, fleet: str, job: str, id: str, count: int) -> None:
    """Take a model away; backwards, so that what a kill leaves of it still has its first chunk or its manifest."""
    for index in reversed(range(count)):
        transport.publish(topics.chunk(fleet, job, id, index), b"", retain=True)
    transport.publish(topics.manifest(fleet, job, id), b"", retain=True)
