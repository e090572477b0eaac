"""Where rounds wait for nobody, the model follows from the order of answers alone: in the loop, emulated, recorded."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from math import inf
from typing import Any

import pytest

from edgefl.base.events import Answered, Asked, Closed, Done, Fact, Round
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.answer_order import AnswerTurn, RoundOrder, recorded, virtual
from edgefl.sim.emulator import emulate
from edgefl.sim.loop import simulate

EXACT = {"fast": {"speed": 1.0, "up": inf, "down": inf, "latency": 0.0, "jitter": 0.0}}


def prepared(**more: Mapping[str, Any]) -> tuple[Job, dict[str, Dataset]]:
    """Eight devices of different sizes, six of them at work at once, and every two answers make a round."""
    table: dict[str, Any] = {
        "run": {"rounds": 8, "seed": 3},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "backend": "torch",
            "partition": {"kind": "dirichlet", "omega": 0.3, "devices": 8},
        },
        "algorithm": {"name": "fedavg", "batch": 16},
        "rounds": {"mode": "buffered", "concurrency": 6, "buffer": 2},
    }
    for section, keys in more.items():
        table[section] = {**table.get(section, {}), **keys}
    job, held = jobs.prepare(parse(RunFile, table, "run.toml", (), {}))
    return job, dict(zip(jobs.device_names(8), held.devices, strict=True))


def played(driver, job, devices, **more):
    facts: list[Fact] = []
    return driver(job, devices, facts.append, **more), facts


def by_round(facts: list[Fact]) -> dict[int, RoundOrder]:
    return {course.round: course for course in recorded(facts)}


@pytest.mark.parametrize("how", [{}, {"staleness": 1}, {"concurrency": 8, "buffer": 3}])
def test_a_fleet_of_one_pace_and_no_distance_is_the_plain_loop(how):
    fleet = {"custom": EXACT, "profiles": {"fast": 8}, "ms_per_step": 125.0}
    job, devices = prepared(rounds=how, fleet=fleet)
    expected, told = played(simulate, job, devices)
    emulated, facts = played(emulate, job, devices)
    assert by_round(facts) == by_round(told)
    assert emulated.sha256() == expected.sha256()


@pytest.mark.parametrize(
    "more", [{"selection": {"name": "oort"}}, {"selection": {"name": "power_of_choice"}}, {"algorithm": "fedasync"}]
)
def test_so_it_is_where_devices_are_chosen_by_their_losses_and_where_each_answer_is_mixed_in(more):
    fleet = {"custom": EXACT, "profiles": {"fast": 8}, "ms_per_step": 125.0}
    one = {"buffer": 1, "concurrency": 4} if "algorithm" in more else {}
    more |= {"algorithm": {"name": more["algorithm"]}} if "algorithm" in more else {}
    job, devices = prepared(fleet=fleet, rounds=one, **more)
    expected, told = played(simulate, job, devices)
    emulated, facts = played(emulate, job, devices)
    assert by_round(facts) == by_round(told)
    assert emulated.sha256() == expected.sha256()


@pytest.mark.parametrize("judge", ["coordinator", "devices"])
def test_what_a_disturbed_fleet_came_to_follows_from_the_order_of_its_answers(judge):
    fleet = {"profiles": {"pi3": 3, "pi5": 3, "jetson-orin": 2}, "dropout": 0.3, "ms_per_step": 500.0}
    job, devices = prepared(fleet=fleet, evaluation={"on": judge}, task={"normalise": "fleet"})
    emulated, facts = played(emulate, job, devices)
    assert max(max(course.ages.values()) for course in by_round(facts).values()) > 1, "somebody was slow"
    again, told = played(simulate, job, devices, order=by_round(facts))
    assert again.sha256() == emulated.sha256()
    assert [(f.round, f.staleness, f.accuracy) for f in told if isinstance(f, Round)] == [
        (f.round, f.staleness, f.accuracy) for f in facts if isinstance(f, Round)
    ]


def test_another_order_is_another_model():
    job, devices = prepared()
    usual, facts = played(simulate, job, devices)
    order = by_round(facts)
    first, second = order[1], order[2]
    swapped = {**order, 1: RoundOrder(1, first.asked, (*first.turns[:1], AnswerTurn(second.turns[0].device, 1)))}
    assert played(simulate, job, devices, order=swapped)[0].sha256() != usual.sha256()


def test_a_buffer_of_everybody_is_a_synchronous_round():
    job, devices = prepared(rounds={"concurrency": 8, "buffer": 8})
    waiting, _ = prepared(rounds={"mode": "synchronous", "concurrency": None, "buffer": None, "cohort": 8})
    assert simulate(job, devices).sha256() == simulate(waiting, devices).sha256()


def test_as_many_are_at_work_as_may_be_and_nobody_counts_twice_in_a_round():
    job, devices = prepared()
    sizes = {name: len(data) for name, data in devices.items()}
    at_work: Counter[str] = Counter()
    for course in islice(virtual(job, sizes, sizes), 40):
        at_work.update(course.asked)
        assert max(at_work.values()) == 1
        assert len(course.turns) == len(course.ages) >= 2
        assert max(course.ages.values()) <= job.run.rounds.staleness
        at_work.subtract(turn.device for turn in course.turns)
        assert sum(at_work.values()) <= 6


def test_a_record_is_who_was_merged_and_what_each_began_from():
    facts = [
        Asked(1, 1, ("a", "b"), 0),
        Answered("a", 1, 9, steps=3),
        Closed(1, ("a",)),
        Asked(2, 2, ("a",), 0),
        Answered("b", 1, 9, steps=2),
        Answered("a", 2, 9, "refused", "not a number"),
        Closed(2, ("b",)),
    ]
    assert list(recorded(facts)) == [
        RoundOrder(1, ("a", "b"), (AnswerTurn("a", 1, 3),)),
        RoundOrder(2, ("a",), (AnswerTurn("b", 1, 2),)),
    ]
    assert [course.ages for course in recorded(facts)] == [{"a": 0}, {"b": 1}]


def test_a_run_ends_where_it_reaches_its_target():
    job, devices = prepared(run={"rounds": 60, "target_accuracy": 0.3})
    _, facts = played(simulate, job, devices)
    (done,) = (fact for fact in facts if isinstance(fact, Done))
    assert done.stopped == "the target is reached"
