"""Alerts as the server carries them out: told once over every kill and power cut, and never lost."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base import events
from edgefl.base.errors import ConfigError, RemoteError, StoreError
from edgefl.server.decide.accuracy import DevicesScored
from edgefl.server.decide.alerts import AlertRules
from edgefl.server.shell.alerts import LOOK, AlertEquipment, Looked, RunStory
from edgefl.server.shell.service import OfAlerts, Server, ServerStopped, Surroundings
from edgefl.sim.world import World
from tools.chaos_server.machine import NoFleet, RecordedCoordinators, run_of
from tools.failing_disk import FailingDisk, PowerCut

HOUR, DAY = 3600.0, 86_400.0


class Post:
    """A channel that keeps what it was sent, or refuses it."""

    name = "post"

    def __init__(self):
        self.sent, self.refuses = [], False

    def send(self, notice):
        if self.refuses:
            raise RemoteError("test.closed", "closed")
        self.sent.append(notice)

    @property
    def causes(self):
        """Who was told of, by notices with ids of their own."""
        whole = {one.id: one for one in self.sent}.values()
        return [(one.what, alert.kind, alert.subject) for one in whole for alert in one.alerts]


class AlertingServer:
    """The lives of a server whose fleet a test speaks for."""

    def __init__(self):
        self.world, self.disk, self.post = World(), FailingDisk(), Post()
        self.stories, self.free, self.looks = {}, 1e12, 0
        self.start()

    def start(self):
        self.process = process = self.world.process("server")

        def put(event):
            process.put(OfAlerts(event))

        def background(seconds):
            worker = process.background(lambda _: seconds)
            worker._process = Aside(process, put)
            return worker

        rules = AlertRules(channels=("post",))
        equipment = AlertEquipment(rules, {"post": self.post}, background(1.0), {"post": background(2.0)}, self.look)
        coordinators = RecordedCoordinators(process.put)
        around = Surroundings(
            process.clock,
            self.disk,
            process.background(lambda _: 0.1),
            process.put,
            coordinators,
            lambda *_: None,
            alerts=equipment,
        )
        self.server = Server(around, {"default": NoFleet()})
        self.coordinators = coordinators
        process.run(self.server)

    def look(self, places):
        self.looks += 1
        return Looked(tuple(self.stories[one.name] for one in places if one.name in self.stories), self.free)

    def hear(self, *facts):
        for fact in facts:
            self.server.alerts.hear("default", fact)

    def pass_time(self, seconds):
        self.world.run(limit=self.world.now + seconds)

    def kill(self, seed=None):
        self.process.kill()
        if seed is not None:
            self.disk.crash(Random(seed))


class Aside:
    """The same process; what its background puts is for alerts."""

    def __init__(self, process, put):
        self.world, self.put, self._process = process.world, put, process

    @property
    def alive(self):
        return self._process.alive


@pytest.fixture
def machine():
    return AlertingServer()


def test_a_cause_is_sent_within_a_minute_of_its_time(machine):
    machine.hear(events.Lost("d1"))
    machine.pass_time(HOUR + LOOK + 5)
    assert machine.post.causes == [("opened", "away", "d1")]
    assert machine.server.alerts.state.outbox == {}


def test_what_was_told_is_not_told_after_a_kill(machine):
    machine.hear(events.Lost("d1"))
    machine.pass_time(2 * HOUR)
    for seed in range(3):
        machine.kill(seed)
        machine.start()
        machine.hear(events.Enrolled(("d1",)), events.Lost("d1"))
        machine.pass_time(2 * HOUR)
    assert len(machine.post.sent) == 1


def test_the_time_that_a_device_was_away_before_a_kill_counts(machine):
    machine.hear(events.Lost("d1"))
    machine.pass_time(HOUR / 2)
    machine.kill(1)
    machine.pass_time(HOUR / 4)
    machine.start()
    machine.hear(events.Lost("d1"))
    machine.pass_time(HOUR / 4 + LOOK + 5)
    assert machine.post.causes == [("opened", "away", "d1")]


def test_what_a_channel_refuses_is_sent_when_it_is_there_again_also_after_a_kill(machine):
    machine.post.refuses = True
    machine.hear(events.Lost("d1"))
    machine.pass_time(3 * HOUR)
    machine.kill(2)
    machine.start()
    machine.pass_time(HOUR)
    assert machine.post.sent == []
    machine.post.refuses = False
    machine.pass_time(2 * HOUR)
    assert [one.what for one in machine.post.sent] == ["opened"]


def test_a_full_disk_is_told_although_nothing_can_be_written(machine):
    machine.hear(events.Lost("d1"))
    machine.disk.capacity, machine.free = machine.disk.used, 1000
    machine.pass_time(HOUR + 2 * LOOK)
    assert sorted(machine.post.causes) == [("opened", "away", "d1"), ("opened", "disk", "server")]
    machine.disk.capacity, machine.free = None, 1e12
    machine.pass_time(2 * LOOK)
    machine.kill(3)
    machine.start()
    machine.hear(events.Lost("d1"))
    machine.pass_time(2 * HOUR)
    assert sorted(machine.post.causes) == [
        ("closed", "disk", "server"),
        ("opened", "away", "d1"),
        ("opened", "disk", "server"),
    ]


def test_a_run_that_stands_still_is_told_with_what_it_waits_for(machine):
    machine.server.submit("r", run_of("a"), "ann")
    machine.stories["a"] = RunStory("a", 600.0, "2 of 3 devices are there")
    machine.pass_time(2 * HOUR + 600 + 2 * LOOK)
    assert machine.post.causes == [("opened", "stalled", "a")]
    assert "2 of 3 devices are there" in machine.post.sent[0].alerts[0].reason
    machine.stories["a"] = RunStory("a", machine.world.now, "")
    machine.pass_time(HOUR)
    assert machine.post.causes[1:] == [("closed", "stalled", "a")]


def test_a_run_that_fails_is_told_with_its_reason(machine):
    machine.server.submit("r", run_of("a"), "ann")
    machine.coordinators.end("a", 2, "rounds.cohort is 0")
    machine.pass_time(3 * LOOK)
    assert machine.post.causes == [("opened", "failed", "a")]
    assert machine.post.sent[0].alerts[0].reason == "rounds.cohort is 0"


def test_the_last_rounds_of_a_run_that_has_ended_are_read(machine):
    machine.server.submit("r", run_of("a"), "ann")
    scored = tuple(DevicesScored(0.0, "default", "a", "a", n, {"d1": 0.9 if n < 3 else 0.5}) for n in range(5))
    machine.stories["a"] = RunStory("a", 1.0, "", scored)
    machine.pass_time(1)
    machine.coordinators.end("a")
    machine.pass_time(2 * LOOK)
    assert machine.post.causes == [("opened", "accuracy", "d1")]


@pytest.mark.parametrize("seconds", [20 * DAY, -20 * DAY])
def test_a_clock_that_is_set_tells_nothing_early_and_puts_nothing_off(machine, seconds):
    """As on a machine without a clock of its own, whose time comes from the network some minutes after its start."""
    machine.process.clock.jump(30 * DAY)
    machine.hear(events.Lost("d1"))
    machine.pass_time(HOUR / 2)
    machine.process.clock.jump(seconds)
    machine.pass_time(HOUR / 2 - LOOK)
    assert machine.post.sent == []
    machine.pass_time(3 * LOOK)
    assert machine.post.causes == [("opened", "away", "d1")]


def test_an_idle_server_writes_nothing_and_looks_once_a_minute(machine):
    machine.pass_time(10)
    before = machine.disk.writes
    machine.hear(*(events.Vitals("d1", temperature=40.0, disk_free=10**10) for _ in range(100)))
    machine.pass_time(HOUR)
    assert machine.disk.writes == before
    assert machine.looks == 61


def test_a_slow_look_is_not_begun_twice(machine):
    machine.server.alerts.equipment.looks._seconds = lambda _: 10 * LOOK
    machine.pass_time(HOUR)
    assert machine.looks <= 7


def test_a_person_quiets_an_alert_and_that_survives_a_power_cut(machine):
    machine.hear(events.Lost("d1"))
    machine.pass_time(2 * HOUR)
    (alert,) = machine.server.alerts.state.open
    machine.disk.capacity = machine.disk.used
    with pytest.raises(StoreError):
        machine.server.quiet(alert.id, "ann")
    assert machine.server.alerts.state.open == [alert]
    machine.disk.capacity = None
    machine.server.quiet(alert.id, "ann")
    machine.kill(4)
    machine.start()
    assert [one.quieted_by for one in machine.server.alerts.state.open] == ["ann"]
    with pytest.raises(ConfigError, match="no open alert has the id 'x'"):
        machine.server.quiet("x", "ann")


def test_alerts_of_a_fleet_that_is_no_longer_served_are_dropped(machine):
    machine.server.alerts.hear("old", events.Lost("d1"))
    machine.pass_time(2 * HOUR)
    machine.kill()
    machine.start()
    assert machine.server.alerts.state.alerts == {}
    machine.pass_time(2 * LOOK)
    machine.kill()
    machine.start()
    assert machine.server.alerts.written.alerts == {}


def test_a_server_that_is_stopped_writes_what_it_has_heard(machine):
    machine.hear(events.Lost("d1"))
    machine.process.put(ServerStopped())
    machine.pass_time(1)
    machine.start()
    assert [key[2] for key in machine.server.alerts.state.alerts] == ["d1"]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 99)), max_size=6), st.booleans())
def test_power_cuts_at_any_write_lose_no_message_and_tell_no_cause_twice(cuts, refuses):
    """Devices go for good one after another; the machine loses power at any step of its disk."""
    machine, gone = AlertingServer(), []
    machine.post.refuses = refuses

    def on():
        machine.start()
        machine.hear(events.Enrolled(("d0", "d1", "d2", "d3")), *(events.Lost(one) for one in gone))

    for number in range(4):
        gone.append(f"d{number}")
        machine.hear(events.Lost(gone[-1]))
        for _ in range(3):
            power, seed = cuts.pop() if cuts else (None, 0)
            machine.disk.power = power
            try:
                machine.pass_time(HOUR / 2 + LOOK)
            except PowerCut:
                machine.kill(seed)
                on()
            machine.disk.power = None
    machine.post.refuses = False
    machine.pass_time(3 * HOUR)
    assert sorted(machine.post.causes) == [("opened", "away", f"d{number}") for number in range(4)]
    assert machine.server.alerts.state.outbox == {}
