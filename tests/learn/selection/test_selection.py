"""Whom a round asks: the draws, what they look at, and that every driver asks the same devices."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.decide.rounds import (
    DeviceAnswered,
    DeviceDeclined,
    DeviceJoined,
    Invite,
    RoundMerged,
    Rounds,
    Rules,
    TimerExpired,
    step,
)
from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.base.events import Asked
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.learn.contract import traits_of
from edgefl.learn.selection.base import Candidate, drawn
from edgefl.learn.selection.fresh import Fresh
from edgefl.learn.selection.registry import SELECTIONS, selection
from edgefl.learn.selection.uniform import Uniform
from edgefl.sim.emulator import emulate
from edgefl.sim.loop import simulate

FRESH = {"name": "fresh"}
candidates = st.lists(
    st.builds(
        Candidate,
        id=st.text("abcdef", min_size=1, max_size=3),
        samples=st.integers(0, 9),
        seconds_per_step=st.none() | st.floats(0.1, 9),
        counted=st.integers(0, 9),
        failures=st.integers(0, 3),
    ),
    unique_by=lambda one: one.id,
    max_size=12,
).map(lambda some: sorted(some, key=lambda one: one.id))


@given(st.sampled_from(sorted(SELECTIONS)), candidates, st.integers(1, 9), st.integers(0, 9))
def test_every_selection_asks_everybody_once_and_always_in_the_same_order(name, fleet, draw, seed):
    order = drawn(selection({"name": name}), draw, seed, fleet)
    assert sorted(order) == [one.id for one in fleet]
    assert order == drawn(selection({"name": name}), draw, seed, fleet)


@given(candidates, st.integers(1, 9), st.integers(0, 9))
def test_uniform_is_the_draw_by_the_seed_and_looks_at_nothing_else(fleet, draw, seed):
    order = Uniform().order(draw, seed, fleet)
    assert order == seeds.sample(seed, draw, [one.id for one in fleet], len(fleet))
    assert order == Uniform().order(draw, seed, [Candidate(one.id) for one in fleet])


def test_fresh_asks_those_first_that_were_counted_longest_ago():
    fleet = [Candidate("a", counted=3), Candidate("b", counted=1), Candidate("c"), Candidate("d", counted=2)]
    assert list(Fresh().order(4, 7, fleet)) == ["c", "b", "d", "a"]


def test_among_equals_the_seed_decides():
    fleet = [Candidate(id) for id in "abcdef"]
    assert tuple(Fresh().order(2, 7, fleet)) == seeds.sample(7, 2, "abcdef", 6)
    assert len({tuple(Fresh().order(draw, 7, fleet)) for draw in range(9)}) == 9


def test_one_that_never_answers_does_not_take_a_place_in_every_round():
    fleet = [Candidate("silent", failures=1), Candidate("new"), Candidate("old", counted=1)]
    assert list(Fresh().order(2, 0, fleet)) == ["new", "silent", "old"]


class Twice:
    name = "twice"

    def order(self, draw: int, seed: int, candidates: Sequence[Candidate]) -> Sequence[str]:
        return ["a", "a"]


def test_an_order_that_is_none_is_a_bug_of_the_selection():
    with pytest.raises(ValueError, match="selection 'twice' names a device twice"):
        drawn(Twice(), 1, 0, [Candidate("a"), Candidate("b")])


def test_an_unknown_selection_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"selection.name = 'frehs' is not in the registry; did you mean 'fresh'\?"):
        a_run({"selection": {"name": "frehs"}})


# ---- in the round machine ------------------------------------------------------------------------------------------

RULES = Rules(rounds=9, seed=7, cohort=2, quorum=2, deadline=30.0, start_with=6, selection=FRESH)
FLEET = tuple("abcdef")


def feed(s: Rounds, *events: Any) -> tuple[Rounds, list[Any]]:
    did: list[Any] = []
    for event in events:
        s, actions = step(s, event)
        did += actions
    return s, did


def opened(rules: Rules) -> Rounds:
    return feed(Rounds(rules), *(DeviceJoined(device, 0, 10) for device in FLEET))[0]


def merged(s: Rounds) -> Rounds:
    round = s.round
    return feed(s, *(DeviceAnswered(device, round, 0, 0.5) for device in s.asked), RoundMerged(round, 0))[0]


def test_a_fleet_takes_turns():
    s, asked = opened(RULES), []
    for _ in range(3):
        asked += s.asked
        s = merged(s)
    assert sorted(asked) == list(FLEET)
    assert set(s.asked) == set(asked[:2])  # and from the beginning


def test_rounds_that_share_a_draw_share_their_devices():
    s = opened(replace(RULES, cohort_rounds=2))
    first, second = s.asked, merged(s).asked
    third = merged(merged(s)).asked
    assert first == second
    assert not set(first) & set(third)


def test_a_spare_is_the_next_in_the_order():
    s = opened(RULES)
    order = Fresh().order(1, 7, [Candidate(device) for device in FLEET])
    _, did = feed(s, DeviceDeclined(s.asked[0], 1, 0))
    assert did == [Invite(1, (order[2],), s.opening)]


def test_what_is_known_of_a_device_grows_with_every_round():
    s = opened(RULES)
    answering, silent = s.asked
    s, _ = feed(s, DeviceAnswered(answering, 1, 0, 0.5), TimerExpired(1, s.attempt, 0))
    spare = next(device for device in s.asked if device not in (answering, silent))
    s, _ = feed(s, DeviceAnswered(spare, 1, 0), TimerExpired(1, s.attempt, 0))
    assert s.known[answering] == Candidate(answering, 10, 0.5, counted=1)
    assert s.known[silent] == Candidate(silent, 10, failures=1)


# ---- in every driver -----------------------------------------------------------------------------------------------


def a_run(more: dict[str, Any]) -> RunFile:
    table = {
        "run": {"rounds": 6, "seed": 3},
        "task": {"data": "synthetic", "model": "softmax", "partition": {"kind": "iid", "devices": 6}},
        "algorithm": {"name": "fedavg", "batches": 2},
        "rounds": {"cohort": 2},
        **more,
    }
    return parse(RunFile, table, "test", environment={})


@pytest.mark.parametrize("name", ["samples", "power_of_choice", "oort"])
def test_so_they_do_by_what_devices_say(name):
    job, held = jobs.prepare(a_run({"selection": {"name": name}}))
    devices = dict(zip(jobs.device_names(6), held.devices, strict=True))
    looped, told = list[Any](), list[Any]()
    assert simulate(job, devices, looped.append).sha256() == emulate(job, devices, told.append).sha256()
    first, second = ([fact.devices for fact in facts if isinstance(fact, Asked)] for facts in (looped, told))
    assert first == second


@pytest.mark.parametrize("algorithm", [{"name": "fedavg"}, {"name": "upcycled", "even": "device"}])
def test_loop_and_emulator_ask_the_same_devices_and_end_with_the_same_model(algorithm):
    job, held = jobs.prepare(a_run({"algorithm": {**algorithm, "batches": 2}, "selection": FRESH}))
    devices = dict(zip(jobs.device_names(6), held.devices, strict=True))
    told: list[Any] = []
    assert simulate(job, devices, told.append).sha256() == emulate(job, devices).sha256()
    asked = [fact.devices for fact in told if isinstance(fact, Asked)]
    shared = traits_of(job.algorithm).cohort_rounds
    assert sorted(device for devices in asked[: 3 * shared : shared] for device in devices) == sorted(devices)
