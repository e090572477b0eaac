import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls as scipy_nnls

from edgefl.base.vector import Layout
from edgefl.learn.training import projection
from edgefl.learn.training.projection import inner, least_distance, parts, project, recover, solve_dual

KINDS = ("random", "duplicate", "multiple", "opposite", "zero", "dependent", "scales")
MARGINS = ("none", "positive", "mixed")


def independent(p, rows, b):
    """Least-distance programming on the rows themselves, by scipy; None if no x meets the margins."""
    lengths = np.linalg.norm(rows, axis=1)
    if (b[lengths == 0] > 0).any():
        return None
    rows, b = rows[lengths > 0] / lengths[lengths > 0, None], b[lengths > 0] / lengths[lengths > 0]
    q = b - rows @ p
    if q.max(initial=0) <= 0:
        return p
    scale = np.abs(q).max()
    e = np.vstack([rows.T, q / scale])
    f = np.eye(len(e))[-1]
    r = e @ scipy_nnls(e, f, maxiter=10_000)[0] - f
    if np.linalg.norm(r) < 1e-7:
        return None
    x = p - scale * r[:-1] / r[-1]
    assume((rows @ x >= b - 1e-6 * max(np.abs(x).max(), np.abs(p).max())).all())  # it errs where all but 0 is ruled out
    return x


def problem(seed, kind, margin, k):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 25))
    rows, p = rng.standard_normal((k, d)), rng.standard_normal(d) * 10.0 ** rng.integers(-1, 2)
    if kind == "duplicate":
        rows[-1] = rows[0]
    elif kind == "multiple":
        rows[-1] = 3 * rows[0]
    elif kind == "opposite":
        rows[-1] = -rows[0]
    elif kind == "zero":
        rows[-1] = 0
    elif kind == "dependent":
        rows[-1] = -rows[:-1].sum(axis=0)
    elif kind == "scales":
        rows *= 10.0 ** rng.integers(-4, 5, (k, 1))
    b = {"none": np.zeros(k), "positive": np.full(k, 0.01), "mixed": rng.standard_normal(k)}[margin]
    return p, rows, b


def check_against_the_independent_solver(p, rows, b):
    solution, x = project(p, rows, b), independent(p, rows, b)
    assert solution.feasible == (x is not None)
    if x is None:
        assert solution.x is p
        assert not solution.multipliers.any()
        return
    scale = max(np.abs(x).max(), np.abs(p).max())
    np.testing.assert_allclose(solution.x, x, rtol=0, atol=1e-6 * scale)
    z = solution.multipliers
    reach = np.linalg.norm(rows, axis=1) * scale + np.abs(b)
    assert (z >= 0).all()
    assert (rows @ solution.x >= b - 1e-8 * reach).all()
    np.testing.assert_allclose(z * (rows @ solution.x - b), 0, atol=1e-6 * (1 + z.max()) * reach.max())
    np.testing.assert_allclose(solution.x, p + rows.T @ z, atol=1e-9 * scale)


def nearly_dependent(seed, kind, k, d):
    """Rows as a memory may hold them: in few dimensions, copies but for rounding, of any size, of rounding alone."""
    rng = np.random.default_rng(seed)
    rows, p = rng.standard_normal((k, d)), rng.standard_normal(d)
    noise = 10.0 ** rng.uniform(-12, -3)
    if kind == "flat":
        rank = int(rng.integers(1, 4))
        rows = rng.standard_normal((k, rank)) @ rng.standard_normal((rank, d)) + noise * rows
    elif kind == "copies":
        rows = rng.standard_normal(d) * rng.choice([-1, 1], (k, 1)) + noise * rows
    elif kind == "decayed":
        rows = np.cumsum(rows, axis=0) * 0.5 ** rng.integers(0, 35, (k, 1))
    elif kind == "rounding":  # a bias in front of BatchNorm has no gradient but this
        rows, p = 1e-9 * rows, 1e-9 * p
    elif kind == "sizes":
        rows, p = rows * 10.0 ** rng.uniform(-11, 11, (k, 1)), p * 10.0 ** rng.uniform(-11, 11)
    elif kind == "aside":  # p has next to nothing to do with the rows
        p = p - np.linalg.pinv(rows) @ (rows @ p) + 1e-9 * p
    return p.astype(np.float32), rows.astype(np.float32)


@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["flat", "copies", "decayed", "rounding", "sizes", "aside"]),
    k=st.sampled_from([2, 3, 4, 5, 12, 40, 100]),
    d=st.sampled_from([3, 10, 50, 200]),
)
@example(seed=0, kind="flat", k=100, d=10)
@settings(max_examples=150, deadline=None)
def test_without_a_margin_there_always_is_an_answer_that_meets_the_conditions_of_optimality(seed, kind, k, d):
    p, rows = nearly_dependent(seed, kind, k, d)
    solution = project(p, rows)
    assert solution.feasible
    rows, p, z = rows.astype(np.float64), p.astype(np.float64), solution.multipliers
    lengths, scale = np.linalg.norm(rows, axis=1), np.linalg.norm(p)
    kept = lengths > 1e-12 * lengths.max()
    x = p + rows.T @ z
    cosines = (rows @ x)[kept] / lengths[kept] / scale
    assert (z >= 0).all()
    assert cosines.min() >= -2e-6
    assert np.abs(cosines[z[kept] > 0]).max(initial=0) <= 2e-6  # who pushes has no room to spare
    np.testing.assert_allclose(solution.x, x, rtol=0, atol=1e-6 * scale)


cases = given(
    seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS), margin=st.sampled_from(MARGINS), k=st.integers(2, 12)
)


@cases
@settings(max_examples=300, deadline=None)
def test_projections_agree_with_an_independent_solver(seed, kind, margin, k):
    check_against_the_independent_solver(*problem(seed, kind, margin, k))


@cases
@settings(max_examples=200, deadline=None)
def test_they_agree_without_quadprog_too(seed, kind, margin, k):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection, "_quadprog", lambda: None)
        check_against_the_independent_solver(*problem(seed, kind, margin, k))


@cases
@settings(max_examples=150, deadline=None)
def test_projecting_twice_changes_nothing_and_no_feasible_point_gets_further_away(seed, kind, margin, k):
    p, rows, b = problem(seed, kind, margin, k)
    once = project(p, rows, b)
    if not once.feasible:
        return
    scale = max(np.abs(once.x).max(), np.abs(p).max())
    lengths = np.linalg.norm(rows, axis=1)
    assume(((b - rows @ once.x)[lengths > 0] / lengths[lengths > 0]).max() <= 1e-12 * scale)  # multipliers may be huge
    twice = project(once.x, rows, b)
    assert twice.feasible
    np.testing.assert_allclose(twice.x, once.x, rtol=0, atol=1e-9 * scale)
    other = project(np.random.default_rng(seed + 1).standard_normal(len(p)), rows, b).x
    assert np.linalg.norm(once.x - other) <= np.linalg.norm(p - other) + 1e-9 * scale


@given(seed=st.integers(0, 2**32), k=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_a_vector_that_already_agrees_is_returned_itself(seed, k):
    rng = np.random.default_rng(seed)
    p = rng.standard_normal(20)
    rows = [row if row @ p > 0 else -row for row in rng.standard_normal((k, 20))]
    assert project(p, rows).x is p


@given(seed=st.integers(0, 2**32), k=st.integers(1, 12), factor=st.floats(1e-6, 1e6))
@settings(max_examples=60, deadline=None)
def test_without_a_margin_the_projection_is_positively_homogeneous(seed, k, factor):
    rng = np.random.default_rng(seed)
    p, rows = rng.standard_normal(20), rng.standard_normal((k, 20))
    np.testing.assert_allclose(project(factor * p, rows).x, factor * project(p, rows).x, atol=1e-10 * factor)


def test_one_row_worked_out_by_hand():
    solution = project(np.array([1.0, -3.0]), np.array([[0.0, 2.0]]), 1.0)
    np.testing.assert_allclose(solution.x, [1.0, 0.5])
    np.testing.assert_allclose(solution.multipliers, [1.75])


@pytest.mark.parametrize("k", [2, 6])
def test_opposite_rows_contradict_each_other_only_with_a_margin(k):
    row, p = np.arange(1.0, 9.0), np.ones(8)
    rows = [row, -row, *np.eye(8)[: k - 2]]
    assert not project(p, rows, 1e-3).feasible
    assert project(p, rows, 1e-3).x is p
    flat = project(p, rows)
    assert flat.feasible
    assert abs(row @ flat.x) < 1e-9


@pytest.mark.parametrize("k", [3, 7])
def test_three_rows_at_120_degrees_contradict_each_other(k):
    angles = np.array([0, 2, 4]) * np.pi / 3
    plane = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rows = np.zeros((k, 10))
    rows[:3, :2] = plane
    rows[3:, 3:] = np.eye(7)[: k - 3]
    assert not project(np.ones(10), rows, 1e-3).feasible
    np.testing.assert_allclose(project(np.ones(10), rows).x[:2], 0, atol=1e-9)


def test_a_tiny_contradiction_next_to_large_products_is_still_seen():
    row = np.full(4, 500.0)
    assert not project(np.full(4, 50.0), [row, -row], 1e-3).feasible


def test_a_row_of_zeros_is_met_without_a_margin_and_impossible_with_one():
    p, rows = np.array([-1.0, 1.0]), np.array([[1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(project(p, rows).x, [0, 1])
    assert not project(p, rows, [0.0, 1e-3]).feasible
    assert project(p, np.zeros((1, 2))).x is p
    assert project(p, []).x is p


def test_numbers_that_are_not_finite_have_no_projection():
    p = np.array([np.nan, 1.0])
    solution = project(p, np.eye(2))
    assert not solution.feasible
    assert solution.x is p


def test_products_are_accumulated_in_float64_whatever_the_block():
    row = np.array([1e8, 1.0, -1e8], np.float32)
    ones = np.ones(3, np.float32)
    assert inner([row, ones])[0, 1] == 1.0
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((7, 300_001)).astype(np.float32)
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(inner(rows), exact @ exact.T, rtol=1e-12, atol=1e-7)
    np.testing.assert_allclose(inner(rows, lead=2), exact[:2] @ exact.T, rtol=1e-12, atol=1e-7)
    z = np.array([0, 1.5, 0, 0, 2.0, 0, 0])
    np.testing.assert_allclose(recover(rows[0], rows, z), (exact[0] + exact.T @ z).astype(np.float32))


def test_the_type_that_goes_in_comes_out():
    rows = np.array([[-1.0, 0.0]])
    for real in (np.float32, np.float64):
        assert project(np.ones(2, real), rows.astype(real)).x.dtype == real


def test_a_known_gram_matrix_gives_the_same_multipliers():
    rng = np.random.default_rng(3)
    p, rows = rng.standard_normal(30), rng.standard_normal((9, 30))
    dual = solve_dual(rows @ rows.T, rows @ p, 0.5)
    np.testing.assert_allclose(dual.multipliers, project(p, rows, 0.5).multipliers, atol=1e-9)


def test_statistics_are_no_part():
    layout = Layout(("a", "b", "mean"), ((2,), (3,), (4,)), buffers=1)
    assert parts(layout, "model") == (slice(0, 5),)
    assert parts(layout, "tensor") == (slice(0, 2), slice(2, 5))


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_nearly_depend_on_each_other_do_not_take_turns_for_ever(seed, monkeypatch):
    solved, lstsq = [], np.linalg.lstsq
    monkeypatch.setattr(np.linalg, "lstsq", lambda *given, **more: solved.append(1) or lstsq(*given, **more))
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((20, 4)) @ rng.standard_normal((4, 20)) + 1e-7 * rng.standard_normal((20, 20))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    q = rows @ rng.standard_normal(20)
    least_distance(rows @ rows.T, q / np.abs(q).max())
    assert len(solved) < 100  # a few for each row; taking turns to the last it would be 400


def test_four_rows_need_no_solver():
    code = (
        "import sys, numpy as np; from edgefl.learn.training.projection import project;"
        "import edgefl.learn.algorithms.gradma, edgefl.learn.algorithms.fedgc;"
        "project(-np.ones(6), np.eye(6)[:4]);"
        "assert not {'quadprog', 'scipy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
