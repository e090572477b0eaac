"""Facts: one definition each, the same as an object and as JSON."""

import json
from dataclasses import fields

import pytest

from edgefl.base import events
from edgefl.base.events import FACTS, Answered, Asked, Fact, Round, as_json, from_json, timeless

EVERY = [
    kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Fact) and kind is not Fact
]


def example(kind):
    values = {"devices": ("a", "b"), "missing": ("c",), "late": ("d",), "class_names": ("x", "y")}
    values |= {name: {"accuracy": 0.5, "loss": 1.0} for name in ("scores", "local_scores", "best_score")}
    return kind(**{one.name: values.get(one.name, 3) for one in fields(kind) if one.name != "at"}, at=7.5)


def test_every_fact_is_listed_once():
    assert sorted(kind.__name__ for kind in FACTS) == sorted(kind.__name__ for kind in EVERY)
    assert len({kind.__name__.lower() for kind in FACTS}) == len(FACTS)
    assert {kind.__name__ for kind in FACTS} <= set(events.__all__)


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_a_fact_survives_json(kind):
    fact = example(kind)
    assert from_json(json.loads(json.dumps(as_json(fact)))) == fact


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_every_fact_says_what_it_means(kind):
    assert kind.__doc__
    assert not kind.__doc__.startswith(kind.__name__ + "(")


def test_what_reads_a_clock_is_told_apart():
    early = Answered("pi-01", 3, 100, took=1.0, seconds_per_step=0.1, at=1.0)
    later = Answered("pi-01", 3, 100, took=2.0, seconds_per_step=0.2, at=9.0)
    assert timeless(early) == timeless(later)
    assert timeless(early) != timeless(Answered("pi-01", 3, 101, at=1.0))
    assert "seconds" not in timeless(Round(1, seconds=3.0))


def test_what_this_version_does_not_know_is_left_out():
    told = as_json(Asked(1, 1, ("a",), 5)) | {"of_tomorrow": 1}
    assert from_json(told) == Asked(1, 1, ("a",), 5)
