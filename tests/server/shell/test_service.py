"""The server's shell: nothing that was taken in is lost, and nothing is done before it is written."""

import pytest

from edgefl.base.errors import ConfigError, StoreError
from edgefl.server.decide.vocabulary import Recurring, RunChanged
from edgefl.server.shell.service import ServerStopped
from tools.chaos_server.machine import VirtualServer, run_of

DAY = 86_400.0


@pytest.fixture
def machine():
    return VirtualServer()


def test_a_submitted_run_works_and_ends(machine):
    machine.server.submit("r", run_of("a"), "ann")
    assert machine.coordinators.started == ["a"]
    machine.coordinators.end("a")
    machine.pass_time(1)
    assert machine.phases() == {"a": "finished"}


def test_a_server_that_was_killed_goes_on_with_what_worked_and_what_waits(machine):
    for name in "abc":
        machine.server.submit(name, run_of(name), "ann")
    machine.kill(seed=1)
    machine.start()
    assert machine.coordinators.started == ["a", "b"]
    assert machine.phases() == {"a": "working", "b": "working", "c": "queued"}


def test_a_request_that_was_answered_is_known_after_a_power_cut(machine):
    machine.server.submit("r", run_of("a"), "ann")
    machine.kill(seed=2)
    machine.start()
    assert machine.server.submit("r", run_of("a"), "ann") == "a"
    assert machine.coordinators.started == ["a"]


def test_every_fact_reaches_a_reader_and_is_told_again_after_a_kill(machine):
    machine.server.submit("r", run_of("a"), "ann")
    before = dict(machine.facts)
    machine.kill()
    machine.told.clear()
    machine.start()
    assert set(before) <= set(machine.told)
    assert sorted(machine.facts) == list(range(1, len(machine.facts) + 1))


def test_while_the_disk_is_full_people_are_told_and_ends_wait(machine):
    machine.server.submit("r", run_of("a"), "ann")
    machine.disk.capacity = machine.disk.used
    machine.coordinators.end("a")
    machine.pass_time(30)
    assert machine.phases() == {"a": "working"}
    with pytest.raises(StoreError, match="full"):
        machine.server.submit("r2", run_of("b"), "ann")
    machine.disk.capacity = None
    machine.pass_time(5)
    assert machine.phases() == {"a": "finished"}
    assert machine.server.submit("r2", run_of("b"), "ann") == "b"


def test_a_start_that_cannot_be_written_starts_nothing(machine):
    machine.disk.capacity = machine.disk.used
    with pytest.raises(StoreError):
        machine.server.submit("r", run_of("a"), "ann")
    assert (machine.coordinators.started, machine.phases()) == ([], {})


def test_a_run_of_another_fleet_is_refused(machine):
    with pytest.raises(ConfigError, match="does not serve fleet 'south'"):
        machine.server.submit("r", run_of("a").__class__("a", "south", ""), "ann")


def test_a_wrong_wish_is_an_error_of_the_person(machine):
    with pytest.raises(ConfigError, match="no run 'x'"):
        machine.server.wish("x", "pause", "ann")


def test_a_schedule_fires_each_night(machine):
    machine.server.submit("r", run_of("night", recurring=Recurring("0 2 * * *", "UTC")), "ann")
    for night in range(1, 4):
        machine.pass_time(DAY)
        assert machine.coordinators.started[-1] == f"night-{night}"
        machine.coordinators.end(f"night-{night}")
    assert len(machine.coordinators.started) == 3


def test_a_schedule_that_was_missed_in_a_power_cut_fires_once(machine):
    machine.server.submit("r", run_of("night", recurring=Recurring("0 2 * * *", "UTC")), "ann")
    machine.kill(seed=3)
    machine.pass_time(5 * DAY)
    machine.start()
    machine.pass_time(60)
    assert machine.coordinators.started == ["night-1"]


def test_the_folders_of_old_runs_go_and_their_history_stays(machine):
    machine.server.submit("r", run_of("night", recurring=Recurring("0 2 * * *", "UTC"), keep=2), "ann")
    for night in range(1, 6):
        machine.pass_time(DAY)
        machine.coordinators.end(f"night-{night}")
    machine.pass_time(60)
    assert machine.deleted == ["night-1", "night-2", "night-3"]
    assert set(machine.phases()) == {f"night-{night}" for night in range(1, 6)}
    assert RunChanged("night-1", "default", "deleted") in machine.facts.values()


def test_a_coordinator_that_ends_by_itself_is_started_again(machine):
    machine.server.submit("r", run_of("a"), "ann")
    machine.coordinators.end("a", -9)
    machine.pass_time(60)
    assert machine.coordinators.started == ["a", "a"]


def test_when_it_is_stopped_its_coordinators_end(machine):
    machine.server.submit("r", run_of("a"), "ann")
    machine.process.put(ServerStopped())
    machine.pass_time(1)
    assert (machine.server.ended, machine.coordinators.alive) == (True, {})
    machine.start()
    assert machine.coordinators.started == ["a"]
