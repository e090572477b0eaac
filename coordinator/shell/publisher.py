"""Publishing models: once for all devices, as retained chunks and a retained manifest, cleared when superseded."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from edgefl.job.run.job import Job
from edgefl.learn.algorithms.registry import describe
from edgefl.learn.contract import traits_of
from edgefl.wire import chunks, topics
from edgefl.wire.codecs import described
from edgefl.wire.messages import Graphs, Manifest, RowForm, Shape, frame
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Transport

EXPIRES = 24 * 3600  # seconds: a site that was cut off when a model was cleared does not keep it for ever
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
    """What stands at the broker for all devices to fetch; a model that comes with its task does not, until it must."""

    def __init__(self, transport: Transport, fleet: str, job: Job, *, run_id: str, signer: Signer) -> None:
        self.transport, self.fleet, self.job, self.run_id, self.signer = transport, fleet, job, run_id, signer
        self.manifest = _manifest(job, run_id)
        self.published: OrderedDict[int, Publication] = OrderedDict()
        self.graphs: Publication | None = None
        # Of each model that stands there: how many chunks are in one message, the fewest that it ever was.
        self.together: dict[str, int] = {}
        self.repeated: dict[str, float] = {}  # when a model was last sent again because a device asked
        if job.graphs is not None:
            self.graphs = self._made(0, frame(Graphs(job=job.name), (job.graphs,), compress=True))

    def publish(self, round: int, frame: bytes, in_use: Collection[int] = ()) -> Publication:
        """Publish the model of a round for devices that have to fetch it; clear an older one, unless it is in use."""
        return self.published[round] if round in self.published else self.put(self._made(round, frame), in_use)

    def put(self, publication: Publication, in_use: Collection[int] = ()) -> Publication:
        """The same with a model whose manifest is signed already."""
        first = not self.published
        if self.graphs and first:
            self.send(self.graphs)
        self.published[publication.round] = publication
        # The first one may stand there from an earlier life, and then it is ours to clear; where algorithms look back,
        # it is not known which devices will want it in the next round.
        if first or traits_of(self.job.algorithm).uses_previous:
            self.send(publication)
        for old in [one for one in list(self.published)[:-KEPT] if one not in in_use]:
            self._clear(self.published.pop(old))
        return publication

    def stand(self, publication: Publication) -> None:
        """Publish the model as a retained message if an invited device has to fetch it."""
        if publication.id not in self.together:
            self.send(publication)

    def _made(self, round: int, data: bytes) -> Publication:
        digest = chunks.digest(data)
        return Publication(digest.hex()[:16], round, data, digest, self._manifest(round, data, digest))

    def send(self, publication: Publication, *, whole: bool = True) -> None:
        """Every chunk, then the manifest."""
        frame, digest, together = publication.frame, publication.digest, chunks.together(self.transport.largest())
        self.together[publication.id] = min(together, self.together.get(publication.id, together))
        for index in range(0, chunks.count(len(frame)) if whole else 0, together):
            topic = topics.chunk(self.fleet, self.job.name, publication.id, index)
            self.transport.publish(topic, chunks.parts(frame, digest, index, together), retain=True, expires=EXPIRES)
        topic = topics.manifest(self.fleet, self.job.name, publication.id)
        self.transport.publish(topic, publication.manifest, retain=True, expires=EXPIRES)

    def again(self, id: str | None = None, *, whole: bool = True) -> bool:
        """Publish once more what is known by `id`, or everything: a broker may have lost it."""
        stood = self.together if id is None else (id,)
        publications = [publication for publication in self.all() if publication.id in stood]
        for publication in publications:
            self.send(publication, whole=whole)
        return bool(publications)

    def asked_again(self, id: str, now: float, *, whole: bool) -> bool:
        """A device did not find this: publish it again, but not all of it twice in a few seconds."""
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
        if (together := self.together.pop(old.id, None)) is None:
            return  # it never stood there
        indexes = range(0, chunks.count(len(old.frame)), together)
        wipe(self.transport, self.fleet, self.job.name, old.id, indexes)

    def _manifest(self, round: int, data: bytes, digest: bytes) -> bytes:
        about = {"round": round, "digest": digest.hex(), "size": len(data)}
        return self.signer.sign(self.manifest.model_copy(update=about).model_dump_json().encode())


def _manifest(job: Job, run_id: str) -> Manifest:
    """What all models of a run have in common."""
    return Manifest(
        job=job.name,
        run_id=run_id,
        round=0,
        digest="0" * 64,
        size=1,
        layout=Shape.of(job.model.layout),
        algorithm=describe(job.algorithm),
        network=job.run.task.model,
        sample=job.sample,
        classes=job.classes,
        loss=job.run.task.loss,
        codec=described(job.up),
        down=described(job.down),
        seed=job.run.run.seed,
        compress=job.run.wire.compress,
        class_names=job.class_names or (),
        targets=job.targets,
        target_names=job.target_names or (),
        rows=None if (form := job.form.described()) is None else RowForm.model_validate(form),
    )


def wipe(transport: Transport, fleet: str, job: str, id: str, indexes: range) -> None:
    """Take a model away; backwards, so that what a kill leaves of it still has its first chunk or its manifest."""
    for index in reversed(indexes):
        transport.publish(topics.chunk(fleet, job, id, index), b"", retain=True)
    transport.publish(topics.manifest(fleet, job, id), b"", retain=True)
