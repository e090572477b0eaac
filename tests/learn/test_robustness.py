"""No device outweighs the others: bounds on weight and length, learned only from what is merged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.vector import norm
from edgefl.learn.contract import Update
from edgefl.learn.robustness import ROUNDS, Bounded, Caps, bound, lower_median

CAPS = Caps(weight=5.0, norm=4.0, extra=10.0)


def update(length=1.0, weight=10.0, statistics=0.0, **extra):
    return Update(np.array([length, 0.0, statistics], np.float32), weight, 1, extra)


def fleet(count, **others):
    return {f"d{i}": update() for i in range(count)} | others


def bounded(updates, state=None, late=None, caps=CAPS) -> Bounded:
    return bound(updates, late or {}, state or {}, trainable=2, caps=caps)


def test_what_is_within_its_bounds_is_handed_on_as_it_is():
    updates = fleet(4, big=update(length=4.0, weight=40.0))
    after = bounded(updates)
    assert all(after.updates[device] is updates[device] for device in updates)
    assert after.changed == {}


def test_a_weight_beyond_the_cap_is_cut_to_it_and_far_beyond_counts_the_less_the_more_is_claimed():
    claims = (50, 51, 100, 200, 400, 1e12)
    weights = [bounded(fleet(9, liar=update(weight=claimed))).updates["liar"].weight for claimed in claims]
    assert weights == pytest.approx([50, 50, 50, 50, 25, 1e-8])


@pytest.mark.parametrize(("others", "most"), [(1, 50), (2, 20), (3, 30), (4, 40), (9, 50)])
def test_nobody_weighs_more_than_all_the_others(others, most):
    assert bounded(fleet(others, big=update(weight=50.0))).updates["big"].weight == most


@pytest.mark.parametrize("claimed", [1e12, 1e-9])
def test_of_two_neither_shouting_nor_whispering_makes_the_other_vanish(claimed):
    state = {}
    for _ in range(3):
        after = bounded({"honest": update(weight=100.0), "liar": update(weight=claimed)}, state)
        weights = {device: one.weight for device, one in after.updates.items()}
        assert weights["honest"] >= 0.999 * weights["liar"]
        state = after.state


def test_of_two_the_weight_goes_back_to_that_of_the_other_and_no_further():
    weights = [bounded(fleet(1, big=update(weight=w))).updates["big"].weight for w in (50, 100, 250, 1000, 1e12)]
    assert weights == pytest.approx([50, 50, 40, 10, 10])


def test_alone_in_the_first_round_nothing_is_bounded():
    only = {"d": update(length=1e5, weight=1e12)}
    assert bounded(only).updates["d"] is only["d"]


@pytest.mark.parametrize("length", [5.0, 16.0])
def test_an_update_beyond_the_bound_is_clipped_to_it_and_keeps_its_weight(length):
    after = bounded(fleet(4, rare=update(length=length)))
    assert norm(after.updates["rare"].delta) == pytest.approx(4.0)
    assert after.updates["rare"].weight == 10.0
    assert after.changed == {"rare": {"delta": pytest.approx(4.0 / length)}}


def test_an_update_far_beyond_the_bound_fades_and_weighs_less():
    after = bounded(fleet(4, loud=update(length=160.0)))
    assert norm(after.updates["loud"].delta) == pytest.approx(0.4), (
        "ten times where fading begins: a tenth of the bound"
    )
    assert after.updates["loud"].weight == pytest.approx(1.0)
    assert after.changed == {"loud": {"delta": pytest.approx(0.0025), "weight": pytest.approx(0.1)}}


def test_statistics_have_a_bound_of_their_own():
    updates = {f"d{i}": update(statistics=1.0) for i in range(4)} | {"bad": update(statistics=-400.0)}
    delta = bounded(updates).updates["bad"].delta
    assert delta.tolist() == pytest.approx([1.0, 0.0, -0.16])


def test_arrays_beside_an_update_are_bounded_and_keep_their_type():
    counts = {f"d{i}": update(counts=np.array([3, 4])) for i in range(3)}
    after = bounded({**counts, "bad": update(counts=np.array([300, 400]))})
    assert after.updates["bad"].extra["counts"].tolist() == [3, 4]
    assert after.updates["bad"].extra["counts"].dtype == np.int64
    assert after.changed == {"bad": {"extra/counts": pytest.approx(0.01)}}


def test_a_single_number_beside_an_update_is_left_alone():
    after = bounded({**fleet(3), "odd": update(seen=np.array(1e9))})
    assert after.updates["odd"].extra["seen"] == 1e9


def test_what_is_usual_is_learned_from_what_was_merged():
    state = bounded(fleet(4, loud=update(length=1e6))).state
    assert state["delta"].tolist() == [1.0]
    alone = bounded({"d": update(length=8.0)}, state)
    assert norm(alone.updates["d"].delta) == pytest.approx(4.0), "bounded by the round before, with nobody beside it"
    assert alone.state["delta"].tolist() == [1.0, 4.0], "as much of it as was within the bound"


def test_a_few_odd_rounds_change_little():
    state = bounded(fleet(4)).state
    for _ in range(6):
        state = bounded(fleet(4), state).state
    for _ in range(6):
        state = bounded({"tiny": update(length=1e-9)}, state).state
    after = bounded(fleet(2), state)
    assert after.changed == {}
    assert len(after.state["delta"]) <= ROUNDS


def test_tiny_answers_of_a_minority_bring_nobody_down():
    state = {}
    for _ in range(20):
        after = bounded(fleet(3, a=update(length=1e-9, weight=1e-9), b=update(length=1e-9, weight=1e-9)), state)
        assert after.changed == {}
        state = after.state


def test_the_length_of_all_may_grow_from_round_to_round():
    state = bounded(fleet(4)).state
    assert bounded({f"d{i}": update(length=3.9) for i in range(4)}, state).changed == {}


def test_a_quiet_beginning_does_not_hold_a_run_back():
    state = bounded({f"d{i}": update(length=1e-30) for i in range(4)}).state
    assert bounded(fleet(4), state).changed == {}


def test_one_that_is_always_alone_may_change_its_length_in_time():
    state = bounded({"d": update(length=0.1)}).state
    bounds = []
    for _ in range(4):
        after = bounded({"d": update()}, state)
        bounds.append(bool(after.changed))
        state = after.state
    assert bounds == [True, True, False, False]


def test_late_answers_are_bounded_and_teach_nothing():
    after = bounded(fleet(4), late={"late": update(length=40.0)})
    assert norm(after.late["late"].delta) == pytest.approx(1.6)
    assert after.state.keys() == bounded(fleet(4)).state.keys()
    assert all(np.array_equal(after.state[name], bounded(fleet(4)).state[name]) for name in after.state)


def test_switched_off_it_does_and_keeps_nothing():
    updates = fleet(4, loud=update(length=1e6, weight=1e12))
    after = bounded(updates, caps=Caps())
    assert after.updates is updates
    assert after.state == {}


def test_each_cap_can_be_off_alone():
    loud = fleet(4, loud=update(length=100.0, weight=1e6))
    heavy = bounded(loud, caps=Caps(norm=4.0)).updates["loud"]
    long = bounded(loud, caps=Caps(weight=5.0)).updates["loud"]
    assert heavy.weight == pytest.approx(1e6 * 4 * 4 / 100)
    assert norm(long.delta) == 100.0


def test_nothing_depends_on_the_order_of_arrival():
    updates = fleet(4, loud=update(length=9.0), heavy=update(weight=99.0))
    one, other = bounded(updates), bounded(dict(reversed(updates.items())))
    assert one.changed == other.changed
    assert all(np.array_equal(one.state[name], other.state[name]) for name in one.state)


def test_the_median_of_two_is_the_smaller():
    assert lower_median([5.0, 1.0]) == 1.0
    assert lower_median([5.0, 1.0, 3.0]) == 3.0


lengths = st.floats(0, 1e6, width=32)
answers = st.lists(st.tuples(lengths, st.floats(1e-9, 1e12), lengths), min_size=2, max_size=6)


@given(st.lists(answers, min_size=1, max_size=6))
def test_whatever_comes_nothing_grows_and_what_is_within_stays(rounds):
    state = {}
    for claimed in rounds:
        sent = {f"d{i}": update(length, weight, counts) for i, (length, weight, counts) in enumerate(claimed)}
        after = bounded(sent, state)
        for device, one in after.updates.items():
            assert norm(one.delta) <= norm(sent[device].delta)
            assert 0 < one.weight <= sent[device].weight
            assert (one is sent[device]) == (device not in after.changed)
        assert all(np.isfinite(medians).all() for medians in after.state.values())
        state = after.state
