"""When a device may train: a pure decision, and a device that rests and comes back."""

import json
from datetime import time
from typing import Any

import pytest
from test_virtual_agent import BATCHES, SIGNER, Asks, switched_on

from device_agent.decide.conditions import silent, unmet
from device_agent.shell.presence import REST, UNMET
from device_agent.shell.setup import Hooks, Limits
from device_agent.shell.training import WorkProgressed
from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.allowance import Allowance
from edgefl.job.config.reader import parse
from edgefl.sim.network import VirtualBroker
from edgefl.sim.world import World
from edgefl.system.memory_disk import MemoryDisk
from edgefl.wire import signed
from edgefl.wire.messages import TO_COORDINATOR, DeclinedMessage, WireVitals, Working, peek
from edgefl.wire.signing import claim
from edgefl.wire.transport import Message

FINE = WireVitals(temperature=50.0, load=0.2, disk_free=10_000_000_000, battery=0.8, charging=True)
NOON = time(12, 0)


def conditions(**given: Any) -> Any:
    return parse(AgentFile, {"conditions": given}, "agent.toml", environment={}).conditions


@pytest.mark.parametrize(
    ("given", "vitals", "reason"),
    [
        ({"max_temperature": 70}, {"temperature": 84.0}, "84.0 °C, at most 70"),
        ({"min_battery": 30}, {"battery": 0.25}, "battery 25%, at least 30 %"),
        ({"charging": True}, {"charging": False}, "it is not charging"),
        ({"max_load": 0.5}, {"load": 0.75}, "load 0.75, at most 0.5"),
        ({"min_disk_mb": 500}, {"disk_free": 499_000_000}, "499 MB of disk free, at least 500"),
        ({"hours": "22:00-06:00"}, {}, "it is 12:00, its hours are 22:00-06:00"),
    ],
)
def test_each_condition_holds_or_says_why_not(given: dict[str, Any], vitals: dict[str, Any], reason: str) -> None:
    assert unmet(conditions(**given), FINE.model_copy(update=vitals), NOON) == reason
    assert unmet(conditions(**given), FINE, time(23, 0)) == ""
    assert unmet(conditions(**given), WireVitals(), time(23, 0)) == "", "what a machine does not tell is no objection"
    assert unmet(conditions(), FINE.model_copy(update=vitals), NOON) == ""


def test_conditions_that_a_machine_has_nothing_to_say_about_are_known() -> None:
    all_of_them = conditions(max_temperature=70, min_battery=30, charging=True, max_load=0.5, min_disk_mb=1)
    assert silent(all_of_them, FINE) == []
    assert silent(all_of_them, WireVitals(load=0.1)) == ["max_temperature", "min_battery", "charging"]
    assert silent(conditions(hours="22:00-06:00"), WireVitals()) == []


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        ("22:00-06:00", [time(22), time(23, 59), time(0), time(5, 59)], [time(6), time(21, 59)]),
        ("9:30-17:00", [time(9, 30), time(16, 59)], [time(9, 29), time(17)]),
        ("0:00-0:00", [time(0), time(12)], []),
    ],
)
def test_hours_may_go_over_midnight(hours: str, inside: list[time], outside: list[time]) -> None:
    c = conditions(hours=hours)
    assert all(c.in_hours(now) for now in inside)
    assert not any(c.in_hours(now) for now in outside)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"hours": "at night"}, 'conditions.hours = "at night": write two times of day, as in "22:00-06:00"'),
        ({"hours": "22:00-24:00"}, "conditions.hours"),
        ({"max_temprature": 70}, "did you mean 'max_temperature'?"),
        ({"min_battery": 130}, "conditions.min_battery = 130"),
        ({"max_load": float("nan")}, "conditions.max_load"),
    ],
)
def test_a_mistake_is_named(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match="conditions") as error:
        conditions(**given)
    assert complaint in str(error.value)


class Overhears(Asks):
    """Keeps what the device says of itself."""

    def __init__(self, *about: Any, **budget: Any) -> None:
        self.presences: list[dict[str, Any]] = []
        self.short: list[tuple[float, Any]] = []
        super().__init__(*about, **budget)

    def hear(self, event: Any) -> None:
        if isinstance(event, Message) and "/presence/" in event.topic:
            self.presences.append(json.loads(signed.opened(event.payload).payload))
        super().hear(event)

    def assembled(self, payload: bytes) -> Any:
        whole = super().assembled(payload)
        if whole and isinstance(message := peek(TO_COORDINATOR, whole[1])[0], DeclinedMessage | Working):
            self.short.append((self.world.now, message))
        return whole


class Fleet:
    """One agent with a machine that can be heated."""

    def __init__(self, coordinator: type[Overhears] = Overhears, **more: Any) -> None:
        self.world = World()
        broker = VirtualBroker(self.world)
        self.asks = coordinator(self.world, broker)
        self.vitals, self.looks = FINE, 0
        self.process = self.world.process("pi")
        hooks = Hooks(machine=self.look, unmet=self.unmet)
        self.agent = switched_on(self.process, broker, MemoryDisk(), hooks=hooks, **more)

    def look(self) -> WireVitals:
        self.looks += 1
        return self.vitals

    def unmet(self, vitals: WireVitals) -> str:
        return unmet(conditions(max_temperature=70), vitals, NOON)


HOT = FINE.model_copy(update={"temperature": 84.0})


def test_one_that_is_too_hot_at_its_start_says_so_and_is_not_asked() -> None:
    fleet = Fleet()
    fleet.vitals = HOT
    fleet.world.run(until=lambda: bool(fleet.asks.presences))
    (told,) = fleet.asks.presences
    assert (told["online"], told["resting"]) == (False, "rests: 84.0 °C, at most 70")
    assert told["vitals"]["temperature"] == 84.0
    fleet.world.run(limit=10 * REST)
    assert not fleet.asks.answers
    fleet.vitals = FINE
    assert fleet.world.run(until=lambda: bool(fleet.agent.session.committed), limit=fleet.world.now + 2 * REST)
    assert [(one["online"], one["resting"]) for one in fleet.asks.presences[-1:]] == [(True, "")]


def test_one_that_is_asked_when_it_is_too_hot_declines_rests_and_comes_back() -> None:
    fleet = Fleet()
    fleet.world.run(until=lambda: bool(fleet.asks.presences))  # it is there, and the task is on its way
    fleet.vitals = HOT
    assert fleet.world.run(until=lambda: len(fleet.asks.presences) == 2, limit=100.0)
    ((_, declined),) = fleet.asks.short
    assert (declined.kind, declined.reason) == ("declined", "84.0 °C, at most 70")
    assert [one["online"] for one in fleet.asks.presences] == [True, False]
    assert not fleet.agent.model_cache.underway, "what it will not train on is not fetched"
    fleet.vitals = FINE
    assert fleet.world.run(until=lambda: bool(fleet.agent.session.committed), limit=fleet.world.now + 2 * REST)
    assert [one["online"] for one in fleet.asks.presences] == [True, False, True]


def test_one_with_an_allowance_says_that_it_rests_and_not_how_its_machine_fares() -> None:
    fleet = Fleet(limits=Limits(allowance=Allowance(epsilon=8.0)))
    fleet.world.run(until=lambda: bool(fleet.asks.presences))
    fleet.vitals = HOT
    assert fleet.world.run(until=lambda: len(fleet.asks.presences) == 2, limit=100.0)
    ((_, declined),) = fleet.asks.short
    assert declined.reason == UNMET
    assert [one["resting"] for one in fleet.asks.presences] == ["", f"rests: {UNMET}"]
    assert [one["vitals"] for one in fleet.asks.presences] == [None, None]


def test_an_idle_device_looks_at_nothing() -> None:
    fleet = Fleet()
    assert fleet.world.run(until=lambda: bool(fleet.agent.session.committed), limit=100.0)
    looks = fleet.looks
    fleet.world.run(limit=fleet.world.now + 86_400)
    assert fleet.looks == looks


class Patient(Overhears):
    """Asks for a training of 500 steps of half a second each."""

    @staticmethod
    def manifest() -> bytes:
        statement = claim(Asks.manifest()).statement
        return SIGNER.sign(statement.replace(b'"batches":%d' % BATCHES, b'"batches":500'))


def test_a_long_training_tells_its_vitals_once_a_minute_and_before_its_answer() -> None:
    fleet = Fleet(Patient)
    assert fleet.world.run(until=lambda: fleet.agent.session.phase == "training", limit=100.0)
    for second in range(1, 200):
        fleet.world.run(limit=float(second))
        fleet.process.put(WorkProgressed(fleet.agent.trainer.number, 1, 2 * second))
    assert fleet.world.run(until=lambda: bool(fleet.agent.session.committed), limit=1000.0)
    told = [at for at, message in fleet.asks.short if message.vitals is not None]
    assert told == pytest.approx([1, 61, 121, 181, 250], abs=1.0)
    assert len(fleet.asks.short) == 199 + 1


def test_the_first_work_for_a_run_tells_them_once_whoever_came_first() -> None:
    fleet = Fleet()
    assert fleet.world.run(until=lambda: bool(fleet.agent.session.committed), limit=100.0)
    assert fleet.asks.presences[0]["vitals"]["temperature"] == 50.0
    ((_, working),) = fleet.asks.short
    assert working.vitals == FINE
