"""What a site's coordinator has that is large: models as they were signed for the gateway, and answers to add up.

It asks its devices for what the gateway was asked for: the same model under the coordinator's own signature, the same
budget, the same purpose. What it merges becomes one answer, which the coordinator merges.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from coordinator.decide import vocabulary
from coordinator.decide.rounds import Rounds
from coordinator.decide.vocabulary import Recalled
from coordinator.durable import recovery
from coordinator.durable.answer_store import AnswerStore
from coordinator.durable.journal import Journal
from coordinator.durable.staleness import Policy
from coordinator.shell.artifacts import Artifacts
from coordinator.shell.merging import NextModel, PreparedJob
from coordinator.shell.publisher import Publication
from device_agent.shell.backends import MakeModel
from device_agent.shell.order import Item
from edgefl.base.schedule import Purpose
from edgefl.base.vector import norm
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import Job, RunState
from edgefl.job.run.work import ModelRef, Worker, WorkResult, unpack_broadcast
from edgefl.job.transforms.listing import device_transforms
from edgefl.job.transforms.transform import AnswerSet, CoordinatorContext, at_coordinator
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Task, Update
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import loss
from edgefl.learn.tasks.kinds import checked
from edgefl.system.background import Put, Work
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk
from edgefl.wire import chunks
from edgefl.wire.codecs import codec
from edgefl.wire.frames import Unseal
from edgefl.wire.messages import Assignment
from gateway.errand import Errand
from gateway.sums import combined


@dataclass(frozen=True, slots=True)
class SumMade:
    """A round of the site is closed: its answers as one."""

    round: int
    update: Update


class SiteArtifacts(Artifacts):
    """Those of one run at the site. Before anything else it is told what the gateway was asked for (`take`)."""

    def __init__(self, *about: Any, errand: Errand, **more: Any) -> None:  # Any: as those of Artifacts
        super().__init__(*about, **more)
        self.errand = errand
        self.next_model = next_model(errand)

    def take(self, errand: Errand) -> vocabulary.PublishedModel:
        """From now on this is asked for; its model as the core knows it."""
        self.errand, self.next_model = errand, next_model(errand)
        before = len(errand.previous.frame) if errand.previous else 0
        return vocabulary.PublishedModel(errand.task.round, len(errand.item.frame), before)

    def prepared(self, event: PreparedJob, now: float) -> vocabulary.Prepared:
        told = super().prepared(event, now)
        if self.publisher and self.errand.graphs:
            self.publisher.graphs = publication(0, self.errand.graphs)
        return told

    def publish(self, in_use: Collection[int] = ()) -> tuple[str, ...]:
        """Put the models at the site's broker as they came: the coordinator's signature stays theirs."""
        publisher, errand = self._here()[1], self.errand
        previous = [(errand.task.round - 1, errand.previous)] if errand.previous else []
        for round, item in (*previous, (errand.task.round, errand.item)):
            if round not in publisher.published:
                publisher.put(publication(round, item), in_use)
        if errand.previous:  # who was not asked for that round has to fetch it
            publisher.stand(publisher.published[errand.task.round - 1])
        return tuple(one.id for one in publisher.all())

    def task(self, round: int, opening: int) -> Assignment:
        """What the gateway was asked."""
        asked = self.errand.task
        same = {name: getattr(asked, name) for name in ("purpose", "evaluates", "held_back")}
        return super().task(round, opening).model_copy(update=same)

    def purpose(self, round: int) -> Purpose:
        return self.errand.task.purpose if round == self.errand.task.round else super().purpose(round)

    def merge(
        self,
        merge: vocabulary.Merge,
        policy: Policy,  # noqa: ARG002 - a site adds up; the run's stages are the coordinator's
        disk: Disk | None,  # noqa: ARG002
        clock: Clock,  # noqa: ARG002
        *,
        journaled: bool,  # noqa: ARG002
    ) -> Work:
        """Add the answers up; within their bounds, as the coordinator would have it."""
        arrived = {id: self.answers.take(kept.digest) for id, kept in merge.answers.items()}
        context = CoordinatorContext(merge.round, self._here()[1].job.model.layout)

        def work(put: Put) -> None:
            answers = at_coordinator(self.run.transforms, AnswerSet(arrived), context)
            put(SumMade(merge.round, combined(answers.updates)))

        return work


def next_model(errand: Errand) -> NextModel:
    """Where the run stands, as far as a site needs to know: which model is in hand, and how long it is."""
    task, manifest = errand.task, errand.item.manifest
    params, _ = unpack_broadcast(
        errand.item.frame, manifest.layout.layout().size, errand.most, codec(manifest.down, "down", allowed=())
    )
    previous = bytes(errand.previous.frame) if errand.previous else None
    return NextModel(RunState(task.round - 1, params), bytes(errand.item.frame), previous, norm(params))


def publication(round: int, item: Item) -> Publication:
    """What came, as it goes on."""
    frame = bytes(item.frame)
    digest = chunks.digest(frame)
    return Publication(digest.hex()[:16], round, frame, digest, item.signed)


def preparing(
    artifacts: SiteArtifacts,
    make: Callable[[Errand], Job],
    journal: Journal | None,
    known: Rounds | None,
    unseal: Unseal,
) -> Work:
    """Make the job of what is asked for; with a state from before a restart, what was promised then as well."""
    errand, here = artifacts.errand, artifacts.next_model
    assert here is not None  # noqa: S101 - made with it
    book = journal.copied() if journal and known else None

    def work(put: Put) -> None:
        job, recalled, answers = make(errand), Recalled(), AnswerStore()
        if book and known:
            recalled, answers = recovery.promised(book, job, known, unseal)
        put(PreparedJob(job, here, None, recalled, answers, ()))

    return work


def job_of(errand: Errand, run: RunFile, make_model: MakeModel) -> Job:
    """The job behind a manifest, as far as a site merges it: shapes, codecs, and no data of its own."""
    manifest = errand.item.manifest
    model = make_model(manifest, errand.graphs.frame if errand.graphs else None)
    nothing = Dataset(np.zeros((0, *manifest.sample), np.float32), np.zeros(0, np.int64), manifest.classes)
    return Job(
        run=run,
        algorithm=registry.algorithm({"name": "fedavg"}),  # of which nothing is asked here
        stages=(),
        model=model,
        device_model=model,
        graphs=None,  # they are passed on as they came
        start=np.zeros(model.layout.size, np.float32),
        loss=loss("cross_entropy"),
        up=codec(manifest.codec, "up", allowed=()),
        down=codec(manifest.down, "down", allowed=()),
        sample=manifest.sample,
        classes=manifest.classes,
        public=nothing,
        test=None,
        targets=manifest.targets,
        form=checked(manifest.form),
    )


def answer(gateway: str, job: Job, errand: Errand, update: Update) -> WorkResult:
    """The sum as the gateway's own answer to what it was asked."""
    task, manifest = errand.task, errand.item.manifest
    worker = Worker(
        manifest.job,
        gateway,
        job.algorithm,
        job.model,
        job.public,
        job.loss,
        device_transforms(job.algorithm, job.up),
        manifest.seed,
        manifest.compress,
    )
    about = Task(task.round, job.start, purpose=task.purpose)
    return worker.passed_on(about, ModelRef(task.run_id, task.model), update, errand.state)
