"""Reactors of a few lines in virtual time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from typing import Any

import pytest

from edgefl.base.errors import EdgeflError
from edgefl.sim.world import Process, World
from edgefl.system.reactor import DeadlineReached, Reactor


class Diary:
    """Writes down what it hears and when; rings at the times it is given; ends when it hears so."""

    def __init__(self, process: Process, *alarms: float) -> None:
        self.process, self.alarms = process, sorted(alarms)
        self.pages: list[tuple[float, Any]] = []
        self.ended = False

    def start(self) -> None:
        self.pages.append((self.process.clock.now(), "start"))

    def handle(self, event: Any) -> None:
        now = self.process.clock.now()
        if isinstance(event, DeadlineReached):
            self.alarms = [alarm for alarm in self.alarms if alarm > now]
        self.pages.append((now, "woken" if isinstance(event, DeadlineReached) else event))
        self.ended = event == "end"

    def deadline(self) -> float | None:
        return self.alarms[0] if self.alarms else None


def diary(world: World, *alarms: float, name: str = "d") -> tuple[Process, Diary]:
    process = world.process(name)
    shell = Diary(process, *alarms)
    process.run(shell)
    return process, shell


def test_a_shell_of_the_world_is_a_reactor():
    _, shell = diary(World())
    reactor: Reactor = shell
    assert not reactor.ended


def test_things_happen_in_the_order_of_their_times_and_then_of_their_arrangement():
    world, seen = World(), []
    for name, seconds in [("c", 2.0), ("a", 1.0), ("b", 1.0), ("d", 2.0)]:
        world.later(seconds, partial(seen.append, name))
    assert not world.run()
    assert seen == ["a", "b", "c", "d"]
    assert world.now == 2.0


def test_what_is_arranged_for_the_past_happens_now():
    world, seen = World(), []
    world.later(5.0, lambda: world.at(1.0, lambda: seen.append(world.now)))
    world.run()
    assert seen == [5.0]


def test_the_world_stops_at_a_limit_or_when_it_is_so():
    world, seen = World(), []
    for seconds in (1.0, 2.0, 3.0):
        world.later(seconds, partial(seen.append, seconds))
    assert world.run(until=lambda: len(seen) == 1)
    assert not world.run(limit=2.5)
    assert (seen, world.now) == ([1.0, 2.0], 2.5)


def test_a_shell_is_woken_at_its_deadline_and_not_before():
    world = World()
    process, shell = diary(world, 3.0, 7.0)
    world.later(1.0, partial(process.put, "hello"))
    world.run()
    assert shell.pages == [(0.0, "start"), (1.0, "hello"), (3.0, "woken"), (7.0, "woken")]


def test_a_deadline_that_moves_is_followed_both_ways():
    world = World()
    process, shell = diary(world, 5.0)

    def move(alarm: float) -> None:
        shell.alarms = [alarm]
        process.put(alarm)

    world.later(1.0, partial(move, 9.0))
    world.later(2.0, partial(move, 4.0))
    world.later(3.0, partial(move, 8.0))
    world.run()
    assert [page for page in shell.pages if page[1] == "woken"] == [(8.0, "woken")]


def test_a_shell_that_never_rests_is_an_error_and_no_endless_loop():
    world = World()
    _, shell = diary(world, 1.0)
    shell.handle = lambda _: None  # type: ignore[method-assign]  # it forgets to take its alarm off
    with pytest.raises(EdgeflError, match="again and again"):
        world.run()


def test_an_ended_shell_is_cleaned_up_behind_and_hears_nothing_more():
    world, cleaned = World(), []
    process = world.process("d")
    shell = Diary(process, 10.0)
    process.run(shell, at_end=lambda: cleaned.append(world.now))
    world.later(1.0, partial(process.put, "end"))
    world.later(2.0, partial(process.put, "too late"))
    world.run()
    assert [event for _, event in shell.pages] == ["start", "end"]
    assert cleaned == [1.0]


def test_what_is_on_its_way_to_a_killed_process_is_gone_and_the_next_one_is_another():
    world = World()
    process, first = diary(world, 5.0)
    process.background(lambda _: 4.0).start(lambda put: put("worked"))
    world.later(3.0, process.kill)
    world.run(limit=3.0)
    process.put("to the dead")
    _, second = diary(world)
    world.run()
    assert [event for _, event in first.pages] == ["start"]
    assert second.pages == [(3.0, "start")]


def test_the_clock_on_the_wall_may_jump_and_the_stop_watch_does_not():
    world = World()
    right, wrong = world.process("a").clock, world.process("b").clock
    world.later(2.0, partial(wrong.jump, -3600.0))
    world.later(3.0, lambda: None)
    world.run()
    assert (right.now(), wrong.now()) == (3.0, 3.0)
    assert (right.wall(), wrong.wall()) == (3.0, -3597.0)


def test_work_is_told_of_when_its_time_has_come_and_one_after_another():
    world = World()
    process, shell = diary(world)
    background = process.background(sum)

    def two(put: Any) -> None:
        put(0.5)
        put(1.5)

    background.start(two)
    background.start(lambda put: put(5.0))
    world.run()
    assert shell.pages[1:] == [(2.0, 0.5), (2.0, 1.5), (7.0, 5.0)]


def test_work_that_fails_is_told_and_the_next_is_done():
    world = World()
    process, shell = diary(world)
    background = process.background(lambda _: 1.0)
    background.start(lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    background.start(lambda put: put("done"))
    world.run()
    crashed, done = [event for _, event in shell.pages[1:]]
    assert isinstance(crashed.error, ZeroDivisionError)
    assert done == "done"


def test_cancelled_work_is_not_told_of_and_the_next_begins_at_once():
    world = World()
    process, shell = diary(world)
    background = process.background(lambda _: 5.0)
    background.start(lambda put: put("cancelled"))
    background.start(lambda put: put("never begun"))
    world.later(1.0, background.cancel)
    world.later(1.0, partial(background.start, lambda put: put("wanted")))
    world.run()
    assert shell.pages[1:] == [(6.0, "wanted")]


def test_work_that_never_ends_is_never_told_of():
    world = World()
    process, shell = diary(world)
    background = process.background(lambda events: inf if "lost" in events else 1.0)
    background.start(lambda put: put("lost"))
    background.start(lambda put: put("waits for ever"))
    world.run()
    assert shell.pages[1:] == []


def test_an_executor_does_what_is_begun_in_one_moment_at_the_same_time():
    world, both = World(), threading.Barrier(2)

    def work(put: Any) -> None:
        put(both.wait(timeout=60))  # nobody passes alone

    with ThreadPoolExecutor(2) as executor:
        shells = []
        for name in ("a", "b"):
            process, shell = diary(world, name=name)
            process.background(lambda _: 1.0, executor).start(work)
            shells.append(shell)
        world.run()
    assert sorted(event for shell in shells for _, event in shell.pages[1:]) == [0, 1]


def test_a_closed_background_begins_nothing_more():
    world = World()
    process, shell = diary(world)
    background = process.background(lambda _: 1.0)
    background.start(lambda put: put("begun"))
    background.start(lambda put: put("not begun"))
    world.run(limit=0.5)
    background.close()
    background.start(lambda put: put("nor this"))
    world.run()
    assert shell.pages[1:] == [(1.0, "begun")]


def test_somebody_may_watch_every_event():
    seen = []
    world = World(watch=lambda process, event: seen.append((process.name, event)))
    one, _ = diary(world, name="one")
    two, _ = diary(world, name="two")
    one.put("a")
    two.put("b")
    world.run()
    assert seen == [("one", "a"), ("two", "b")]
