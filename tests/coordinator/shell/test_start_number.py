"""What a coordinator says after a restart is newer than all it said before, whatever its clock says."""

from itertools import pairwise
from random import Random

import pytest

from coordinator.durable.journal import Journal
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.outbox import start_number
from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.job.config.schema import RunFile
from edgefl.sim.loop import simulate
from edgefl.sim.network import VirtualBroker
from edgefl.sim.world import VirtualClock, World
from edgefl.system.hardware.line import Line
from edgefl.system.memory_disk import MemoryDisk
from edgefl.wire import chunks, signed, simulated_keys, topics
from edgefl.wire.transport import ConnectionMade, Message, TransportEvent
from tools.chaos.machines import CoordinatorMachine, DeviceMachine, MachineContext
from tools.chaos.scenario import Scenario, ScenarioDevice, Weather
from tools.chaos.softmax import fleet, make_job
from tools.failing_disk import FailingDisk

YEAR = 365 * 86_400.0
SEED = 5
RUN = RunFile.model_validate({
    "run": {"name": "alpha", "rounds": 4, "seed": SEED},
    "task": {"data": "none", "sample": [3], "classes": 3, "backend": "torch", "model": "softmax"},
    "algorithm": {"name": "fedavg", "epochs": 1, "batch": 4, "lr": 0.1},
    "rounds": {"cohort": 2, "quorum": 2, "start_with": 2},
})  # fmt: skip
MEMBERS = tuple(ScenarioDevice(f"d{number}", 6, 0.05, Line(0.01)) for number in (1, 2))


@pytest.mark.parametrize("jump", [-YEAR, -1.0, 0.0, 1.0, YEAR])
def test_each_start_has_a_larger_number_than_the_one_before(jump: float) -> None:
    disk, clock, numbers = MemoryDisk(), VirtualClock(World(), ahead=50 * YEAR), []
    for _ in range(4):
        numbers.append(start_number(Journal(disk, clock=clock), int(clock.wall())))
        clock.jump(jump)
    assert numbers[0] == 50 * YEAR
    assert all(before < after for before, after in pairwise(numbers))


@pytest.mark.parametrize("seed", range(20))
def test_the_number_is_on_the_disk_before_anything_is_said_with_it(seed: int) -> None:
    disk, clock = FailingDisk(), VirtualClock(World(), ahead=50 * YEAR)
    number = start_number(Journal(disk, clock=clock), int(clock.wall()))
    clock.jump(-YEAR)
    disk.crash(Random(seed))
    assert start_number(Journal(disk, clock=clock), int(clock.wall())) == number + 1


@pytest.mark.parametrize("jump", [-YEAR, 0.0, YEAR])
def test_a_device_that_heard_the_first_life_obeys_the_second(jump: float) -> None:
    world, facts, counters = World(), list[Fact](), list[tuple[int, int]]()
    broker = VirtualBroker(world)
    scenario = Scenario(SEED, MEMBERS, (RUN,), (), Weather(), preparing=0.0, merging=0.0, piece=chunks.CHUNK)
    signer = simulated_keys.signer("coordinator", SEED)
    around = MachineContext(scenario, world, broker, signer, DeviceKeys(), lambda _who, _what: None)
    devices = [DeviceMachine(member, around) for member in MEMBERS]
    coordinator = CoordinatorMachine(RUN, around, lambda _run, fact: facts.append(fact))
    coordinator.ahead = 50 * YEAR

    def note(event: TransportEvent) -> None:
        if isinstance(event, ConnectionMade):
            listener.subscribe(topics.down("default", "alpha", "d1"), topics.round("default", "alpha"))
        if isinstance(event, Message) and event.payload:
            counters.append((coordinator.lives, signed.opened(event.payload).counter))

    def closed() -> int:
        return sum(isinstance(fact, events.Closed) for fact in facts)

    listener = broker.client("listener")
    listener.start(note)
    for machine in (coordinator, *devices):
        machine.boot()
    assert world.run(until=lambda: closed() == 2, limit=60.0)
    coordinator.kill()
    coordinator.ahead += jump
    coordinator.boot()
    assert world.run(until=lambda: coordinator.ended, limit=300.0)

    first, second = ([counter for life, counter in counters if life == number] for number in (1, 2))
    assert max(first) < min(second)
    assert [counter for _, counter in counters] == sorted(counter for _, counter in counters)
    assert all(device.agent is not None and not device.agent.refusals for device in devices)
    assert coordinator.shell is not None
    data = fleet(SEED, [one.name for one in MEMBERS], [one.samples for one in MEMBERS])
    assert coordinator.shell.result().sha256() == simulate(make_job(RUN), data).sha256()
