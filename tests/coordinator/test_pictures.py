"""The pictures at the head of the machines show what these really do: every arrow, and no other."""

import re
from random import Random

import pytest
from walks import DEVICES, rules, walk

from coordinator import core, rounds
from coordinator.rounds import Answered, Busy, Declined, Event, Expired, Joined, Lost, Merged, Resumed, Rounds, step

ARROW = re.compile(r"^    (\w+) +─+ ([\w, ]+?) ─+▶ (\w+)", re.MULTILINE)

Arrow = tuple[str, str, str]


def drawn(picture: str) -> set[Arrow]:
    """The arrows of a picture: from where, at which event, to where."""
    return {(before, event, after) for before, names, after in ARROW.findall(picture) for event in names.split(", ")}


def rounds_moves(seed: int) -> set[Arrow]:
    """The arrows that the round machine follows in one random run."""
    random, moves = Random(seed), set()
    s = Rounds(rules(random))
    for _ in range(60):
        device, number = random.choice(DEVICES), s.round + random.choice([0, 0, 0, -1, 1])
        happened: list[Event] = [
            *[Joined(device, 0.0)] * 3,
            Lost(device, 0.0),
            *[Answered(device, number, 0.0)] * 4,
            Declined(device, number, 0.0),
            Busy(device, number, 0.0),
            *[Expired(s.round, s.attempt, 0.0)] * 2,
            *[Merged(number, 0.0, random.random() < 0.1)] * 2,
            Resumed(0.0),
        ]
        event = random.choice(happened)
        if isinstance(event, Resumed) and random.random() < 0.3:  # under other rules
            s = Rounds(rules(random), s.phase, s.round, s.attempt, s.opening, s.present, s.asked, s.answered)
        after, _ = step(s, event)
        if after.phase != s.phase:
            moves.add((s.phase, type(event).__name__, after.phase))
        s = after
    return moves


def test_the_picture_of_the_rounds_is_true():
    moves = set().union(*map(rounds_moves, range(1500)))
    assert moves == drawn(rounds.__doc__ or "")


def test_the_picture_of_the_core_is_true():
    moves = set().union(*(walk(seed, 80).moves for seed in range(800)))
    assert moves == drawn(core.__doc__ or "")


def test_an_arrow_that_is_missing_or_too_many_is_found():
    picture = core.__doc__ or ""
    line = next(line for line in picture.splitlines() if "Prepared" in line)
    assert drawn(picture.replace(line, "")) < drawn(picture)
    assert drawn(picture + "\n    idle ── Woken ─▶ ended\n") > drawn(picture)


@pytest.mark.parametrize("seed", range(100))
def test_whatever_happens_every_answer_is_dealt_with_once(seed):
    walked = walk(seed, 200)
    assert set(walked.done.values()) <= {1}, "merged once, or not at all"
    assert set(walked.held) == {kept.digest for kept in (*walked.state.answers.values(), *walked.state.late.values())}
