"""The plain loop: the specification of a run. Every other driver must end with the same model, bit for bit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from time import perf_counter, process_time, time

from edgefl import __version__
from edgefl.contract import Budget, Task, Update
from edgefl.data.dataset import Dataset
from edgefl.evaluation import forgetting
from edgefl.events import Answered, Asked, Closed, Fact, Joined, Tell
from edgefl.privacy.spending import spending
from edgefl.protocol.frames import Unseal
from edgefl.protocol.messages import TO_COORDINATOR, Answer, read
from edgefl.run import job as jobs
from edgefl.run.job import Job, RunState
from edgefl.run.work import ModelRef, plain_limit, received, unpack_answer, unpack_broadcast
from edgefl.selection.base import Candidate, drawn
from edgefl.simulation.engines import Engine, InProcess, Order
from edgefl.simulation.stragglers import cut
from edgefl.vector import State, Vector

RUN_ID = "0" * 12  # stands for the id of a run, and is as long, so that frames are too


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
) -> RunState:
    """Play all rounds one after another; `tell` hears what a coordinator tells of a fleet that nothing disturbs."""
    engine = engine or InProcess(job, devices)
    fleet = {name: _Device(len(data)) for name, data in devices.items()}
    total, began, cpu, asked = Traffic(), perf_counter(), process_time(), 0
    sizes: dict[int, int] = {}  # of the models that were sent, by round

    def say(*facts: Fact) -> None:
        for fact in facts:
            tell(replace(fact, at=time()))

    say(jobs.opening(job), *(joined(job, name, device.samples) for name, device in fleet.items()))
    run_state = jobs.begin(job)
    while not jobs.finished(job, run_state):
        opened, spent, before = perf_counter(), Traffic(), run_state
        extra, updates = jobs.plan(job, run_state), dict[str, Update]()
        if extra is not None:
            asked += 1
            updates, facts = _play(job, run_state, extra, engine, fleet, spent, sizes, asked)
            say(*facts)
        run_state = jobs.advance(job, run_state, updates, population=len(fleet))
        total.up, total.down = total.up + spent.up, total.down + spent.down
        more = forgetting.of_round(job, before, updates, run_state)
        seconds = perf_counter() - opened
        say(jobs.report(run_state, updates, bytes_up=spent.up, bytes_down=spent.down, seconds=seconds, **more))
    held = {name: (device.samples, device.state) for name, device in fleet.items()}
    spent_privacy = spending(job.algorithm, job.model.layout, held)
    took = {"seconds": perf_counter() - began, "cpu_seconds": process_time() - cpu}
    say(jobs.summary(job, run_state, bytes_up=total.up, bytes_down=total.down, **spent_privacy, **took))
    return run_state


@dataclass(slots=True)
class _Device:
    samples: int
    state: State = field(default_factory=dict)
    seen: int = -1  # the last round whose model it received
    counted: int = 0  # the last round it answered
    draw: int = 0  # the last one it was a candidate of
    known: Candidate = field(default_factory=lambda: Candidate(""))  # what that draw knew of it


def _play(  # noqa: PLR0917 - the whole round in one place, as a specification should be
    job: Job,
    run_state: RunState,
    extra: State,
    engine: Engine,
    fleet: Mapping[str, _Device],
    spent: Traffic,
    sizes: dict[int, int],
    opening: int,
) -> tuple[dict[str, Update], list[Fact]]:
    round, size = run_state.round + 1, job.model.layout.size
    frame = jobs.broadcast(job, round, run_state.params, extra)
    params, told = unpack_broadcast(frame, size, codec=job.down)
    previous = previous_model(job, run_state)
    sizes[round] = len(frame)
    orders = []
    for name in _cohort(job, round, fleet):
        budget = Budget(batches=cut(job, round, name, fleet[name].samples))
        orders.append(Order(name, Task(round, params, budget, told, previous), fleet[name].state))
    updates, answered = {}, list[Fact]()
    for order, done in zip(orders, engine.train(ModelRef(RUN_ID, sha256(frame).hexdigest()[:16]), orders), strict=True):
        device = fleet[order.device]
        updates[order.device] = opened_update(job, done.frame)
        device.state = done.kept
        spent.up += len(done.frame)
        answered.append(Answered(order.device, round, len(done.frame), steps=done.steps))
        returned = previous is not None and device.seen != round - 1
        spent.down += len(frame) + (sizes.get(round - 1, len(frame)) if returned else 0)
        device.seen = device.counted = round
    asked = Asked(round, opening, tuple(order.device for order in orders), spent.down)
    return updates, [asked, *answered, Closed(round, tuple(sorted(updates)))]


def _cohort(job: Job, round: int, fleet: Mapping[str, _Device]) -> tuple[str, ...]:
    """Whom the round asks; rounds that share a draw ask the same devices."""
    draw = cohort_key(job, round)
    for name, device in fleet.items():
        if device.draw != draw:
            device.draw, device.known = draw, Candidate(name, device.samples, counted=device.counted)
    candidates = [fleet[name].known for name in sorted(fleet)]
    return drawn(job.run.make_selection(), draw, job.run.run.seed, candidates)[: job.run.cohort]


def joined(job: Job, device: str, samples: int) -> Joined:
    """A simulated device is there, on no host of its own."""
    back_end = "torch" if job.graphs is None else "onnx"
    return Joined(device, samples, version=__version__, back_end=back_end)


def opened_update(job: Job, frame: bytes | bytearray, unseal: Unseal | None = None) -> Update:
    """The update in the frame of an answer that we packed ourselves."""
    size = job.model.layout.size
    answer, opened = read(TO_COORDINATOR, frame, limit=plain_limit(frame, size), unseal=unseal)
    assert isinstance(answer, Answer)  # noqa: S101 - we packed it ourselves
    return unpack_answer(answer, opened.body, size, job.up)


def cohort_key(job: Job, round: int) -> int:
    """The number that draws a round's cohort; rounds that share one share their devices."""
    return 1 + (round - 1) // job.algorithm.cohort_rounds


def previous_model(job: Job, run_state: RunState) -> Vector | None:
    """The model one round earlier, as devices received it."""
    if not job.algorithm.uses_previous or run_state.previous is None:
        return None
    return received(run_state.previous, job.down, job.model.layout)
