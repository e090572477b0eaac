"""What one device puts into the story is bounded, whatever it does; the rest is counted."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_core import HERE, RULES, feed, joined, merged, opened

from coordinator.decide import core, story_limit
from coordinator.decide.devices import SETTLING
from coordinator.decide.rounds import DeviceDeclined
from coordinator.decide.state import State
from coordinator.decide.story_limit import FACTS, HOUR, VITALS, StoryLimit, recalled
from coordinator.decide.vocabulary import Announced, AnswerArrived, Event, Misbehaved, Stop, Woken
from edgefl.base import events
from edgefl.base.events import Fact

AWAY = replace(HERE, online=False)
KINDS: list[type[Fact]] = [events.Joined, events.Lost, events.DataMended]


def written(s: State, happened: list[Event]) -> tuple[State, list[Fact], list[Fact]]:
    """The facts that go into the story, and all that are told."""
    story: list[Fact] = []
    told: list[Fact] = []
    for event in happened:
        s, _, facts = core.step(s, event)
        told += facts
        story += [fact for place, fact in enumerate(facts) if fact.lasting and place not in s.left_out]
    return s, story, told


def flapping(device: str, times: int, *, since: float = 100.0, every: float = 0.2) -> list[Event]:
    """It comes and goes, and is there at the end."""
    return [Announced(since + every * n, device, AWAY if n % 2 else HERE) for n in range(2 * times + 1)]


def of(kind: type[Fact], facts: list[Fact]) -> list[Fact]:
    return [fact for fact in facts if isinstance(fact, kind)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(KINDS), st.floats(0, 400)), max_size=150))
def test_of_each_hour_so_much_is_written_down_and_nothing_is_forgotten(
    happened: list[tuple[str, type[Fact], float]],
) -> None:
    limit, at, story = StoryLimit(), 0.0, list[tuple[str, str, float]]()
    left_out, everything = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for device, kind, passed in happened:
        at += passed
        if limit.due is not None and at >= limit.due:
            limit, summaries = limit.ended(at, lambda _device: False)
            for one in summaries:
                left_out.update({(one.device, name): number for name, number in one.times.items()})
        what = device, kind.__name__.lower()
        limit, places = limit.admitted([kind(device)], at, heeded=False)  # type: ignore[call-arg]
        everything[what] += 1
        if not places:
            story.append((*what, at))
    for what in everything:
        moments = [at for device, kind, at in story if (device, kind) == what]
        for number, moment in enumerate(moments):
            assert sum(moment <= other < moment + HOUR for other in moments[number:]) <= 2 * FACTS
    _, summaries = limit.ended(at + HOUR, lambda _device: False)
    for one in summaries:
        left_out.update({(one.device, name): number for name, number in one.times.items()})
    assert Counter((device, kind) for device, kind, _ in story) + left_out == everything


def test_a_device_that_comes_and_goes_costs_so_many_facts_and_is_told_of_in_one() -> None:
    times = 2000
    s, story, told = written(opened(), flapping("c", times))
    assert (len(of(events.Joined, told)), len(of(events.Lost, told))) == (times + 1, times), (
        "who watches sees all of it"
    )
    assert (len(of(events.Joined, story)), len(of(events.Lost, story))) == (FACTS, FACTS)
    s, story, _ = written(s, [Woken(s.story.due or 0.0)])
    assert of(events.LeftOut, story) == [
        events.LeftOut("c", {"joined": times + 1 - FACTS, "lost": times - FACTS}, there=True)
    ]
    assert (s.story.due, dict(s.story.hours)) == (None, {})
    s, story, _ = written(s, flapping("c", 1, since=2 * HOUR))
    assert len(of(events.Joined, story)) == 2, "another hour"


def test_others_are_written_down_as_ever() -> None:
    s, _, _ = written(opened(), flapping("c", 100))
    _, story, _ = written(s, joined("d", at=150.0))
    assert [fact.device for fact in of(events.Joined, story)] == ["d"]  # type: ignore[attr-defined]


def test_the_rounds_hear_once_a_minute_where_such_a_device_is() -> None:
    s, fed = opened(), 0
    for event in flapping("c", 1000):
        if s.unsteady_due is not None and event.at >= s.unsteady_due:
            s, _, _ = core.step(s, Woken(s.unsteady_due))
            fed += len(s.fed)
        s, _, _ = core.step(s, event)
        fed += len(s.fed)
    assert fed <= 2 * FACTS + 2 + 400 / SETTLING + 1
    assert core.deadline(s) <= s.unsteady_due
    s, _, _ = core.step(s, Woken(s.unsteady_due or 0.0))
    assert ("c" in s.rounds.present, s.unsteady) == (True, frozenset())
    s, _, _ = feed(s, Announced(600.0, "c", AWAY))
    assert "c" in s.rounds.present
    s, _, _ = feed(s, Woken(600.0 + SETTLING))
    assert "c" not in s.rounds.present


def test_words_to_a_round_are_written_down_as_long_as_the_round_heeds_them() -> None:
    rules = replace(RULES, cohort=60, quorum=60, start_with=60)
    names = [f"device-{number}" for number in range(60)]
    s = opened(rules, *names)
    for name in names:
        s, story, _ = written(s, [DeviceDeclined(name, 1, 20.0, "too warm")] * 100)
        assert len(of(events.Declined, story)) == 1 + FACTS


@pytest.mark.parametrize("kind", [one for one in events.FACTS if one.lasting and "device" in one.__slots__])
def test_every_kind_of_fact_about_a_device_is_limited(kind: type[Fact]) -> None:
    fields = {"device": "c", "round": 0, "bytes": 0, "code": "", "reason": "", "ended": 0.0}
    fact = kind(**{name: value for name, value in fields.items() if name in kind.__slots__})  # type: ignore[arg-type]
    limit, left_out = StoryLimit().admitted([fact] * 1000, 0.0, heeded=False)
    summary = kind is events.LeftOut  # told by the limit itself, once an hour
    assert 1000 - len(left_out) == {events.Vitals: VITALS, events.LeftOut: 1000}.get(kind, FACTS)
    assert (limit.due is None) == summary


@pytest.mark.parametrize("round", [0, 1], ids=["that never was", "that is merged"])
def test_answers_to_a_round_in_which_a_device_did_not_count_are_limited(round: int) -> None:
    s, _, _ = feed(merged(), *joined("evil", at=21.0))
    late: list[Event] = [
        AnswerArrived(30.0 + n * 0.01, "evil", round, n.to_bytes(32, "big"), 300, 1, 0.1) for n in range(1000)
    ]
    _, story, told = written(s, late)
    assert {(fact.verdict, fact.reason) for fact in of(events.Answered, told)} == {("late", "late")}  # type: ignore[attr-defined]
    assert (len(of(events.Answered, story)), len(told)) == (FACTS, 1000)


def test_a_quarantine_of_a_second_does_not_lift_the_limit() -> None:
    s = opened()
    s = replace(s, conduct=replace(s.conduct, limit=1, seconds=1.0))
    happened: list[Event] = []
    for n in range(500):
        happened += [Misbehaved(30.0 + 2 * n, "a", "update.shape", "torn"), Woken(31.5 + 2 * n)]
    _, story, told = written(s, happened)
    for kind in (events.Refused, events.Quarantined, events.Released):
        assert (len(of(kind, story)), len(of(kind, told))) == (FACTS, 500), kind


def test_answers_that_count_are_all_written_down_also_after_a_restart() -> None:
    accepted = [events.Answered("a", number, 10, at=number) for number in range(FACTS + 5)]
    limit, left_out = StoryLimit().admitted(accepted, 0.0, heeded=True)
    assert (left_out, limit) == (frozenset(), StoryLimit())
    assert recalled(accepted, at=5.0, wall=100.0) == StoryLimit()


def test_names_without_end_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = StoryLimit()
    monkeypatch.setattr(story_limit, "DEVICES", 10)
    for number in range(100):
        for _ in range(FACTS + 1):
            limit, _ = limit.admitted([events.Joined(f"device-{number}")], float(number), heeded=False)
    assert len(limit.hours) == 10


def test_after_a_restart_the_hour_goes_on() -> None:
    wall = 1e9
    story = [events.Joined("a", at=wall - 600 + number) for number in range(FACTS)]
    limit = recalled([events.Joined("a", at=wall - HOUR - 1), *story], at=5.0, wall=wall)
    limit, left_out = limit.admitted([events.Joined("a"), events.Joined("b")], 5.0, heeded=False)
    assert (left_out, limit.due) == ({0}, 5.0 - 600 + HOUR)


def test_a_run_that_ends_tells_what_was_left_out() -> None:
    s, _, _ = written(opened(), flapping("c", 50))
    _, story, _ = written(s, [Stop(200.0)])  # the step before its last word
    assert of(events.LeftOut, story) == [events.LeftOut("c", {"joined": 51 - FACTS, "lost": 50 - FACTS}, there=True)]
