"""The coordinator's slow work, done in the background: making the job, merging rounds, looking where they forgot.

Each is a function of what it was given, and comes back as an event. What cannot be written yet comes back as `Stuck`,
with what is left to do; whoever owns the background starts that again later.

Where a round forgot is looked at only after its model is out, while devices work on the next one: the report waits,
the devices do not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from coordinator import checkpoint, recovery
from coordinator.journal import Journal
from coordinator.rounds import Rounds
from coordinator.vocabulary import NOTHING, Merge, Recalled, Totals
from edgefl.contract import Update
from edgefl.errors import RunError, StoreError
from edgefl.evaluation import forgetting
from edgefl.events import Fact, Round
from edgefl.protocol.frames import Unseal
from edgefl.run import job as jobs
from edgefl.run.answer_schema import AnswerSchema
from edgefl.run.answer_schema import find as find_answer_schema
from edgefl.run.job import Job, RunState
from edgefl.system.background import Put, Work
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk
from edgefl.vector import Array, State, norm


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands, and the model of its next round as devices will get it; None: there is no next round."""

    run_state: RunState
    frame: bytes | None = None
    previous: bytes | None = None  # the model before it, where devices need that as well
    length: float = 0.0  # of the model: no honest update is a million times as long


@dataclass(frozen=True, slots=True)
class Prepared:
    """The job is made; after a restart, it is where it was."""

    job: Job
    standing: Standing
    answer_schema: AnswerSchema | None
    recalled: Recalled
    updates: Mapping[bytes, Update]  # what was promised, by digest
    told: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """The next model is made and on disk."""

    standing: Standing
    reports: tuple[Round, ...]
    looks: tuple[Work, ...] = ()  # to be done before the reports can be told, in this order


@dataclass(frozen=True, slots=True)
class Looked:
    """The reports that had to wait until somebody had looked at every device's model."""

    reports: tuple[Round, ...]


@dataclass(frozen=True, slots=True)
class Stuck:
    """It cannot be written yet; this is what is left to do."""

    reason: str
    work: Work


def standing(job: Job, run_state: RunState, plan: State | None = None) -> Standing:
    """Where the job stands, with the model of its next round."""
    if jobs.finished(job, run_state):
        return Standing(run_state)
    plan = jobs.plan(job, run_state) if plan is None else plan
    if plan is None:
        raise RunError(f"algorithm '{job.algorithm.name}' needs nobody in round {run_state.round + 1}, its first")
    before = run_state.previous if job.algorithm.uses_previous else None
    return Standing(
        run_state,
        jobs.broadcast(job, run_state.round + 1, run_state.params, plan),
        None if before is None else jobs.broadcast(job, run_state.round, before, {}),
        norm(run_state.params),
    )


def preparing(make: Callable[[], Job], disk: Disk | None, state: Rounds | None, unseal: Unseal | None = None) -> Work:
    """Make the job; with a state from before a restart, everything that was promised then as well."""

    def work(put: Put) -> None:
        job = make()
        saved = checkpoint.latest(disk, job) if disk else None
        run_state = saved.run_state if saved else jobs.begin(job)
        recalled, updates = Recalled(), dict[bytes, Update]()
        if disk and state:
            book = Journal(disk, reading=True)
            run_state = recovery.catch_up(book, job, run_state, state, unseal)
            recalled, updates = recovery.promised(book, job, state, unseal)
        total = Totals(saved.bytes_up, saved.bytes_down) if saved else NOTHING
        here = standing(job, run_state)
        answer_schema = find_answer_schema(job, run_state, jobs.plan(job, run_state) or {}) if here.frame else None
        told = jobs.opening(job), *(saved.reports if saved else ())
        put(Prepared(job, here, answer_schema, replace(recalled, total=total), updates, told))

    return work


@dataclass(frozen=True, slots=True)
class Merging:
    """Everything one merge needs."""

    job: Job
    run_state: RunState
    updates: Mapping[str, Update]
    late: Mapping[str, Update]
    merge: Merge  # as the core has counted it

    def work(self, disk: Disk | None, clock: Clock, put: Put) -> None:
        """Merge, save, and say so."""
        courses = jobs.onward(self.job, self.run_state, self.updates, population=self.merge.population, late=self.late)
        merged = [(run_state, clock.now()) for run_state in courses]
        reports, first, last = self._reports(merged), merged[0][0], merged[-1][0]
        looks = _Look(self, first, reports).works() if self.job.run.run.forgetting else ()
        self._save(disk, Merged(standing(self.job, last), () if looks else reports, looks), reports, put)

    def _reports(self, merged: Sequence[tuple[RunState, float]]) -> tuple[Round, ...]:
        """Of the round, and of those behind it that needed no device."""
        spent, (first, at) = self.merge.spent, merged[0]
        counted = {"bytes_up": spent.bytes_up, "bytes_down": spent.bytes_down, "late": spent.late}
        time = {"seconds": at - self.merge.since, "waiting_seconds": self.merge.waited}
        behind = (jobs.report(c, {}, seconds=now - before) for (_, before), (c, now) in pairwise(merged))
        return jobs.report(first, self.updates, **counted, refused=spent.refused, **time), *behind

    def _save(self, disk: Disk | None, merged: Merged, reports: tuple[Round, ...], put: Put) -> None:
        total = self.merge.total
        try:
            if disk is not None:
                saved = checkpoint.Saved(merged.standing.run_state, reports, total.bytes_up, total.bytes_down)
                checkpoint.save(disk, self.job, saved)
        except StoreError as error:
            put(Stuck(str(error), lambda put: self._save(disk, merged, reports, put)))
        else:
            put(merged)


@dataclass(slots=True)
class _Look:
    """A look at every device's model, one piece of work for each: whoever wants an end waits for one at most."""

    merging: Merging
    first: RunState  # after the round that devices took part in, before those that needed nobody
    reports: tuple[Round, ...]
    seen: list[Array] = field(default_factory=list)

    def works(self) -> tuple[Work, ...]:
        each = forgetting.local_accuracies(self.merging.job, self.merging.run_state, self.merging.updates)
        return *(partial(self._one, each) for _ in self.merging.updates), self._all

    def _one(self, each: forgetting.Accuracies, _: Put) -> None:
        self.seen.extend(one for one in (next(each, None),) if one is not None)

    def _all(self, put: Put) -> None:
        shares = forgetting.shares(self.merging.run_state, self.seen, self.first)
        put(Looked((replace(self.reports[0], **shares), *self.reports[1:])))
