"""Everything large, which the core knows by a digest or a number: the job, its models at the broker, the answers."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from coordinator.decide import vocabulary
from coordinator.durable.answer_store import AnswerStore, Arrival, reader
from coordinator.durable.checkpoint_writer import Saving
from coordinator.durable.journal import AnswerFrame
from coordinator.durable.merge_round import take_answers
from coordinator.durable.staleness import Policy
from coordinator.shell import gateways, merging
from coordinator.shell.guards import check
from coordinator.shell.publisher import Publication, Publisher
from edgefl.base.errors import WireError
from edgefl.base.events import Done
from edgefl.base.schedule import Purpose
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import reported_loss, reporting, statistics
from edgefl.job.run.answer_schema import AnswerSchema, body_limit
from edgefl.job.run.job import Job, RunState
from edgefl.job.run.work import unpack_answer
from edgefl.job.transforms.sealing import Sealing
from edgefl.learn.contract import Update
from edgefl.learn.evaluation import counts
from edgefl.system.background import Work
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk
from edgefl.wire.frames import SEAL
from edgefl.wire.messages import SMALL, Assignment
from edgefl.wire.sealing import Opener
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Transport

log = logging.getLogger(__name__)


class Artifacts:
    """Of one run. Until the job is prepared there are no models, and no answer can be opened."""

    def __init__(self, run: RunFile, run_id: str, transport: Transport, signer: Signer, *, seal: bool = False) -> None:
        self.run, self.run_id, self.transport, self.signer = run, run_id, transport, signer
        self.seal, self.opener = seal, Opener(signer)  # what came sealed is opened even if open answers will do
        self.next_model: merging.NextModel | None = None
        self.answer_schema: AnswerSchema | None = None
        self.publisher: Publisher | None = None
        self.body_limit = 0  # bytes that the body of an answer may have
        self.saving = Saving()
        self.answers = AnswerStore()

    # ---- the job and its models --------------------------------------------------------------------------------

    @property
    def job(self) -> Job | None:
        return self.publisher.job if self.publisher else None

    @property
    def run_state(self) -> RunState | None:
        return self.next_model.run_state if self.next_model else None

    def prepared(self, event: merging.PreparedJob, now: float) -> vocabulary.Prepared:
        """The job is there."""
        job, fleet = event.job, self.run.broker.fleet
        self.next_model, self.answer_schema = event.next_model, event.answer_schema
        self.publisher = Publisher(self.transport, fleet, job, run_id=self.run_id, signer=self.signer)
        self.body_limit = self._body_limit(job)
        self.answers = event.answers
        run_state = event.next_model.run_state
        done = jobs.finished(job, run_state)
        return vocabulary.Prepared(now, run_state.round, self._model(), done, event.recalled, event.told)

    def merged(self, event: merging.MergeResult, now: float) -> vocabulary.Merged:
        """The next model is there."""
        self.next_model = event.next_model
        run_state, (_, publisher) = event.next_model.run_state, self._here()
        done = jobs.finished(publisher.job, run_state)
        return vocabulary.Merged(now, run_state.round, self._model(), done, event.reports)

    def frame_limit(self) -> int:
        """What a frame may weigh, now that the model is known, and what the algorithm adds to an answer."""
        return min(self.run.wire.limit_mb << 20, SMALL + self.body_limit + SEAL)

    def _body_limit(self, job: Job) -> int:
        counted = 2 * 8 * counts.numbers(job.classes, job.targets, job.form) if self.run.judged_by_devices else 0
        counted += 8 * (1 + 2 * job.sample[0] + job.classes) if self.run.purposes.describes else 0
        counted += max(0, job.sent.nbytes - 4 * job.model.layout.size)  # where a transform makes updates longer
        return body_limit(self.answer_schema, job.model.layout, job.up) + counted + reported_loss.BYTES

    def summary(self, leave: vocabulary.Leave) -> Done:
        """The whole run."""
        here, publisher = self._here()
        total, refused = leave.total, dict(leave.refusals)
        counted = {"bytes_up": total.bytes_up, "bytes_down": total.bytes_down, "late": total.late}
        return reporting.summary(publisher.job, here.run_state, **counted, refused=refused, seconds=leave.seconds)

    def _model(self) -> vocabulary.PublishedModel | None:
        """The model of the next round, as the core knows it; None: there is no next one."""
        here, publisher = self._here()
        if here.frame is None:
            return None
        before = publisher.published.get(here.run_state.round)
        previous = 0 if here.previous is None else len(before.frame if before else here.previous)
        return vocabulary.PublishedModel(here.run_state.round + 1, len(here.frame), previous)

    def publish(self, in_use: Collection[int] = ()) -> tuple[str, ...]:
        """Have the model of the next round ready, beside those in use; the ids of all that may stand at the broker."""
        here, publisher = self._here()
        if here.previous is not None:
            publisher.publish(here.run_state.round, here.previous)
        if here.frame is not None:
            publisher.publish(here.run_state.round + 1, here.frame, in_use)
        return tuple(publication.id for publication in publisher.all())

    def publish_again(self, device: str, model: str, now: float, *, whole: bool) -> None:
        """A device did not find this."""
        if self.publisher and self.publisher.asked_again(model, now, whole=whole):
            log.warning("published again for=%s model=%s whole=%s", device, model, whole)

    def model(self, round: int) -> Publication:
        """The model of a round."""
        return self._here()[1].published[round]

    def stand(self, model: Publication) -> None:
        """Publish the model as a retained message if an invited device has to fetch it."""
        self._here()[1].stand(model)

    def task(self, round: int, opening: int) -> Assignment:
        """What all devices of a round are asked to do."""
        here, publisher = self._here()
        job, evaluation = publisher.job, self.run.evaluation
        run_state = replace(here.run_state, round=round - 1)  # a task that is said again may be of an earlier round
        return Assignment(
            job=self.run.run.name,
            run_id=self.run_id,
            round=round,
            attempt=opening,
            model=publisher.published[round].id,
            previous=publisher.published[round - 1].id if here.previous is not None else None,
            graphs=publisher.graphs.id if publisher.graphs else None,
            overtime=self.run.buffered or self.run.rounds.late != "drop",
            purpose=jobs.purpose(job, run_state),
            evaluates=evaluation.least if jobs.evaluates(job, run_state) else None,
            held_back=evaluation.held_back if self.run.judged_by_devices else None,
            seal=self.opener.key if self.seal else None,
        )

    def purpose(self, round: int) -> Purpose:
        """What a round is for."""
        return self.run.purposes.purpose(round)

    def merge(
        self, merge: vocabulary.Merge, policy: Policy, disk: Disk | None, clock: Clock, *, journaled: bool
    ) -> Work:
        """Return the work of merging these answers, which ends their life; `journaled`: they can be merged again."""
        here, publisher = self._here()
        answers = take_answers(self.answers, policy, merge.round, merge.answers, merge.late)
        work = merging.Merging(publisher.job, here.run_state, answers, merge, journaled).work
        return partial(work, disk, clock, self.saving)

    def _here(self) -> tuple[merging.NextModel, Publisher]:
        assert self.next_model is not None and self.publisher is not None  # noqa: S101, PT018 - the core waits for both
        return self.next_model, self.publisher

    # ---- answers -----------------------------------------------------------------------------------------------

    def look_into(self, digest: bytes, now: float) -> vocabulary.Usable | vocabulary.Unusable:
        """Open an answer: can its numbers be used?"""
        try:
            update = self.answers.open(digest, self._open)
        except WireError as error:
            return vocabulary.Unusable(now, digest, error.code, str(error))
        return vocabulary.Usable(now, digest, update.loss)

    def _open(self, arrival: Arrival) -> Update:
        here, publisher = self._here()
        answer, publication = arrival.message, publisher.published.get(arrival.message.round)
        if publication is not None and answer.model != publication.id:
            raise WireError(
                "update.model", f"trained from model {answer.model}, round {answer.round} has {publication.id}"
            )
        job, purpose = publisher.job, self.purpose(answer.round)
        if purpose not in {answer.purpose, "evaluate"}:
            raise WireError("update.purpose", f"to {answer.purpose} is not what round {answer.round} asked for")
        if against := gateways.objection(answer.device, answer.devices, self.run):
            raise WireError("update.devices", against[1])
        body = Sealing().coordinator(arrival.unread, self.body_limit, self.opener, required=self.seal)
        update = unpack_answer(answer, body, job.sent, job.up, known=True)
        check(answer.device, update, here.length)  # and whether its numbers are finite
        if purpose == "describe":
            statistics.check(self.run.task, update.extra, job.sample, job.classes)
        if self.answer_schema and purpose == "train":
            self.answer_schema.check(update.extra)
        if update.seen:
            counts.check(update.seen, job.classes, job.targets, job.form)
        return update

    def accepted(self, actions: Iterable[vocabulary.Action]) -> AnswerFrame | None:
        """The answer that these actions accept, which the journal has to have."""
        accepts = (one for one in actions if isinstance(one, (vocabulary.Accept, vocabulary.AcceptLate)))
        return next((self.answers.accept(one.digest) for one in accepts), None)

    def keep(self, digest: bytes) -> None:
        """Count an accepted answer."""
        self.answers.count(digest, partial(reader, self._here()[1].job, unseal=self.opener))
