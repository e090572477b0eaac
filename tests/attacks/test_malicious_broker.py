"""A broker that changes, doubles, swaps, repeats and loses messages: the model is the undisturbed one, or none.

Everything is real but time and the lines: coordinator, agents, envelopes, disks. What the broker gives to a client goes
through a `Meddler` first, and whatever coordinator and devices say to each other passes there. Every round needs every
device, or the broker could choose who counts by keeping answers back.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest

from coordinator.decide.devices import NAMELESS
from coordinator.shell.device_keys import DeviceKeys
from device_agent.shell.presence import Attendance
from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.job.config.schema import RunFile
from edgefl.sim.loop import simulate
from edgefl.sim.network import VirtualBroker, VirtualClient
from edgefl.sim.world import Process, World
from edgefl.system.hardware.line import Line
from edgefl.wire import chunks, simulated_keys, topics
from edgefl.wire.messages import Presence
from edgefl.wire.transport import Message
from tools.chaos.decoded_payloads import overheard
from tools.chaos.machines import CoordinatorMachine, DeviceMachine, MachineContext
from tools.chaos.scenario import Scenario, ScenarioDevice, Weather
from tools.chaos.softmax import fleet, make_job

SEED, ROUNDS, DEVICES = 11, 3, 3
HONEST = 600.0  # virtual seconds after which the broker is as it should be; the run takes less than one of them
RUN = RunFile.model_validate({
    "run": {"name": "alpha", "rounds": ROUNDS, "seed": SEED},
    "task": {"data": "none", "sample": [3], "classes": 3, "backend": "torch", "model": "softmax"},
    "algorithm": {"name": "fedavg", "epochs": 1, "batch": 4, "lr": 0.1},
    "rounds": {"cohort": DEVICES, "quorum": DEVICES, "start_with": DEVICES, "deadline": 20.0},
    "guards": {"strikes": 3, "quarantine_seconds": 20.0},
    "wire": {"enclose_kb": 0},
})  # fmt: skip
ENCLOSED = RunFile.model_validate({**RUN.model_dump(), "wire": {"enclose_kb": 64}})  # models come with their tasks
MEMBERS = tuple(ScenarioDevice(f"d{number}", 6 + number, 0.05, Line(0.01)) for number in range(1, DEVICES + 1))

ALL = "all"
PLACES = ("presence", "state", "down", "round", "up", "manifest", "chunk", ALL)
SAID = ("Assignment", "Call", "Receipt", "Answer")
ALONE = {"down", "Assignment", "Receipt"}  # where all are asked in one call, next to nothing is said to one device

Deliver: TypeAlias = Callable[[Message], None]


def kinds(message: Message) -> set[str]:
    """What a message is: what its topic is for, and what is said in it if it is one chunk."""
    parts, content = topics.parts(message.topic), overheard(message.topic, message.payload)
    place = "presence" if parts[0] == "presence" else parts[-1]
    return {"chunk" if place.isdigit() else place, type(content).__name__, ALL}


class Meddler:
    """Gives every message on as it is."""

    def __init__(self, world: World, whom: str) -> None:
        self.world, self.whom, self.chance = world, whom, Random(f"meddler/{whom}")
        self.meddled = 0  # messages so far

    def concerns(self, message: Message) -> bool:
        """Whether it is one of the kind that is meddled with, and there is time for it."""
        return bool(message.payload) and self.world.now < HONEST and self.whom in kinds(message)

    def pass_on(self, message: Message, deliver: Deliver) -> None:
        if self.concerns(message):
            self.meddled += 1
            self.meddle(message, deliver)
        else:
            deliver(message)

    def meddle(self, message: Message, deliver: Deliver) -> None:
        deliver(message)


class FlipsInPassing(Meddler):
    """In front of every message comes a copy with another bit somewhere."""

    def meddle(self, message: Message, deliver: Deliver) -> None:
        deliver(flipped(message, self.chance))
        deliver(message)


class FlipsInstead(Meddler):
    """Half of the messages come with another bit somewhere, and in no other way."""

    def meddle(self, message: Message, deliver: Deliver) -> None:
        deliver(flipped(message, self.chance) if self.chance.random() < 0.5 else message)


class Doubles(Meddler):
    def meddle(self, message: Message, deliver: Deliver) -> None:
        deliver(message)
        deliver(message)


class Repeats(Meddler):
    """Whatever a client was given it is given again, moments and minutes later, and in another order."""

    def meddle(self, message: Message, deliver: Deliver) -> None:
        deliver(message)
        for most in (0.1, 1.0, 30.0):
            self.world.later(self.chance.random() * most, partial(deliver, message))


class Swaps(Meddler):
    """Every message of one device, or to it, also comes with the payload that was last said by another, or to it."""

    def __init__(self, world: World, whom: str) -> None:
        super().__init__(world, whom)
        self.last: defaultdict[str, dict[str, bytes]] = defaultdict(dict)  # by the kind of topic, by the topic

    def meddle(self, message: Message, deliver: Deliver) -> None:
        parts = topics.parts(message.topic)
        others = self.last["presence" if parts[0] == "presence" else "/".join((parts[1], parts[-1]))]
        others[message.topic] = message.payload
        for topic, payload in others.items():
            if topic != message.topic:
                deliver(Message(message.topic, payload, retained=message.retained))
        deliver(message)


class SwapsInstead(Swaps):
    """Half of the messages come with what was said elsewhere, and in no other way."""

    def meddle(self, message: Message, deliver: Deliver) -> None:
        if self.chance.random() < 0.5:
            super().meddle(message, lambda given: deliver(given) if given is not message else None)
        else:
            deliver(message)


class Drops(Meddler):
    """Every third message is lost."""

    def meddle(self, message: Message, deliver: Deliver) -> None:
        if self.meddled % 3:
            deliver(message)


def flipped(message: Message, chance: Random) -> Message:
    payload = bytearray(message.payload)
    payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(8)
    return Message(message.topic, bytes(payload), retained=message.retained)


ADDS = (FlipsInPassing, Doubles, Repeats, Swaps)
TAKES = (FlipsInstead, SwapsInstead, Drops)


class MeddledClient(VirtualClient):
    """A client who hears what the meddler makes of it."""

    meddler: Meddler

    def hear(self, connection: Any, message: Message) -> None:
        self.meddler.pass_on(message, partial(super().hear, connection))


class MaliciousBroker(VirtualBroker):
    def __init__(self, world: World, meddler: Meddler) -> None:
        super().__init__(world)
        self.meddler = meddler

    def client(self, client_id: str, line: Line = Line(), process: Process | None = None) -> VirtualClient:  # noqa: B008 - frozen
        client = self._clients[client_id] = MeddledClient(self, client_id, line)
        client.meddler = self.meddler
        if process is not None:
            process.at_death.append(client.vanish)
        return client


class Play:
    """One run through such a broker."""

    def __init__(self, meddles: type[Meddler], whom: str, run: RunFile) -> None:
        self.world, self.facts = World(), list[Fact]()
        self.meddler = meddles(self.world, whom)
        self.broker = MaliciousBroker(self.world, self.meddler)
        scenario = Scenario(
            SEED, MEMBERS, (run,), (), Weather(0.0, 0.0, 0.0), preparing=0.0, merging=0.0, piece=chunks.CHUNK
        )
        signer = simulated_keys.signer("coordinator", SEED)
        around = MachineContext(scenario, self.world, self.broker, signer, DeviceKeys(), lambda _who, _what: None)
        self.devices = [DeviceMachine(member, around) for member in MEMBERS]
        self.coordinator = CoordinatorMachine(run, around, lambda _run, fact: self.facts.append(fact))

    def run(self) -> str:
        """Play it to its end and give back the model's hash; it may need a broker that is honest again, and no more."""
        machines = (self.coordinator, *self.devices)
        for machine in machines:
            machine.boot()
        if not self._ends(HONEST):  # a broker who wants it can keep everybody waiting, but not for longer
            for machine in machines:
                self.broker.cut(machine.client)
            assert self._ends(2 * HONEST), "nobody does anything to it any more, and it does not end"
        assert self.coordinator.shell is not None
        return self.coordinator.shell.result().sha256()

    def _ends(self, limit: float) -> bool:
        return self.world.run(until=lambda: self.coordinator.ended, limit=limit)

    def blamed(self) -> list[Fact]:
        """What was held against somebody."""
        facts = (fact for fact in self.facts if isinstance(fact, events.Quarantined | events.Refused))
        return [fact for fact in facts if fact.device != NAMELESS]


def check(meddles: type[Meddler], whom: str, run: RunFile) -> None:
    play = Play(meddles, whom, run)
    presence = Attendance.presence

    def talkative(self: Attendance, *, online: bool) -> Presence:
        return presence(self, online=online).model_copy(update={"concise": whom not in ALONE})

    with patch.object(Attendance, "presence", talkative):
        model = play.run()
    assert play.meddler.meddled, "it had nothing to meddle with"
    assert model == undisturbed(run)
    assert not play.blamed()


def undisturbed(run: RunFile) -> str:
    """The model of the plain loop, without a network."""
    data = fleet(SEED, [one.name for one in MEMBERS], [one.samples for one in MEMBERS])
    return simulate(make_job(run), data).sha256()


@pytest.mark.parametrize("whom", [*PLACES, *SAID])
@pytest.mark.parametrize("meddles", [*ADDS, *TAKES])
def test_whatever_a_broker_does_to_messages_the_model_is_the_undisturbed_one(meddles: type[Meddler], whom: str) -> None:
    check(meddles, whom, RUN)


@pytest.mark.parametrize("whom", ["down", "Assignment", "round", ALL])
@pytest.mark.parametrize("meddles", [*ADDS, *TAKES])
def test_nor_is_it_another_one_where_models_come_with_their_tasks(meddles: type[Meddler], whom: str) -> None:
    check(meddles, whom, ENCLOSED)


@pytest.mark.parametrize("whom", PLACES)
@pytest.mark.parametrize("meddles", [*ADDS, *TAKES])
def test_nor_is_it_another_one_where_messages_come_in_pieces(
    meddles: type[Meddler], whom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 150)
    monkeypatch.setattr(chunks, "TOGETHER", (2, 1) if whom in ("up", ALL) else (1,))
    check(meddles, whom, RUN)


@pytest.mark.parametrize("whom", PLACES)
@pytest.mark.parametrize("meddles", ADDS)
def test_nor_where_devices_keep_something_between_rounds(meddles: type[Meddler], whom: str) -> None:
    """Who trained a round twice would remember something else, so nothing is taken away here: that costs attempts."""
    check(meddles, whom, RUN.model_copy(update={"algorithm": {**RUN.algorithm, "name": "scaffold"}}))


def test_what_nobody_can_be_blamed_for_is_told_as_such() -> None:
    play = Play(Swaps, "up", RUN)
    play.run()
    told = [(fact.device, fact.reason) for fact in play.facts if isinstance(fact, events.Quarantined)]
    assert told == [
        (
            NAMELESS,
            "too many messages whose sender is not proven: for a while they are counted, but not listed one by one",
        )
    ]
