"""Answers that come as one count as they would have counted alone: bounded rounding, bounded weight, exact counts."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.decide.vocabulary import AnswerId, Merge
from edgefl.base.vector import Layout
from edgefl.job.config.schema import RunFile
from edgefl.learn.aggregation import mean
from edgefl.learn.contract import Counts, Seen, Update
from edgefl.learn.evaluation import fleet
from edgefl.learn.robustness import Caps, bound
from gateway.site import SiteArtifacts, SumMade
from gateway.sums import combined

SIZE = 24
LAYOUT = Layout(("w",), ((SIZE,),))
CAPS = Caps(5.0, 4.0, 10.0)


def updates(seed: int, weights: list[float]) -> dict[str, Update]:
    random = np.random.default_rng(seed)
    return {
        f"d{i:02d}": Update(
            random.standard_normal(SIZE).astype(np.float32),
            weight,
            3,
            {"g": random.standard_normal(SIZE).astype(np.float32), "n": np.array(2.0, np.float32)},
        )
        for i, weight in enumerate(weights)
    }


WEIGHTS = st.lists(st.floats(1.0, 5000.0), min_size=2, max_size=12)


@given(WEIGHTS, st.integers(0, 1000), st.data())
def test_the_mean_of_sums_is_the_mean_of_all_up_to_a_few_roundings(
    weights: list[float], seed: int, data: st.DataObject
):
    alone = updates(seed, weights)
    site = {name: data.draw(st.integers(0, 3)) for name in alone}
    sums = {
        f"gateway-{number}": combined({name: alone[name] for name in alone if site[name] == number})
        for number in set(site.values())
    }
    largest = max(float(np.abs(one.delta).max()) for one in alone.values())
    # Each of the two float32 means errs by at most one unit in the last place for each of its terms.
    allowed = (len(alone) + len(sums) + 2) * np.finfo(np.float32).eps * largest
    assert np.abs(mean(sums).astype(np.float64) - mean(alone)).max() <= allowed
    assert sum(one.devices for one in sums.values()) == len(alone)
    assert sum(one.weight for one in sums.values()) == pytest.approx(sum(weights))


def test_arrays_beside_the_update_are_averaged_like_it_and_counters_add_up():
    one = combined(updates(1, [1.0, 3.0]))
    a, b = updates(1, [1.0, 3.0]).values()
    assert np.allclose(one.extra["g"], 0.25 * a.extra["g"] + 0.75 * b.extra["g"], atol=1e-6)
    assert float(one.extra["n"]) == 4.0
    assert (one.steps, one.devices) == (6, 2)


@given(WEIGHTS, st.integers(0, 100), st.permutations(range(12)))
def test_in_which_order_answers_came_changes_no_bit(weights: list[float], seed: int, order: list[int]):
    alone = updates(seed, weights)
    shuffled = dict(sorted(alone.items(), key=lambda item: order[int(item[0][1:])]))
    assert np.array_equal(combined(alone).delta, combined(shuffled).delta)


def test_a_gateway_whose_devices_are_as_others_is_not_bounded():
    single = Update(np.ones(SIZE, np.float32), 100.0, 1)
    many = Update(np.ones(SIZE, np.float32), 5000.0, 1, devices=50)
    within = bound({"a": single, "b": single, "gw": many}, {}, {}, trainable=SIZE, caps=CAPS)
    assert not within.changed
    assert within.updates["gw"].weight == 5000.0


def test_a_gateway_that_lies_about_its_weight_has_that_of_so_many_liars():
    single = Update(np.ones(SIZE, np.float32), 100.0, 1)
    liar = Update(np.ones(SIZE, np.float32), 1e9, 1, devices=2)
    within = bound({"a": single, "b": single, "c": single, "gw": liar}, {}, {}, trainable=SIZE, caps=CAPS)
    alone = bound(
        {"a": single, "b": single, "c": single, "x": _half(liar), "y": _half(liar)}, {}, {}, trainable=SIZE, caps=CAPS
    )
    assert within.updates["gw"].weight <= alone.updates["x"].weight + alone.updates["y"].weight + 1e-6
    assert within.updates["gw"].weight <= 2 * CAPS.weight * 100.0


def _half(update: Update) -> Update:
    return Update(update.delta, update.weight / 2, update.steps)


def test_a_device_that_claims_to_be_many_only_has_the_weight_that_it_claims():
    """More devices behind a name make no answer heavier: they only let a heavier one pass."""
    single = Update(np.ones(SIZE, np.float32), 100.0, 1)
    modest = Update(np.ones(SIZE, np.float32), 100.0, 1, devices=1000)
    within = bound({"a": single, "b": single, "gw": modest}, {}, {}, trainable=SIZE, caps=CAPS)
    assert within.updates["gw"].weight == 100.0


def test_counts_of_a_gateway_are_those_of_its_devices_and_are_capped_as_theirs():
    def seen(samples: int) -> Seen:
        return Seen(Counts(np.array([[samples, 0], [0, samples]]), float(samples), np.zeros((4, 0))))

    alone = {name: seen(10) for name in "abcd"}
    one = combined({name: Update(np.zeros(1, np.float32), 1.0, 1, seen=alone[name]) for name in "bcd"})
    assert one.seen is not None
    told = fleet.evaluated({"a": alone["a"], "gw": one.seen}, classes=2, cap=1.5, speaks_for={"gw": 3})
    whole = fleet.evaluated(alone, classes=2, cap=1.5)
    names = ("samples", "devices", "scores", "confusion", "per_class")
    assert {name: told[name] for name in names} == {name: whole[name] for name in names}
    capped = fleet.evaluated({"a": alone["a"], "b": alone["b"], "gw": one.seen}, classes=2, cap=1.5)
    assert capped["samples"] < 100, "one device with so many samples would be capped"


def test_a_site_adds_up_what_the_caps_of_its_run_file_leave() -> None:
    answers, put = updates(3, [1.0, 1.0, 1.0, 20.0]), list[SumMade]()
    site = object.__new__(SiteArtifacts)  # of which a merge asks for its run file, its answers and its model alone
    site.run = RunFile.model_validate({"rounds": {"cohort": 4}})
    site.answers = SimpleNamespace(take=lambda digest: answers[digest.decode()])
    site.next_model = site.publisher = SimpleNamespace(job=SimpleNamespace(model=SimpleNamespace(layout=LAYOUT)))
    merge = Merge(1, {name: AnswerId(1, name.encode()) for name in answers}, {}, population=4)
    site.merge(merge, "drop", None, None, journaled=False)(put.append)
    within = bound(answers, {}, {}, trainable=SIZE, caps=CAPS).updates
    assert within["d03"].weight == 3.0
    assert put[0].update.weight == 6.0
    assert put[0].update.delta.tobytes() == combined(within).delta.tobytes()
