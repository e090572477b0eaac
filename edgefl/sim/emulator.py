"""The emulated fleet: the real coordinator and real agents in one thread, on a virtual clock.

    heap of virtual times ──▶ coordinator ◀── broker whose lines take time ──▶ agents ──▶ training, told of in due time

Nothing about rounds or devices is decided here: that is the coordinator's business and the agents'. Only the order of
virtual times decides what happens, so a run depends on its seed and on nothing else.
"""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter, process_time

from coordinator.decide import core
from coordinator.shell.service import Coordinator
from coordinator.shell.setup import Security
from device_agent.shell.service import Agent
from edgefl.base.errors import RunError
from edgefl.base.events import Abandoned, Described, Done, Evaluated, Fact, Round, Tell
from edgefl.base.vector import State
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import reporting
from edgefl.job.run.job import Job, RunState, Watch
from edgefl.job.run.simulated_fleet import objections
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.privacy.spending import spending
from edgefl.sim.early_end import EARLY
from edgefl.sim.emulated import EmulatedContext, EmulatedDevice, kinds
from edgefl.sim.engines import RUN_ID, Engine, InProcessEngine, held
from edgefl.sim.loop_memory import Ended, unasked
from edgefl.sim.network import VirtualBroker
from edgefl.sim.spent import Spent
from edgefl.sim.world import World
from edgefl.wire import simulated_keys

PATIENCE = 100  # deadlines without a merge, after which the round is given up
CYCLES = 3  # of the longest hours, after which neither
SETTLING = 600.0  # virtual seconds for the last receipts; a device that is offline for longer has what it had before
NO_LIMIT = 1e18
SERVICES = ("coordinator", "device_agent")  # whose logs are about machines that do not exist


def emulate(
    job: Job,
    devices: Mapping[str, Dataset],
    tell: Tell = lambda _: None,
    *,
    engine: Engine | None = None,
    watch: Watch = jobs.unwatched,
    ended: Ended = unasked,
) -> RunState:
    """Play all rounds on the virtual clock; `tell` hears everything that lasts, `watch` sees how the run stands.

    At the end, an early one as well, `ended` is shown what devices keep. After an early one receipts that are on their
    way do not arrive any more: what a device keeps may be that of a round before.
    """
    engine = engine or InProcessEngine(job, devices)
    with _quiet(), _threads(engine.parallel) as threads:
        emulator = Emulator(job, devices, tell, engine, threads, watch=watch)
        try:
            run_state = emulator.run()
        except EARLY:
            ended(emulator.state_of, emulator.agents())
            raise
        if ended is not unasked:
            emulator.settle()
            ended(emulator.state_of, emulator.agents())
        return run_state


class Emulator:
    """A world with a broker, a coordinator and its devices."""

    def __init__(
        self,
        job: Job,
        devices: Mapping[str, Dataset],
        tell: Tell,
        engine: Engine,
        threads: Executor | None = None,
        *,
        watch: Watch = jobs.unwatched,
    ) -> None:
        self.job, self._tell, self._watch = job, tell, watch
        self.world = World()
        signer = simulated_keys.signer(job.run.run.seed, "the coordinator")
        self.around = around = EmulatedContext(job, self.world, VirtualBroker(self.world), engine, signer.key, threads)
        self.devices = {
            name: EmulatedDevice(name, devices[name], kind, around) for name, kind in kinds(job, devices).items()
        }
        hours = [device.kind.availability for device in self.devices.values() if device.kind.availability]
        longest = max((one.on + one.off for one in hours), default=0.0)
        traces = [spans for device in self.devices.values() if (spans := device.kind.spans) is not None]
        self.trace_ends = max((spans[-1][1] for spans in traces if spans), default=0.0)
        self.patience = max(PATIENCE * job.run.rounds.deadline, CYCLES * longest, self.trace_ends)
        hardware = {name: device.kind.hardware for name, device in self.devices.items()}
        self.spent = Spent(hardware, lambda: sum(device.joules for device in self.devices.values()))
        self.stopped = ""  # why before its end, if so
        self.merged = 0.0  # when the last round was, in virtual seconds
        self.began, self.cpu, self.since = perf_counter(), process_time(), perf_counter()
        self.worked = self.cpu  # when the last round was told, in CPU seconds

        left = objections(job, {name: len(data) for name, data in devices.items()})
        there = sum([device.begin() for name, device in self.devices.items() if name not in left])
        for name in left:
            self.devices[name].begin()
        process = self.world.process("coordinator")
        self.coordinator = Coordinator(
            _house_rules(job.run, there if hours or traces or left else None),
            # a coordinator's own work takes no time
            process.wiring(around.broker.client("coordinator", process=process), lambda _: 0.0),
            lambda: job,
            tell=self.tell,
            security=Security(signer),
            run_id=RUN_ID,
        )
        process.run(self.coordinator)

    def run(self) -> RunState:
        """Let everything happen until the run has ended."""
        while not self.coordinator.ended and not self.stopped:
            if not self.world.next() or self.world.now - self.merged > self.patience:
                better = "lower rounds.quorum, raise rounds.deadline or give the fleet better devices"
                if self.trace_ends and self.world.now > self.trace_ends:
                    better = f"fleet.trace ends at {self.trace_ends:.0f} s: give it more lines, or the run fewer rounds"
                raise RunError(
                    f"the emulated fleet is stuck at {self.world.now:.0f} virtual seconds:"
                    f" {core.waiting(self.coordinator.state)}; {better}"
                )
            spent, run = self.spent, self.job.run
            if spent.round < run.run.rounds:
                self.stopped = run.budget.spent(spent.sent, spent.seconds, spent.joules)
        if self.stopped and not self.coordinator.ended:
            return self._stop(self.coordinator.artifacts.run_state)
        return self.coordinator.result()

    def settle(self) -> None:
        """Let the receipts arrive that were on their way when the run ended: with them devices keep what they kept."""
        until = self.world.now + SETTLING
        while any(agent.session.held for agent in self.agents().values()) and self.world.now < until:
            if not self.world.next():
                break

    def _stop(self, run_state: RunState | None) -> RunState:
        """End the run with the model that it has."""
        assert run_state is not None  # noqa: S101 - something was spent on it
        run_state = run_state if run_state.evaluation else jobs.look_now(self.job, run_state, None)
        more = {"stopped": self.stopped, "at": self.world.now}
        self.tell(reporting.summary(self.job, run_state, bytes_up=self.spent.up, bytes_down=self.spent.down, **more))
        return run_state

    def tell(self, fact: Fact) -> None:
        """Pass on what lasts; rounds and the end also say what they took on our own clock."""
        now = perf_counter()
        match fact:
            case Abandoned(round=round) if round in self.around.failures:
                raise self.around.failures[round]  # a fleet would try for ever; the loop ends here, too
            case Round(seconds=seconds, waiting_seconds=waited):
                fact = replace(
                    fact,
                    seconds=now - self.since,
                    waiting_seconds=0.0,
                    cpu_seconds=(work := process_time()) - self.worked,
                    virtual_seconds=seconds,
                    virtual_waiting_seconds=waited,
                    joules=self.spent.since_last_time(),
                )
                self.merged, self.since, self.worked = self.world.now, now, work
            case Evaluated() | Described():
                self.merged = self.world.now
            case Done(rounds_to_target=reached):
                fact = replace(
                    fact,
                    seconds=now - self.began,
                    cpu_seconds=process_time() - self.cpu,
                    virtual_seconds=self.merged,
                    virtual_seconds_to_target=None if reached is None else self.merged,
                    joules=self.spent.joules,
                    privacy=spending(self.job.algorithm, self.job.model.layout, self.kept().values()).get("privacy"),
                )
        self.spent.add(fact)
        if (run_state := self.coordinator.artifacts.run_state) is not None:
            self._watch(run_state)
        if fact.lasting:
            self._tell(fact)

    def kept(self) -> dict[str, tuple[int, State]]:
        """What each device keeps between rounds, with the number of its samples."""
        trained_on = held(self.job.run, {name: one.data for name, one in self.devices.items()})
        return {name: (len(trained_on[name][0]), self.state_of(name)) for name in self.agents()}

    def state_of(self, device: str) -> State:
        """Return what the device keeps between rounds."""
        return self.agents()[device].states.of(self.run_key)

    def agents(self) -> dict[str, Agent]:
        """The agents that were started last, by their devices."""
        return {name: one.agent for name, one in self.devices.items() if one.agent}

    @property
    def run_key(self) -> str:
        """What devices know the run by."""
        return f"{self.job.name}.{RUN_ID}"


def _house_rules(run: RunFile, there: int | None) -> RunFile:
    """The run's rules, without limits on traffic, because ideal devices send everything in the same minute, and
    without keys of devices, because those are of real ones.

    Where devices come and go, or the run asks only some of them, the first round is drawn from those of them that are
    `there` at its beginning; a quorum has to be there in any case.
    """
    rounds, most = run.rounds, {"megabytes_per_minute": NO_LIMIT, "messages_per_minute": NO_LIMIT}
    if there is not None and rounds.start_with is None:
        rounds = rounds.model_copy(update={"start_with": max(run.quorum, there)})
    return run.model_copy(update={"rounds": rounds, "guards": run.guards.model_copy(update=most), "devices": {}})


@contextmanager
def _threads(parallel: int) -> Iterator[Executor | None]:
    """One for each that can train at the same time, here or elsewhere."""
    if parallel == 1:
        yield None
        return
    with ThreadPoolExecutor(parallel, "emulated") as threads:
        yield threads


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of emulated devices that lose their connection, unless debug logs are on."""
    loggers = [logging.getLogger(name) for name in SERVICES]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
