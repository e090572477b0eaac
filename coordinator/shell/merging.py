"""The coordinator's slow work, done in the background: making the job, merging rounds, looking where they forgot.

Each is a function of what it was given, and comes back as an event. What cannot be written yet comes back as `Stuck`
(checkpoint_writer.py), with what is left to do; the owner of the background starts that again later.

Where a round forgot is looked at only after its model is out, while devices work on the next one: the report waits,
the devices do not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from coordinator.decide.rounds import Rounds
from coordinator.decide.vocabulary import NOTHING, Merge, Recalled, Totals
from coordinator.durable import checkpoint, recovery
from coordinator.durable.answer_store import AnswerStore
from coordinator.durable.checkpoint_writer import Saving, Stuck
from coordinator.durable.journal import Journal
from coordinator.durable.merge_round import RoundAnswers, merge_round
from edgefl.base.errors import RunError, StoreError
from edgefl.base.events import Fact, Round
from edgefl.base.report_numbers import RoundReport
from edgefl.base.vector import Array, State, norm
from edgefl.job.run import forgetting, reporting
from edgefl.job.run import job as jobs
from edgefl.job.run.answer_schema import AnswerSchema
from edgefl.job.run.answer_schema import find as find_answer_schema
from edgefl.job.run.job import Job, RunState
from edgefl.learn.contract import traits_of
from edgefl.system.background import Put, Work
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk
from edgefl.wire.frames import Unseal


@dataclass(frozen=True, slots=True)
class NextModel:
    """Where a job stands, and the model of its next round as devices will get it; None: there is no next round."""

    run_state: RunState
    frame: bytes | None = None
    previous: bytes | None = None  # the model before it, where devices need that as well
    length: float = 0.0  # of the model: no honest update is a million times as long


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """The job is made; after a restart, it is where it was."""

    job: Job
    next_model: NextModel
    answer_schema: AnswerSchema | None
    recalled: Recalled
    answers: AnswerStore  # what was promised
    told: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The next model is made; if it is the last one, it is on disk."""

    next_model: NextModel
    reports: tuple[RoundReport, ...]
    save: Work | None = None  # to be done once the model is out
    looks: tuple[Work, ...] = ()  # then, before the reports can be told, in this order


@dataclass(frozen=True, slots=True)
class DeviceModelsEvaluated:
    """The reports that had to wait until the model of every device was evaluated."""

    reports: tuple[Round, ...]


def next_model(job: Job, run_state: RunState, plan: State | None = None) -> NextModel:
    """Where the job stands, with the model of its next round."""
    if jobs.finished(job, run_state):
        return NextModel(run_state)
    plan = jobs.plan(job, run_state) if plan is None else plan
    if plan is None:
        raise RunError(f"algorithm '{job.algorithm.name}' asks no device in round {run_state.round + 1}, its first")
    trains = jobs.purpose(job, run_state) == "train"
    before = run_state.previous if traits_of(job.algorithm).uses_previous and trains else None
    return NextModel(
        run_state,
        jobs.broadcast(job, run_state.round + 1, run_state.params, plan),
        None if before is None else jobs.broadcast(job, run_state.round, before, {}),
        norm(run_state.params),
    )


def preparing(
    make: Callable[[], Job], journal: Journal | None, state: Rounds | None, unseal: Unseal | None = None
) -> Work:
    """Make the job; with a state from before a restart, everything that was promised then as well."""
    book = journal.copied() if journal and state else None
    disk = journal.disk if journal else None

    def work(put: Put) -> None:
        job = make()
        saved = checkpoint.latest(disk, job) if disk else None
        run_state = saved.run_state if saved else jobs.begin(job)
        reports = saved.reports if saved else ()
        total = Totals(saved.bytes_up, saved.bytes_down) if saved else NOTHING
        recalled, answers = Recalled(), AnswerStore()
        behind, passed = tuple[RunState, ...](), tuple[RunState, ...]()
        if book and state:
            caught_up = tuple(recovery.catch_up(book, job, run_state, state, unseal))
            passed = (run_state, *caught_up)
            run_state = passed[-1]
            if caught_up:
                told = recovery.told_since(book, reports)
                total += Totals(sum(fact.bytes_up for fact in told), sum(fact.bytes_down for fact in told))
                reports = tuple(replace(fact, at=0.0) for fact in told if fact.round == run_state.round)
            recalled, answers = recovery.promised(book, job, state, unseal)
            reports = recovery.untold(book, state, reports)
            behind = tuple(recovery.free_rounds(book, job, run_state))
            passed = (*passed, *behind)
            reports = (*reports, *(reporting.report(one, {}) for one in behind))
            run_state = behind[-1] if behind else run_state
        if disk and (len(passed) > 1 or (run_state.origin and not saved)):
            try:  # the next start must not depend on what may be gone then
                now = checkpoint.Checkpoint(run_state, reports, total.bytes_up, total.bytes_down)
                checkpoint.save(disk, job, now, passed)
            except StoreError as error:
                put(Stuck(str(error), work))
                return
        here = next_model(job, run_state)
        trains = here.frame is not None and jobs.purpose(job, run_state) != "evaluate"
        answer_schema = find_answer_schema(job, run_state, jobs.training_plan(job, run_state) or {}) if trains else None
        news = *reporting.openings(job, run_state), *reports
        put(PreparedJob(job, here, answer_schema, replace(recalled, total=total), answers, news))

    return work


@dataclass(frozen=True, slots=True)
class Merging:
    """Everything one merge needs."""

    job: Job
    run_state: RunState
    answers: RoundAnswers
    merge: Merge  # as the core has counted it
    journaled: bool = (
        False  # whether they can be merged again from the journal, as long as the last model saved is kept
    )

    def work(self, disk: Disk | None, clock: Clock, saving: Saving, put: Put) -> None:
        """See what devices say of the model they were sent, merge unless the run ends with it, and say so."""
        population = self.merge.population
        try:
            judged, courses = merge_round(self.job, self.run_state, self.answers, population=population, disk=disk)
        except StoreError as error:
            put(saving.held_up(error, lambda put: self.work(disk, clock, saving, put)))
            return
        merged = [(run_state, clock.now()) for run_state in courses]
        last = merged[-1][0] if merged else judged
        evaluated = self._evaluated(judged, bool(merged))
        if jobs.purpose(self.job, self.run_state) == "describe":
            evaluated, merged = self._described(last), []
        reports = self._reports(merged) if merged else ()
        looks: tuple[Work, ...] = ()
        if self.job.run.run.forgetting:
            looks = (
                _Look(self, merged[0][0], reports).works() if merged else (lambda put: put(DeviceModelsEvaluated(())),)
            )
        told: tuple[RoundReport, ...] = evaluated if looks else (*evaluated, *reports)
        earlier = (one for one in saving.passed if one.round != judged.round)
        passed = (*earlier, judged, *(run_state for run_state, _ in merged))
        total, here, now = self.merge.total, next_model(self.job, last), clock.now()
        saved = checkpoint.Checkpoint(last, (*evaluated, *reports), total.bytes_up, total.bytes_down)
        save = partial(checkpoint.save, disk, self.job, saved, passed) if disk else lambda: None
        if here.frame is None or looks:  # it is not waited for; or its report must be durable before it can be told
            saving.add(save, MergeResult(here, told, looks=looks), now)
            saving.work(put)
        elif self.journaled and saving.soon_after(now):
            saving.put_off(save, passed)
            put(MergeResult(here, told))
        else:
            saving.add(save, now=now)
            put(MergeResult(here, told, saving.work))

    def _described(self, after: RunState) -> tuple[RoundReport, ...]:
        """What devices said of their data; that round made no model."""
        spent = self.merge.spent
        cost = {"bytes_up": spent.bytes_up, "bytes_down": spent.bytes_down}
        return (reporting.description(self.job, after, self.answers.arrived, **cost),)

    def _evaluated(self, judged: RunState, merged: bool) -> tuple[RoundReport, ...]:
        """What devices saw, where they were asked; with what it cost, where nothing came of the round besides."""
        if judged is self.run_state or judged.judged is None:  # no device was asked, or it was told before an extension
            return ()
        spent = Totals() if merged else self.merge.spent
        return (replace(judged.judged, bytes_up=spent.bytes_up, bytes_down=spent.bytes_down),)

    def _reports(self, merged: Sequence[tuple[RunState, float]]) -> tuple[Round, ...]:
        """Of the round, and of those behind it that needed no device."""
        spent, (first, at) = self.merge.spent, merged[0]
        counted = {"bytes_up": spent.bytes_up, "bytes_down": spent.bytes_down, "late": spent.late}
        time = {"seconds": at - self.merge.since, "waiting_seconds": self.merge.waited}
        age = reporting.staleness(self.job, self.answers.ages)
        behind = (reporting.report(c, {}, seconds=now - before) for (_, before), (c, now) in pairwise(merged))
        updates = self.answers.updates
        return reporting.report(first, updates, **counted, refused=spent.refused, staleness=age, **time), *behind


@dataclass(slots=True)
class _Look:
    """A look at every device's model, one piece of work for each: a stop waits for one at most."""

    merging: Merging
    first: RunState  # after the round that devices took part in, before the free ones
    reports: tuple[Round, ...]
    seen: list[Array] = field(default_factory=list)

    def works(self) -> tuple[Work, ...]:
        each = forgetting.local_accuracies(
            jobs.in_force(self.merging.job, self.merging.run_state),
            self.merging.run_state,
            self.merging.answers.updates,
        )
        return *(partial(self._one, each) for _ in self.merging.answers.updates), self._all

    def _one(self, each: forgetting.Accuracies, _: Put) -> None:
        self.seen.extend(one for one in (next(each, None),) if one is not None)

    def _all(self, put: Put) -> None:
        shares = forgetting.shares(self.merging.run_state, self.seen, self.first)
        put(DeviceModelsEvaluated((replace(self.reports[0], **shares), *self.reports[1:])))
