"""The aggregation pipeline, by numbers worked out in sight."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import site

from edgefl.base.errors import RunError
from edgefl.learn.aggregation import Clip, Mean, Momentum, Scale, mean, merge, weights
from edgefl.learn.contract import Draft, Update

SITE = site(statistics=True)  # four trained numbers and one statistic
MEAN = (Mean(),)
START = np.array([1, 2, 3, 4, 10], np.float32)


def update(delta, weight=1.0):
    return Update(np.asarray(delta, np.float32), weight, 1)


def draft(step):
    return Draft(1, START, {}, np.asarray(step, np.float32))


def merged(updates, stages=MEAN, states=None, **more):
    return merge(1, START, updates, stages=stages, states=states or {}, site=SITE, **more)


# ---- the mean ------------------------------------------------------------------------------------------------------


def test_the_mean_weighs_each_device():
    """(1 * 4 + 3 * 8) / 4 = 7."""
    assert mean({"a": update([4, 0], 1), "b": update([8, 4], 3)}).tolist() == [7, 3]


@given(st.dictionaries(st.text(max_size=3), st.floats(1e-3, 1e12), min_size=1, max_size=20))
def test_shares_are_not_negative_and_together_one(by_device):
    shares = weights({device: update([0], weight) for device, weight in by_device.items()})
    assert min(shares.values()) >= 0
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)


def test_a_single_device_is_the_mean_bit_for_bit():
    delta = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert np.array_equal(mean({"a": update(delta, 17)}), delta)


def test_averaging_leaves_the_updates_alone():
    updates = {"a": update([1, 2]), "b": update([3, 4])}
    mean(updates)
    assert updates["a"].delta.tolist() == [1, 2]
    assert updates["b"].delta.tolist() == [3, 4]


def test_there_is_no_mean_of_nothing():
    with pytest.raises(RunError, match="no device answered"):
        mean({})


# ---- the order of arrival ------------------------------------------------------------------------------------------

RNG = np.random.default_rng(1)
FLEET = {f"pi-{i}": update(RNG.standard_normal(5) * 10.0**i, 1 + i) for i in range(6)}


@given(st.permutations(sorted(FLEET)))
def test_no_order_of_arrival_changes_a_bit(order):
    arrived = {device: FLEET[device] for device in order}
    stages = (Mean(), Clip(norm=2.0), Momentum())
    assert merged(arrived, stages)[0].tobytes() == merged(FLEET, stages)[0].tobytes()


def test_a_stage_sees_updates_and_late_ones_sorted_by_device():
    seen = {}

    class Look:
        name = "look"

        def apply(self, draft, state, site):
            seen.update(updates=list(draft.updates), late=list(draft.late), population=draft.population)
            return draft, state

    merged({"b": update(START), "a": update(START)}, (Look(),), late={"d": update(START), "c": update(START)})
    assert seen == {"updates": ["a", "b"], "late": ["c", "d"], "population": 2}


# ---- the other stages ----------------------------------------------------------------------------------------------


def test_a_server_rate_scales_the_step_but_not_the_statistics():
    after, _ = Scale(factor=0.5).apply(draft([2, 4, 6, 8, 5]), {}, SITE)
    assert after.step.tolist() == [1, 2, 3, 4, 5]


def test_a_long_step_is_cut_to_the_norm_and_keeps_its_direction():
    after, _ = Clip(norm=2.5).apply(draft([3, 0, 0, 4, 100]), {}, SITE)
    assert after.step.tolist() == [1.5, 0, 0, 2, 100]


def test_a_short_step_is_not_touched():
    before = draft([3, 0, 0, 4, 100])
    assert Clip(norm=5).apply(before, {}, SITE)[0] is before


def test_server_momentum_adds_up():
    """m = 1, then 0.5 * 1 + 1 = 1.5; the step is twice that, the statistic's its own."""
    stage, step = Momentum(beta=0.5, rate=2), [1, 1, 1, 1, 7]
    first, state = stage.apply(draft(step), {}, SITE)
    second, state = stage.apply(draft(step), state, SITE)
    assert first.step.tolist() == [2, 2, 2, 2, 7]
    assert second.step.tolist() == [3, 3, 3, 3, 7]
    assert state["m"].tolist() == [1.5] * 4


@pytest.mark.parametrize("stage", [Scale(factor=3), Clip(norm=0.1), Momentum(beta=0.5, rate=2)])
def test_a_stage_never_writes_to_the_draft_it_was_given(stage):
    before = draft([3, 0, 0, 4, 100])
    _, state = stage.apply(before, {}, SITE)
    stage.apply(before, state, SITE)
    assert before.step.tolist() == [3, 0, 0, 4, 100]


# ---- merge ---------------------------------------------------------------------------------------------------------


def test_the_next_model_is_the_old_one_plus_the_step():
    params, _ = merged({"a": update([2, 0, 0, 0, 1]), "b": update([0, 2, 0, 0, 3])})
    assert params.tolist() == [2, 3, 3, 4, 12]
    assert params.dtype == np.float32
    assert START.tolist() == [1, 2, 3, 4, 10]


def test_each_stage_gets_back_its_own_state_and_others_are_kept():
    states = {"momentum": {"m": np.ones(4, np.float32)}, "other": {"x": np.zeros(1)}}
    params, after = merged({"a": update([0] * 5)}, (Mean(), Momentum(beta=0.5)), states)
    assert params.tolist() == [1.5, 2.5, 3.5, 4.5, 10]
    assert after["momentum"]["m"].tolist() == [0.5] * 4
    assert after["other"] is states["other"]
    assert set(states) == {"momentum", "other"}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_model_with_numbers_that_are_not_finite_is_refused(bad):
    with pytest.raises(RunError, match=r"round 1: .* not finite; lower the learning rate"):
        merged({"a": update([0, bad, 0, 0, 0])})


def test_the_population_is_told_when_it_is_known():
    seen = []

    class Look:
        name = "look"

        def apply(self, draft, state, site):
            seen.append(draft.population)
            return replace(draft), state

    merged({"a": update([0] * 5)}, (Look(),), population=20)
    assert seen == [20]


def test_the_two_matrices_of_an_adapter_are_averaged_each_by_itself():
    """A row A and a column B of two devices: the product of their means is not the mean of the products (LoRA)."""
    told = mean({"a": update([1, 0, 1, 0]), "b": update([0, 1, 0, 1])})  # A, then B
    row, column = told[:2], told[2:]
    assert np.outer(column, row).tolist() == [[0.25, 0.25], [0.25, 0.25]]
    products = [np.outer([1, 0], [1, 0]), np.outer([0, 1], [0, 1])]
    assert np.mean(products, axis=0).tolist() == [[0.5, 0], [0, 0.5]]
