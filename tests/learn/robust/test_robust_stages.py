"""Aggregation in which no single device matters: what each rule gives, and what a liar can do to it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from threadpoolctl import threadpool_limits
from tiny import site

from edgefl.base.errors import RunError
from edgefl.learn.aggregation import Mean, merge
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Draft, Update
from edgefl.learn.robust.geometric_median import geometric_median
from edgefl.learn.robust.krum import best, by_differences, by_products, krum_scores, mean_of
from edgefl.learn.robust.majority import majority
from edgefl.learn.robust.median import median
from edgefl.learn.robust.norm_clip import clip_factors
from edgefl.learn.robust.trimmed_mean import trimmed_mean
from edgefl.learn.robust.votes import liars, nearest

SITE = site(statistics=True)  # four trained numbers and one statistic
START = np.zeros(5, np.float32)
STEPPING = ["median", "trimmed_mean", "krum", "multi_krum", "geometric_median"]
ALL = [*STEPPING, "norm_clip"]


def clipped_mean(deltas):
    return np.mean([d * np.float32(f) for d, f in zip(deltas, clip_factors(deltas), strict=True)], axis=0)


RULES = {
    "median": median,
    "trimmed_mean": lambda deltas: trimmed_mean(deltas, 2),
    "krum": lambda deltas: deltas[best(deltas, 2)[0]],
    "multi_krum": lambda deltas: mean_of(deltas, best(deltas, 2)[:-2]),
    "geometric_median": geometric_median,
    "norm_clip": clipped_mean,
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
shifting = pytest.mark.parametrize("rule", [RULES[name] for name in STEPPING], ids=STEPPING)

# Nine vectors, whole numbers: sums and differences are exact, so that ties are ties in every order.
INTEGERS = arrays(np.int64, (9, 3), elements=st.integers(-100, 100), unique=True)
CLOUDS = INTEGERS.map(lambda a: list(a.astype(np.float32)))


def update(delta, weight=1.0):
    return Update(np.asarray(delta, np.float32), weight, 1)


def stage_of(name, **table):
    return registry.stage({"name": name, **table})


def applied(name, updates, state=None, **table):
    draft = Draft(1, START, dict(sorted(updates.items())), START.copy(), len(updates))
    return stage_of(name, **table).apply(draft, state or {}, SITE)


def fleet(count, seed=0, spread=0.1, **others):
    rng = np.random.default_rng(seed)
    honest = {f"d{i:02}": update([1, 1, 1, 1, 5] + spread * rng.standard_normal(5)) for i in range(count)}
    return honest | others


def stepped(name, updates):
    """The next model's move, by the stage, and by `mean` behind it where it makes no step of its own."""
    stages = (stage_of(name), *(() if name in STEPPING else (Mean(),)))
    return merge(1, START, updates, stages=stages, states={}, site=SITE)[0]


# ---- by numbers worked out in sight ----------------------------------------------------------------------------------


def line(*numbers):
    return [np.array([number], np.float32) for number in numbers]


def test_the_median_is_the_one_in_the_middle_and_of_two_their_mean():
    assert median(line(1, 9, 2)).tolist() == [2]
    assert median(line(1, 9, 2, 4)).tolist() == [3]


def test_the_trimmed_mean_leaves_out_both_ends():
    assert trimmed_mean(line(1, 2, 6, 900, -900), 1).tolist() == [3]


def test_a_trim_that_leaves_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing is left of 4 updates"):
        trimmed_mean(line(1, 2, 3, 4), 2)


def test_krum_scores_are_sums_of_squares_to_the_nearest():
    """0, 1, 3, 10 and 100, of which one may lie: two neighbours count."""
    squares = [1 + 9, 1 + 4, 4 + 9, 49 + 81, 90**2 + 97**2]
    assert krum_scores(line(0, 1, 3, 10, 100), 1).tolist() == squares
    assert best(line(0, 1, 3, 10, 100), 1) == [1, 0, 2, 3, 4]


def test_multi_krum_is_the_mean_of_all_but_the_worst():
    deltas = line(0, 1, 3, 8, 100)
    chosen = best(deltas, 1)[:-1]
    assert sorted(chosen) == [0, 1, 2, 3]
    assert mean_of(deltas, chosen).tolist() == [3]


def test_the_geometric_median_of_a_star_is_its_centre():
    star = [np.array(p, np.float32) for p in ([1, 0], [-0.5, 3**0.5 / 2], [-0.5, -(3**0.5) / 2])]
    assert geometric_median(star, iterations=100) == pytest.approx([0, 0], abs=1e-5)


def test_the_geometric_median_has_the_least_sum_of_distances():
    points = list(np.random.default_rng(3).standard_normal((8, 4)).astype(np.float32))
    cost = lambda at: sum(np.linalg.norm(point - at) for point in points)  # noqa: E731
    found = geometric_median(points, iterations=100)
    rng = np.random.default_rng(4)
    assert all(cost(found) <= cost(found + 0.05 * rng.standard_normal(4)) for _ in range(100))


def test_no_update_is_longer_than_the_one_in_the_middle():
    assert clip_factors(line(1, -2, 4, 8, 0)) == [1, 1, 0.5, 0.25, 1]
    assert clip_factors(line(1, 2, 4), times=1.5) == [1, 1, 0.75]


@pytest.mark.parametrize(("share", "answers", "f"), [(0.2, 10, 2), (0.2, 11, 3), (0.3, 10, 3), (0.07, 100, 7)])
def test_a_share_of_the_answers_is_rounded_up(share, answers, f):
    assert liars(share, answers) == f


def test_there_is_no_median_of_nothing():
    with pytest.raises(RunError, match="no device answered"):
        median([])


# ---- properties ------------------------------------------------------------------------------------------------------


@rules
@given(cloud=CLOUDS, order=st.permutations(range(9)))
def test_the_order_of_the_answers_does_not_matter(rule, cloud, order):
    scores = krum_scores(cloud, 2)
    if len(set(scores.tolist())) == len(cloud):  # where two are equally good, the first by name is taken
        assert rule([cloud[i] for i in order]) == pytest.approx(rule(cloud), rel=1e-4, abs=1e-3)


@shifting
@given(cloud=CLOUDS, shift=st.integers(-50, 50))
def test_who_moves_everybody_moves_the_result_as_far(rule, cloud, shift):
    moved = rule([point + np.float32(shift) for point in cloud])
    assert moved == pytest.approx(rule(cloud) + shift, rel=1e-3, abs=1e-2)


@rules
@given(point=arrays(np.float32, 3, elements=st.floats(-1e6, 1e6, width=32)), count=st.integers(6, 12))
def test_where_all_say_the_same_that_is_the_result(rule, point, count):
    assert rule([point] * count) == pytest.approx(point, rel=1e-6)


@rules
@given(cloud=CLOUDS, far=st.floats(1e4, 1e30), way=st.integers(0, 2))
def test_one_device_moves_the_result_no_further_than_the_others_are_apart(rule, cloud, far, way):
    """However far it goes: the result stays within the honest ones' reach; the mean would follow it."""
    lie = np.zeros(3, np.float32)
    lie[way] = far
    honest = np.stack(cloud)
    reach = np.abs(honest).max() + np.linalg.norm(honest.max(axis=0) - honest.min(axis=0)) + 1
    assert np.linalg.norm(rule([*cloud, lie])) <= 2 * reach


@given(cloud=CLOUDS, trim=st.integers(0, 4))
def test_trimmed_means_stay_between_the_numbers_that_are_left(cloud, trim):
    ordered = np.sort(np.stack(cloud), axis=0)
    found = trimmed_mean(cloud, trim)
    assert (found >= ordered[trim] - 1e-4).all()
    assert (found <= ordered[8 - trim] + 1e-4).all()


# ---- the stages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_three_liars_of_ten_hardly_move_the_model(name):
    lies = {f"x{i}": update([-1e4, 1e4, -1e4, 1e4, 1e6], weight=1e12) for i in range(3)}
    step = stepped(name, fleet(7) | lies)
    # Clipped to the usual length, three liars still have three votes; the others' votes are seven.
    expected = pytest.approx([1, 1, 1, 1], abs=0.75 if name == "norm_clip" else 0.3)
    assert step[:4] == expected
    assert step[4] == pytest.approx(5, abs=0.3), "statistics are voted on as well"


def test_the_mean_would_have_followed_them():
    lies = {f"x{i}": update([-1e4, 1e4, -1e4, 1e4, 1e6]) for i in range(3)}
    assert (
        np.abs(stepped("norm_clip", fleet(7) | lies)).max()
        < 10
        < np.abs(merge(1, START, fleet(7) | lies, stages=(Mean(),), states={}, site=SITE)[0]).max()
    )


@pytest.mark.parametrize("name", ALL)
def test_a_weight_is_only_a_word(name):
    claimed = fleet(9, d00=update([2, 2, 2, 2, 5], weight=1e12))
    plain = fleet(9, d00=update([2, 2, 2, 2, 5]))
    assert stepped(name, claimed).tobytes() == stepped(name, plain).tobytes()


@pytest.mark.parametrize("name", ALL)
def test_lies_about_statistics_alone_change_nothing_much(name):
    lie = update([1, 1, 1, 1, 1e9])
    draft, _ = applied(name, fleet(8, a=lie))
    assert all(kept.delta[4] == pytest.approx(5, abs=0.3) for kept in draft.updates.values())


@pytest.mark.parametrize("name", STEPPING)
def test_stages_behind_it_see_only_who_is_believed(name):
    lies = {f"x{i}": update([-3, 3, -3, 3, 5]) for i in range(3)}
    draft, _ = applied(name, fleet(7) | lies)
    assert not set(lies) & set(draft.updates)
    assert len(draft.updates) == {"median": 6, "geometric_median": 6}.get(name, 7)
    assert {kept.weight for kept in draft.updates.values()} == {1.0}


@pytest.mark.parametrize("name", ALL)
def test_late_answers_are_shown_to_nobody_behind_it(name):
    late = {"z": update([9, 9, 9, 9, 9])}
    draft = Draft(1, START, fleet(9), START.copy(), 10, late)
    assert stage_of(name).apply(draft, {}, SITE)[0].late == {}


@pytest.mark.parametrize("name", ALL)
@given(order=st.permutations(range(9)))
def test_no_order_of_arrival_changes_a_bit(name, order):
    updates = list(fleet(9, spread=1.0).items())
    assert stepped(name, dict(updates[i] for i in order)).tobytes() == stepped(name, dict(updates)).tobytes()


def test_updates_themselves_are_left_alone():
    updates = fleet(9, x=update([50, 50, 50, 50, 50]))
    before = {device: one.delta.copy() for device, one in updates.items()}
    for name in ALL:
        applied(name, updates)
    assert all(np.array_equal(updates[device].delta, delta) for device, delta in before.items())


def test_a_long_vector_is_worked_on_in_blocks_and_is_the_same():
    deltas = list(np.random.default_rng(0).standard_normal((7, 20_000)).astype(np.float32))
    assert np.array_equal(median(deltas), np.median(np.stack(deltas).astype(np.float64), axis=0).astype(np.float32))
    square = ((np.stack(deltas)[0].astype(np.float64) - np.stack(deltas)[1:]) ** 2).sum(axis=1)
    assert krum_scores(deltas, 2)[0] == pytest.approx(np.sort(square)[:3].sum())


def crowd(*lies, count=40, size=9_000):
    """More than are told apart by differences."""
    return [*lies, *np.random.default_rng(1).standard_normal((count, size)).astype(np.float32)]


def test_distances_of_many_are_found_by_products_and_are_the_same():
    deltas = crowd()
    assert by_products(deltas) == pytest.approx(by_differences(deltas), rel=1e-12)
    squares = by_differences(deltas) + np.diag(np.full(len(deltas), np.inf))
    assert krum_scores(deltas, 8) == pytest.approx(
        np.sort(squares, axis=1)[:, : len(deltas) - 10].sum(axis=1), rel=1e-9
    )


def test_one_who_is_far_away_takes_nothing_from_the_distances_of_the_others():
    far = np.full(9_000, 1e30, np.float32)
    assert by_products(crowd(far))[1:, 1:] == pytest.approx(by_differences(crowd()), rel=1e-12)
    assert best(crowd(far), 8)[-1] == 0


def test_of_many_who_say_the_same_the_first_is_taken():
    """Wherever they stand among the others: the last bits of a product depend on that."""
    same, others = np.full(9_000, 0.1, np.float32), crowd()
    deltas = [same, *others[:13], same, *others[13:], same]
    assert len({krum_scores(deltas, 8)[i] for i in (0, 14, 42)}) == 1
    assert [i for i in best(deltas, 8) if i in {0, 14, 42}] == [0, 14, 42]
    assert (by_products([same] * 40) >= 0).all()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_number_of_threads_does_not_decide_who_is_believed(threads):
    with threadpool_limits(threads):
        scores = krum_scores(crowd(count=200), 30)
    with threadpool_limits(1):
        assert scores.tolist() == krum_scores(crowd(count=200), 30).tolist()


def test_of_two_equally_near_the_first_by_name_is_taken():
    assert nearest({"b": update([1]), "a": update([-1])}, np.zeros(1), 1) == ("a",)


# ---- too few answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trimmed_mean", "krum", "multi_krum"])
def test_with_too_few_answers_the_median_stands_in_and_it_is_counted_and_said(name, caplog):
    few = fleet(2, x=update([900, 900, 900, 900, 5])) if name != "trimmed_mean" else fleet(2)
    draft, state = applied(name, few)
    by_median, _ = applied("median", few)
    assert draft.step.tolist() == by_median.step.tolist()
    assert state["short"] == 1
    assert f"stage={name} answers={len(few)}" in caplog.text
    assert applied(name, few, state)[1]["short"] == 2
    assert applied(name, fleet(10), state)[1]["short"] == 1, "a full round is not counted"


@pytest.mark.parametrize("cohort", [3, 4, 5, 10])
@pytest.mark.parametrize("answers", [3, 4, 5])
def test_whatever_the_cohort_a_majority_outvotes_one_liar_of_so_many_answers(cohort, answers):
    liar = update([-900, -900, -900, -900, 5])
    stages = majority((Mean(),), cohort)
    moved, states = merge(1, START, fleet(answers - 1, x=liar), stages=stages, states={}, site=SITE)
    assert moved[:4] == pytest.approx([1, 1, 1, 1], abs=0.3)
    assert [states[stage.name]["short"] for stage in stages if stage.name == "multi_krum"] in ([], [answers < 5])


@pytest.mark.parametrize("name", ["median", "geometric_median", "norm_clip"])
@pytest.mark.parametrize("count", [1, 2])
def test_where_nobody_can_be_outvoted_the_run_goes_on_and_it_is_counted(name, count):
    draft, state = applied(name, fleet(count))
    assert state["short"] == 1
    assert len(draft.updates) == count
    assert np.isfinite(draft.step).all()


@pytest.mark.parametrize("share", [0, 0.5, -1])
@pytest.mark.parametrize("name", ["trimmed_mean", "krum", "multi_krum"])
def test_a_share_of_none_or_of_half_is_refused(name, share):
    with pytest.raises(Exception, match="share"):
        stage_of(name, share=share)
