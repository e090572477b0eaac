"""The plain loop: the specification of a run. Every other driver must end with the same model, bit for bit."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from time import perf_counter, process_time, time

from edgefl.base.events import Answered, Asked, Closed, Evaluated, Excluded, Fact, Joined, Labelled, Tell
from edgefl.base.vector import State, Vector
from edgefl.base.version import __version__
from edgefl.job.run import forgetting, reporting
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState, Watch
from edgefl.job.run.simulated_fleet import back_end, kinds_of, labels_of, objections
from edgefl.job.run.work import plain_limit, received, unpack_answer
from edgefl.learn.contract import Budget, Task, Update, traits_of
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.privacy.spending import spending
from edgefl.learn.selection.base import Candidate, drawn
from edgefl.sim.answer_order import AnswerTurn, RoundOrder, VirtualOrder, virtual
from edgefl.sim.device_states import DeviceStates
from edgefl.sim.early_end import EARLY
from edgefl.sim.engines import DeviceOrder, Engine, InProcessEngine, held
from edgefl.sim.loop_memory import Ended, Keep, LoopMemory, forget, kept, unasked
from edgefl.sim.stragglers import cut
from edgefl.wire.frames import Unseal
from edgefl.wire.messages import TO_COORDINATOR, Answer, read


@dataclass(slots=True)
class Traffic:
    """Bytes of frames, as they would cross the network."""

    up: int = 0
    down: int = 0


def simulate(
    job: Job,
    devices: Mapping[str, Dataset],
    tell: Tell = lambda _: None,
    *,
    engine: Engine | None = None,
    order: Mapping[int, RoundOrder] | None = None,
    watch: Watch = jobs.unwatched,
    keep: Keep = forget,
    since: LoopMemory | None = None,
    ended: Ended = unasked,
) -> RunState:
    """Play all rounds one after another; `tell` hears what a coordinator tells of a fleet that nothing disturbs.

    Between rounds `keep` is offered what the loop would need to go on from there: `since` such a moment. At the end,
    an early one as well, `ended` is shown what devices keep.

    Where rounds wait for no device the model depends on the order of answers. Instead of that of an undisturbed fleet
    it can be that of a run that was, by round (answer_order.py).
    """
    with DeviceStates(int(job.run.compute.state_mb * 2**20)) as states:
        samples = {name: len(data) for name, data in devices.items()}
        left, each = objections(job, samples), held(job.run, devices).items()
        members = {name: _Device(len(devices[name]), len(data)) for name, (data, _) in each if name not in left}
        draws = _Draws({name: Candidate(name, members[name].samples) for name in sorted(members)})
        fleet = _Fleet(members, states, _undisturbed(job, members, draws), draws, order or {}, presences(job, samples))
        try:
            run_state = _simulate(job, fleet, tell, engine or InProcessEngine(job, devices), watch, keep, since)
        except EARLY:
            ended(states.__getitem__, devices)
            raise
        ended(states.__getitem__, devices)
        return run_state


def _simulate(  # noqa: PLR0917 - a whole run in one place, as a specification should be
    job: Job, fleet: "_Fleet", tell: Tell, engine: Engine, watch: Watch, keep: Keep, since: LoopMemory | None
) -> RunState:
    members, states = fleet.members, fleet.states
    total, asked, began, cpu = fleet.recall(since)

    def say(*facts: Fact) -> None:
        for fact in facts:
            tell(replace(fact, at=time()))

    watch(run_state := since.run_state if since else jobs.begin(job))
    say(*reporting.openings(job, run_state))
    say(*fleet.presences)
    stopped = ""
    while not jobs.finished(job, run_state):
        keep(partial(fleet.memory, run_state, total, asked, (began, cpu)))
        opened, work, spent, before = perf_counter(), process_time(), Traffic(), run_state
        extra, updates, ages = jobs.plan(job, run_state), dict[str, Update](), dict[str, int]()
        if extra is not None and (stopped := job.run.budget.spent(total.up + total.down)):
            run_state = run_state if run_state.evaluation else jobs.look_now(job, run_state, None)
            break
        if extra is not None:
            asked += 1
            updates, ages, facts = _play(job, run_state, extra, engine, fleet, spent, asked)
            say(*facts)
        total.up, total.down = total.up + spent.up, total.down + spent.down
        if extra is not None and jobs.evaluates(job, run_state):
            fresh = {name: update for name, update in updates.items() if not ages[name]}
            watch(run_state := jobs.judged(job, run_state, fresh))
            say(evaluated(run_state, Traffic() if not (ends := jobs.finished(job, run_state)) else spent))
            if ends:
                break  # with the model that they were asked about
        if jobs.purpose(job, run_state) == "describe":
            watch(run_state := jobs.described(job, run_state, updates))
            say(reporting.description(job, run_state, updates, bytes_up=spent.up, bytes_down=spent.down))
            continue
        watch(run_state := jobs.advance(job, run_state, updates, population=len(members), ages=ages))
        more = forgetting.of_round(jobs.in_force(job, before), before, updates, run_state)
        more |= {"seconds": perf_counter() - opened, "cpu_seconds": process_time() - work}
        more |= {"staleness": reporting.staleness(job, ages)}
        say(reporting.report(run_state, updates, bytes_up=spent.up, bytes_down=spent.down, **more))
    bills = ((device.trains, states[name]) for name, device in members.items())
    spent_privacy = spending(job.algorithm, job.model.layout, bills)
    more = {**spent_privacy, "seconds": perf_counter() - began, "cpu_seconds": process_time() - cpu}
    say(reporting.summary(job, run_state, bytes_up=total.up, bytes_down=total.down, stopped=stopped, **more))
    return run_state


@dataclass(slots=True)
class _Device:
    samples: int
    trains: int  # the samples it trains on
    seen: int = -1  # the last round whose model it received


@dataclass(slots=True)
class _Draws:
    """Whom rounds ask; those that share a draw ask the same devices, by what was known before its first."""

    known: dict[str, Candidate]  # sorted by name
    draw: int = 0
    since: dict[str, int] = field(default_factory=dict)  # who answered after that, and in which round
    losses: dict[str, float] = field(default_factory=dict)  # what devices told last

    def course(self, job: Job, round: int) -> RoundOrder:
        """Play a round in which each device that is asked answers."""
        if self.draw != (draw := cohort_key(job, round)):
            for name, at in self.since.items():
                one = self.known[name]
                self.known[name] = replace(one, counted=at, loss=self.losses.get(name, one.loss))
            self.draw, self.since = draw, {}
        order = drawn(job.run.make_selection(), draw, job.run.run.seed, list(self.known.values()))
        asked = order if job.run.schedule.purpose(round) == "describe" else order[: job.run.cohort]
        if job.run.schedule.purpose(round) == "train":
            self.since.update(dict.fromkeys(asked, round))
        return RoundOrder(round, asked, tuple(AnswerTurn(name, round) for name in asked))


def _undisturbed(job: Job, members: "Mapping[str, _Device]", draws: _Draws) -> VirtualOrder:
    """Return which device answers when, where rounds wait for no device and nothing goes wrong."""
    samples, trains = ({name: getattr(one, what) for name, one in members.items()} for what in ("samples", "trains"))
    return virtual(job, samples, trains, draws.losses)


@dataclass(slots=True)
class _Fleet:
    members: dict[str, _Device]
    states: DeviceStates
    undisturbed: VirtualOrder
    draws: _Draws
    order: Mapping[int, RoundOrder] = field(default_factory=dict)  # of a run that was
    presences: Sequence[Fact] = ()  # what is told of all devices, also of those that are not asked
    tasks: dict[int, Task] = field(default_factory=dict)  # what devices may still be at work on, by round
    sizes: dict[int, int] = field(default_factory=dict)  # of the models that were sent, by round

    def course(self, job: Job, round: int) -> RoundOrder:
        """Whom a round asks, and who answers it."""
        if round in self.order:
            return self.order[round]
        waits = not job.run.buffered or job.run.schedule.purpose(round) != "train"
        return self.draws.course(job, round) if waits else next(self.undisturbed)

    def memory(self, run_state: RunState, total: Traffic, asked: int, since: tuple[float, float]) -> LoopMemory:
        """What is needed to go on from here; `since` is when the run began, on the wall and of CPU time."""
        draws, (began, cpu) = self.draws, since
        plain = {
            "seen": {name: device.seen for name, device in self.members.items()},
            "known": {name: asdict(one) for name, one in draws.known.items()},
            "draw": draws.draw,
            "since": draws.since,
            "losses": dict(draws.losses),
            "undisturbed": self.undisturbed.memory() if self.undisturbed.round else None,
            "size": self.sizes.get(run_state.round),
            "total": asdict(total),
            "asked": asked,
            "seconds": perf_counter() - began,
            "cpu_seconds": process_time() - cpu,
        }
        tasks = {round: self.tasks[round] for round in sorted(set(self.undisturbed.at_work.values()))}
        return LoopMemory(run_state, kept(self.states.__getitem__, self.members), tasks, plain)

    def recall(self, memory: LoopMemory | None) -> tuple[Traffic, int, float, float]:
        """Stand where a memory says; gives back the traffic and the openings so far, and when the run began."""
        if memory is None:
            return Traffic(), 0, perf_counter(), process_time()
        plain = memory.plain
        for name, seen in plain["seen"].items():
            self.members[name].seen = seen
        self.draws.known.update((name, Candidate(**one)) for name, one in plain["known"].items())
        self.draws.draw, self.draws.since = plain["draw"], dict(plain["since"])
        self.draws.losses.update(plain["losses"])
        if plain["undisturbed"] is not None:
            self.undisturbed.recall(plain["undisturbed"])
        self.tasks = dict(memory.tasks)
        if plain["size"] is not None:
            self.sizes[memory.run_state.round] = plain["size"]
        for name, state in memory.states.items():
            self.states.keep(name, state)
        began, cpu = perf_counter() - plain["seconds"], process_time() - plain["cpu_seconds"]
        return Traffic(**plain["total"]), plain["asked"], began, cpu


def _play(  # noqa: PLR0917 - the whole round in one place, as a specification should be
    job: Job,
    run_state: RunState,
    extra: State,
    engine: Engine,
    fleet: _Fleet,
    spent: Traffic,
    opening: int,
) -> tuple[dict[str, Update], dict[str, int], list[Fact]]:
    round, run = run_state.round + 1, job.run
    params, told, size = jobs.heard(job, round, run_state.params, extra)
    purpose = jobs.purpose(job, run_state)
    previous = previous_model(job, run_state) if purpose == "train" else None
    evaluates = run.evaluation.least if jobs.evaluates(job, run_state) else None
    fleet.sizes[round] = size
    oldest = round - run.rounds.staleness if run.buffered else round
    fleet.tasks = {began: task for began, task in fleet.tasks.items() if began >= oldest}
    fleet.tasks[round] = Task(round, params, Budget(), told, previous, purpose, evaluates)
    course = fleet.course(job, round)
    for name in course.asked:
        returned = previous is not None and fleet.members[name].seen != round - 1
        spent.down += size + (fleet.sizes.get(round - 1, size) if returned else 0)
        fleet.members[name].seen = round
    orders = [DeviceOrder(turn.device, _task(job, fleet, turn), fleet.states[turn.device]) for turn in course.turns]
    updates, answered = {}, list[Fact]()
    for order, result in zip(orders, engine.results(orders), strict=True):
        updates[order.device] = result.update
        if purpose == "train":
            fleet.states.keep(order.device, result.kept)
        if result.update.loss is not None:
            fleet.draws.losses[order.device] = result.update.loss
        spent.up += result.size
        answered.append(Answered(order.device, order.task.round, result.size, steps=result.steps))
    asked = Asked(round, opening, course.asked, spent.down, purpose)
    return updates, course.ages, [asked, *answered, Closed(round, tuple(sorted(updates)))]


def _task(job: Job, fleet: _Fleet, turn: AnswerTurn) -> Task:
    """What the device was asked to do, and how much of it is done."""
    most = turn.steps or cut(job, turn.began, turn.device, fleet.members[turn.device].trains)
    return replace(fleet.tasks[turn.began], budget=Budget(batches=most))


def evaluated(run_state: RunState, spent: Traffic) -> Evaluated:
    """What devices saw of the model, and what that cost, where nothing came of the round besides."""
    assert run_state.judged is not None  # noqa: S101 - it has just been
    return replace(run_state.judged, bytes_up=spent.up, bytes_down=spent.down)


def presences(job: Job, samples: Mapping[str, int]) -> list[Fact]:
    """Return what is told when simulated devices come, on no host of their own."""
    labels = {name: one for name, one in labels_of(job.run, samples).items() if one}
    kinds, left = kinds_of(job.run, samples), objections(job, samples)
    facts: list[Fact] = [Labelled(labels)] if labels else []
    for name, count in samples.items():
        kind = kinds[name]
        facts.append(Joined(name, count, "", __version__, back_end(job), arch=kind.arch, memory_mb=kind.memory_mb))
        facts += [Excluded(name, left[name])] if name in left else []
    return facts


def opened_update(job: Job, frame: bytes | bytearray, unseal: Unseal | None = None) -> Update:
    """The update in the frame of an answer that we packed ourselves."""
    size = job.model.layout.size
    answer, opened = read(TO_COORDINATOR, frame, limit=plain_limit(frame, size), unseal=unseal)
    assert isinstance(answer, Answer)  # noqa: S101 - we packed it ourselves
    return unpack_answer(answer, opened.body, job.sent, job.up)


def cohort_key(job: Job, round: int) -> int:
    """The number that draws a round's cohort; rounds that share one share their devices."""
    return 1 + (round - 1) // traits_of(job.algorithm).cohort_rounds


def previous_model(job: Job, run_state: RunState) -> Vector | None:
    """The model one round earlier, as devices received it."""
    if not traits_of(job.algorithm).uses_previous or run_state.previous is None:
        return None
    return received(run_state.previous, job.down, job.model.layout)
