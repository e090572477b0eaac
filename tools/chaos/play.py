"""One seed, played: the real coordinators and agents in a world where everything goes wrong that the seed drew."""

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from coordinator.decide import core
from coordinator.durable import checkpoint_writer, segments
from coordinator.shell.device_keys import DeviceKeys
from device_agent.shell.service import OPEN
from edgefl.base.events import Fact
from edgefl.job.config.schema import RunFile
from edgefl.sim.world import Process, World
from edgefl.system.reactor import DeadlineReached
from edgefl.wire import chunks, simulated_keys, topics
from tools.chaos.decoded_payloads import kind
from tools.chaos.invariants import Invariants, Violation
from tools.chaos.machines import FLEET, ChaosMachine, CoordinatorMachine, DeviceMachine, MachineContext
from tools.chaos.progress import EVERY, Progress
from tools.chaos.scenario import Fault, Scenario, draw
from tools.chaos.story import PlayStory
from tools.failing_disk import PowerCut
from tools.faulty_network import ACROSS, Fate, FaultyBroker, Passing

PATIENCE, DEADLINES = 60.0, 6.0  # virtual seconds, and times a round's deadline, in which a mended fleet must get done
REST = OPEN + 15.0  # virtual seconds after the last run's end, in which all devices hear of it


@dataclass(frozen=True, slots=True)
class PlayOutcome:
    """What came of a seed."""

    seed: int
    violation: str = ""  # the rule and what broke it; empty: all is well
    story: str = ""  # the last lines of a play, where the story is wanted
    virtual_seconds: float = 0.0
    cpu_seconds: float = 0.0
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    compared: int = 0  # runs that could be compared with the plain loop


def play(seed: int, *, story: bool = False) -> PlayOutcome:
    """Play a seed to its end, or to the first thing that must not be; without that its `story` must be wished for."""
    began = process_time()
    scenario = draw(seed)
    with _quiet(), _pieces(scenario.piece), _segments(scenario.small_rounds):
        stage = Play(scenario)
        violation = stage.run()
    return PlayOutcome(
        seed,
        violation,
        stage.told() if violation or story else "",
        stage.world.now,
        process_time() - began,
        stage.events,
        stage.struck,
        stage.compared,
    )


@dataclass(slots=True)
class Loss:
    """The next few messages of a kind on one line, until then."""

    what: str
    client: str
    until: float
    left: int


class Play:
    """The stage, and all who are on it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.story = scenario, PlayStory()
        self.world = World(self._watch)
        self.broker = FaultyBroker(self.world, self._fate, brutal=True, largest=scenario.largest)
        signer = simulated_keys.signer("coordinator", scenario.seed)
        self.around = MachineContext(scenario, self.world, self.broker, signer, DeviceKeys(), self._note)
        self.devices = {one.name: DeviceMachine(one, self.around) for one in scenario.members}
        self.coordinators = {run.run.name: CoordinatorMachine(run, self.around, self._told) for run in scenario.runs}
        self.machines: dict[str, ChaosMachine] = {**self.coordinators, **self.devices}
        self.invariants = Invariants(self.devices, self.coordinators)
        self.progress = Progress(self.devices, self.coordinators, self.broker)
        self.chance = Random(f"{scenario.seed}/fates")
        self.storm_until = 0.0
        self.losses: list[Loss] = []
        self.broker_since = 0.0
        self.events = self.compared = 0
        self.struck: Counter[str] = Counter()
        self.down: dict[str, float] = {}  # machines that stay off until then
        self.full_disks = False

    # ---- the play ----------------------------------------------------------------------------------------------

    def run(self) -> str:
        """What must not be, and was; nothing if all went well."""
        try:
            for machine in self.machines.values():
                self._boot(machine)
            for fault in self.scenario.faults:
                self.world.at(fault.at, partial(self._strike, fault))
            self.world.at(self.scenario.healed, self._heal)
            self._look_for_progress()
            self._until(self._all_ended, self.scenario.healed + self._patience(), "progress")
            self._until(lambda: False, max(self.world.now, self.scenario.healed) + REST)
            self.invariants.at_the_end(self.broker, self.broker_since)
            for machine in self.coordinators.values():
                self.compared += self.invariants.same_as_the_loop(machine, self.full_disks)
        except Violation as violation:
            return str(violation)
        except Exception as error:  # noqa: BLE001 - whatever a shell raises is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            return f"crash: {type(error).__name__}: {error} ({Path(where.filename).name}, {where.name})"
        return ""

    def told(self) -> str:
        """The story of a play that failed."""
        scenario = self.scenario
        members = ", ".join(f"{one.name}{f' ({one.lie})' if one.lie else ''}" for one in scenario.members)
        runs = map(_about, scenario.runs)
        faults = (f"  {fault.at:7.2f}  {fault}" for fault in scenario.faults)
        planned = "faults:" if scenario.faults else "faults: none"
        return "\n".join([f"devices: {members}", *runs, planned, *faults, "", self.story.text()])

    def _until(self, so: Callable[[], bool], limit: float, rule: str = "") -> None:
        while not so():
            try:
                if not self.world.run(until=so, limit=limit):
                    break
            except PowerCut:
                for machine in self.machines.values():
                    if machine.dark:
                        self._lost_power(machine)
        else:
            return
        if rule:
            waits = "; ".join(f"{one.name}: {_standing(one)}" for one in self.coordinators.values() if not one.ended)
            raise Violation(rule, f"nothing is broken since {self.scenario.healed:.0f}, and at {limit:.0f} {waits}")

    def _all_ended(self) -> bool:
        return all(machine.ended for machine in self.coordinators.values())

    def _patience(self) -> float:
        return PATIENCE + DEADLINES * max(run.rounds.deadline for run in self.scenario.runs)

    def _look_for_progress(self) -> None:
        now, storm = self.world.now, self.world.now < self.storm_until
        if stuck := self.progress.stuck(now, self.invariants.twins, storm):
            raise Violation("progress", stuck)
        if not self._all_ended():
            self.world.later(EVERY, self._look_for_progress)

    # ---- faults ------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        machine = self.machines.get(fault.whom)
        if machine is not None and (machine.ended or (machine.process is None and fault.kind != "clock")):
            return
        self.struck[fault.kind] += fault.kind != "lost"  # which are counted one by one
        self._note("!", str(fault))
        match fault.kind:
            case "lost" if machine is not None:
                self.losses.append(Loss(fault.what, machine.client, self.world.now + fault.seconds, int(fault.amount)))
            case "storm":
                self.storm_until = max(self.storm_until, self.world.now + fault.seconds)
            case "broker":
                self.broker.stop()
                self.broker_since = self.world.now + fault.seconds
                self.world.later(fault.seconds, self.broker.begin)
            case "noise":
                self._noise(fault)
            case "twin":
                self._twin(fault)
            case _ if machine is not None:
                self._strike_machine(fault, machine)

    def _strike_machine(self, fault: Fault, machine: ChaosMachine) -> None:
        match fault.kind:
            case "kill":
                machine.kill()
                self._boot_later(machine, fault.seconds)
            case "power":
                self._lost_power(machine, fault.seconds)
            case "torn":
                machine.disk.power = int(fault.amount)
                self.down[machine.name] = fault.seconds
            case "rot" if isinstance(machine, CoordinatorMachine):
                machine.kill()
                machine.rot()
                self._boot_later(machine, fault.seconds)
            case "stop":
                machine.stop()
                self._boot_later(machine, fault.seconds + 6.0)
            case "cut" | "silence":
                self.broker.cut(machine.client, seconds=fault.seconds, silent=fault.kind == "silence")
            case "full":
                machine.disk.capacity = machine.disk.used
                self.full_disks |= isinstance(machine, DeviceMachine)
                self.world.later(fault.seconds, partial(self._emptied, machine))
            case "clock":
                machine.ahead += fault.amount
                if machine.process is not None:
                    machine.process.clock.jump(fault.amount)

    def _noise(self, fault: Fault) -> None:
        """Publish unreadable messages on all topics, from a client without a name in the fleet."""
        client = self.broker.client(f"noise-{self.world.now}")
        client.start(lambda _: None)
        garbage = Random(f"{self.scenario.seed}/noise/{fault.at}")
        for number in range(6):
            run = garbage.choice(self.scenario.runs).run.name
            where = garbage.choice(
                (topics.up(FLEET, run, "x9"), topics.presence(FLEET, "x9"), topics.state(FLEET, run))
            )
            self.world.later(number * 0.5, partial(client.publish, where, garbage.randbytes(60)))
        self.world.later(fault.seconds, client.close)

    def _twin(self, fault: Fault) -> None:
        """Give another device the same name, for a while."""
        original = self.devices[fault.whom]
        known = all(one.shell and fault.whom in one.shell.state.devices for one in self.coordinators.values())
        if not known or f"{fault.whom}*" in self.machines:
            return
        twin = self.machines[f"{fault.whom}*"] = DeviceMachine(
            original.member, self.around, installation=f"{fault.whom}*"
        )
        self.invariants.twins.add(fault.whom)
        twin.boot()
        self.world.later(fault.seconds, partial(self._retire, twin))

    def _retire(self, twin: ChaosMachine) -> None:
        twin.ended = True
        twin.kill()

    def _lost_power(self, machine: ChaosMachine, seconds: float | None = None) -> None:
        down = self.down.pop(machine.name, 3.0) if seconds is None else seconds
        self._note(machine.name, "has no power")
        machine.power_cut()
        self._boot_later(machine, down)

    def _boot_later(self, machine: ChaosMachine, seconds: float) -> None:
        self.world.later(seconds, partial(self._boot, machine))

    def _boot(self, machine: ChaosMachine) -> None:
        if machine.process is None and not machine.ended:
            self.invariants.before_boot(machine, self.broker, self.broker_since)
            self._note(machine.name, f"starts, life {machine.lives + 1}")
            machine.boot()

    def _emptied(self, machine: ChaosMachine) -> None:
        machine.disk.capacity = None

    def _heal(self) -> None:
        """Nothing is broken any more."""
        self._note("!", "all is mended")
        for machine in self.machines.values():
            machine.disk.capacity = None
            machine.disk.power = None
            if isinstance(machine, DeviceMachine) and machine.member.lie:
                machine.repent()
            self._boot(machine)

    # ---- messages ----------------------------------------------------------------------------------------------

    def _fate(self, passing: Passing) -> Fate:
        self.invariants.passing(passing)
        if self.losses and self._meant_to_be_lost(passing):
            return self._lost(passing)
        if self.world.now >= self.storm_until:
            return ACROSS
        weather, chance = self.scenario.weather, self.chance
        delay = chance.choice((0.1, 1.0, 4.0)) if chance.random() < weather.delayed else 0.0
        breaks = chance.choice(("before", "after")) if chance.random() < weather.broken / 4 else ""
        copies = 2 if not breaks and chance.random() < weather.doubled else 1
        if not breaks and chance.random() < weather.lost:
            return self._lost(passing)
        return Fate(delay, breaks, copies)  # type: ignore[arg-type]  # one of its words

    def _meant_to_be_lost(self, passing: Passing) -> bool:
        self.losses = [loss for loss in self.losses if loss.left and loss.until >= self.world.now]
        here = [loss for loss in self.losses if loss.client == passing.client]
        what = kind(passing.topic, passing.payload) if here else ""
        for loss in here:
            if loss.what == what:
                loss.left -= 1
                return True
        return False

    def _lost(self, passing: Passing) -> Fate:
        """Let the broker acknowledge a message and lose it."""
        self.struck["lost"] += 1
        what = kind(passing.topic, passing.payload)
        self._note("!", f"lost {what}, {'from' if passing.way == 'up' else 'to'} {passing.client}")
        self.invariants.lost(passing)
        self.progress.disturbed(passing.client, self.world.now)
        return Fate(copies=0)

    # ---- what is seen ------------------------------------------------------------------------------------------

    def _watch(self, process: Process, event: Any) -> None:
        self.events += 1
        machine = self.machines[process.name]
        if not isinstance(event, DeadlineReached):
            self.story.add(self.world.now, process.name, event)
        self.invariants.look(machine)
        if isinstance(machine, CoordinatorMachine) and machine.shell is not None and machine.shell.ended:
            self.invariants.ended(machine.name, self.world.now)

    def _told(self, run: str, fact: Fact) -> None:
        if fact.lasting:
            self.story.add(self.world.now, run, fact)
        self.invariants.told(run, fact)

    def _note(self, who: str, what: str) -> None:
        self.story.add(self.world.now, who, f"*** {what}" if who == "!" else what)


def _standing(machine: CoordinatorMachine) -> str:
    if machine.process is None or machine.shell is None:
        failed = machine.shell.error if machine.shell is not None else None
        return f"is off ({failed})" if failed else "is off"
    return core.waiting(machine.shell.state)


def _about(run: RunFile) -> str:
    rules = " ".join(f"{key}={value}" for key, value in run.rounds.model_dump(exclude_defaults=True).items())
    up, down = run.wire.up_codec().name, run.wire.down_codec().name
    return f"{run.run.name}: {run.algorithm['name']}, {run.run.rounds} rounds, {rules}, {up} up, {down} down"


@contextmanager
def _pieces(size: int) -> Iterator[None]:
    """Frames go in pieces of this size: real ones are so large that no frame of a small model would be cut."""
    before, chunks.CHUNK = chunks.CHUNK, size
    try:
        yield
    finally:
        chunks.CHUNK = before


@contextmanager
def _segments(rounds: int) -> Iterator[None]:
    """Let a segment of a journal be full after this number of rounds; models between are not saved."""
    before = segments.ROUNDS, checkpoint_writer.APART
    segments.ROUNDS, checkpoint_writer.APART = rounds, 0.0 if rounds == 1 else 3600.0
    try:
        yield
    finally:
        segments.ROUNDS, checkpoint_writer.APART = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the logs: what goes wrong here is on purpose."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
