"""The pictures at the head of the machines show what these really do: every arrow, and no other."""

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from draws import seeds
from walks import DEVICES, impatient, rules, walk

from coordinator.decide import buffered, core, modes, rounds
from coordinator.decide.rounds import (
    DeviceAnswered,
    DeviceBusy,
    DeviceDeclined,
    DeviceJoined,
    DeviceLost,
    Event,
    Overtaken,
    RoundMerged,
    Rounds,
    Rules,
    RunResumed,
    TimerExpired,
)
from edgefl.base.events import Closed

ARROW = re.compile(r"^    (\w+) +─+ ([\w, ]+?) ─+▶ (\w+)", re.MULTILINE)

Arrow = tuple[str, str, str]


def drawn(picture: str) -> set[Arrow]:
    """The arrows of a picture: from where, at which event, to where."""
    return {(before, event, after) for before, names, after in ARROW.findall(picture) for event in names.split(", ")}


def rounds_moves(seed: int, rules: Callable[[Random], Rules], ours: Callable[[Rounds], bool]) -> set[Arrow]:
    """The arrows that `ours` of the round machines follows in one random run."""
    random, moves = Random(seed), set()
    s, gateway = Rounds(rules(random)), seed % 3 == 0  # every third walk
    for _ in range(60):
        device, number = random.choice(DEVICES), s.round + random.choice([0, 0, 0, -1, 1])
        happened: list[Event] = [
            *[DeviceJoined(device, 0.0)] * 3,
            DeviceLost(device, 0.0),
            *[DeviceAnswered(device, number, 0.0)] * 4,
            DeviceDeclined(device, number, 0.0),
            DeviceBusy(device, number, 0.0),
            *[TimerExpired(s.round, s.attempt, 0.0)] * 2,
            *[RoundMerged(number, 0.0, random.random() < 0.1)] * 2,
            RunResumed(0.0),
            *[Overtaken(s.round + random.choice([0, 1, 5]), 0.0)] * gateway,
        ]
        event = random.choice(happened)
        if isinstance(event, RunResumed) and random.random() < 0.6:  # under other rules
            s = replace(s, rules=rules(random))
        if s.phase == "open" and random.random() < 0.02:
            s = rounds.reopened(s)
        after, _ = modes.step(s, event)
        if after.phase != s.phase and ours(s):
            moves.add((s.phase, type(event).__name__, after.phase))
        s = after
    return moves


def drawn_seeds(number: int) -> list[int]:
    """The first ones, which come to every arrow, and at night others."""
    return sorted({*range(number), *seeds(number)})


def test_the_picture_of_the_rounds_is_true():
    moves = set().union(*(rounds_moves(seed, rules, lambda _: True) for seed in drawn_seeds(6000)))
    assert moves == drawn(rounds.__doc__ or "")


def test_the_picture_of_rounds_that_wait_for_nobody_is_true():
    moves = set().union(*(rounds_moves(seed, impatient, modes.waits_for_nobody) for seed in drawn_seeds(1500)))
    assert moves == drawn(buffered.__doc__ or "")


def test_the_picture_of_the_core_is_true():
    moves = set().union(*(walk(seed, 80).moves for seed in drawn_seeds(800)))
    assert moves == drawn(core.__doc__ or "")


def test_an_arrow_that_is_missing_or_too_many_is_found():
    picture = core.__doc__ or ""
    line = next(line for line in picture.splitlines() if "Prepared" in line)
    assert drawn(picture.replace(line, "")) < drawn(picture)
    assert drawn(picture + "\n    idle ── Woken ─▶ ended\n") > drawn(picture)


@pytest.mark.parametrize("seed", seeds(100))
def test_whatever_happens_every_answer_is_dealt_with_once(seed):
    walked = walk(seed, 200)
    assert set(walked.done.values()) <= {1}, "merged once, or not at all"
    assert [fact.round for fact in walked.facts if isinstance(fact, Closed)] == walked.merges
    assert set(walked.held) == {kept.digest for kept in (*walked.state.answers.values(), *walked.state.late.values())}
