from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import Play, fleet
from toys import Linear, Mlp, site, weights

from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedavgm import FedAvgM
from edgefl.learn.algorithms.gradma import GradMA, Memory, reduce_memory, worker_gradient
from edgefl.learn.contract import Draft, Task, Update
from edgefl.learn.training.local import gradient

MODEL = Mlp(2, 3, 2)  # tensors of 6, 3, 6 and 2 numbers
HERE = site(MODEL)
ALIKE = {"lr": 0.1, "batch": 32, "batches": 3}  # how all of a test train
SIZE = MODEL.layout.size


def play(algorithm, rounds, model=None):
    model = model or Mlp(4, 5, 3)
    return Play(algorithm, fleet(3, model), weights(model)).rounds(rounds)


# The device half


@given(seed=st.integers(0, 2**32), factor=st.floats(1e-3, 1e3))
@settings(max_examples=80, deadline=None)
def test_a_projected_gradient_opposes_no_row_and_scales_with_the_gradient(seed, factor):
    rng = np.random.default_rng(seed)
    g, rows = rng.standard_normal(12), rng.standard_normal((3, 12))
    kept = worker_gradient(g, rows)
    assert (rows @ kept >= -1e-9).all()
    np.testing.assert_allclose(worker_gradient(factor * g, rows), factor * kept, atol=1e-9 * factor)
    if (rows @ g >= 0).all():
        assert kept is g


def test_a_row_of_zeros_asks_for_nothing():
    g = np.array([1.0, -1.0])
    assert worker_gradient(g, [g, g, np.zeros(2)]) is g


def test_one_local_step_of_the_programs_variant_is_plain_descent():
    for granularity in ("model", "tensor"):
        ours = GradMA(variant="worker", prev="global", batches=1, granularity=granularity)
        plain = FedAvg(batches=1, lr=ours.lr, batch=ours.batch, weights="uniform")
        assert (play(ours, 2).params == play(plain, 2).params).all()


@pytest.mark.parametrize("prev", ["local", "global"])
def test_a_walk_is_the_papers_worked_out_step_by_step(prev):
    model = Mlp(4, 5, 3)
    here = site(model)
    start, last = weights(model, 1, np.float64), weights(model, 2, np.float64)
    algorithm = GradMA(variant="worker", prev=prev, lr=0.5, batch=8, batches=4)
    state = {"last": last} if prev == "local" else {}
    update, after = algorithm.train(Task(2, start), state, replace(here, rng=seeds.stream(5)))

    order = seeds.stream(5).permutation(len(here.data))
    before, w = (last if prev == "local" else start), start
    for i in range(4):
        x, y = here.data.x[order[8 * i : 8 * i + 8]], here.data.y[order[8 * i : 8 * i + 8]]
        g = gradient(here, w, x, y)
        rows = [gradient(here, before, x, y), gradient(here, start, x, y), w - start]
        before, w = w, w - 0.5 * worker_gradient(g, rows)
    np.testing.assert_allclose(update.delta, w - start, atol=1e-12)
    assert (prev == "local") == ("last" in after)
    if prev == "local":
        np.testing.assert_allclose(after["last"], w, atol=1e-12)


def test_statistics_move_as_in_plain_descent():
    model = Linear(4, 3, statistics=True)
    ours, plain = GradMA(variant="worker", **ALIKE), FedAvg(**ALIKE)
    k = model.layout.trainable
    for device in ("pi-0", "pi-1"):
        a = play(ours, 1, model).updates[device].delta[k:]
        assert (a == play(plain, 1, model).updates[device].delta[k:]).all()


# The memory's members


@given(
    size=st.integers(1, 6),
    rounds=st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=6, unique=True), max_size=12),
)
def test_the_memory_never_overflows_and_holds_everybody_of_the_round(size, rounds):
    counters, order = {}, ()
    for sampled in (drawn[:size] for drawn in rounds):
        was = dict(counters)
        counters, after, new = reduce_memory(counters, order, sampled, size)
        assert len(after) <= size
        assert len(set(after)) == len(after)
        assert set(sampled) <= set(after)
        assert {d for d, c in counters.items() if c > 0} == set(after)
        assert set(new) == set(sampled) - set(order)
        for gone in set(order) - set(after):
            kept = [d for d in order if d in after and d not in sampled]
            assert all(was[gone] <= was[d] for d in kept)
        order = after


def test_the_least_often_seen_goes_first_and_of_equals_the_earliest():
    counters, order, new = reduce_memory({"a": 2, "b": 1, "c": 1}, ("a", "b", "c"), ("d",), 3)
    assert (order, new) == (("a", "c", "d"), ("d",))
    assert counters == {"a": 2, "b": 0, "c": 1, "d": 1}


def test_nobody_of_the_round_is_evicted_even_if_seen_least():
    counters, order, _ = reduce_memory({"a": 5, "b": 1}, ("a", "b"), ("c", "b"), 2)
    assert order == ("b", "c")
    assert counters == {"a": 0, "b": 2, "c": 1}


def test_who_returns_after_an_eviction_starts_again():
    counters, order, new = reduce_memory({"a": 0, "b": 3}, ("b",), ("a",), 2)
    assert (counters["a"], order, new) == (1, ("b", "a"), ("a",))


def test_reducing_changes_nothing_that_was_given():
    counters, order = {"a": 1}, ["a"]
    reduce_memory(counters, order, ["b"], 1)
    assert (counters, order) == ({"a": 1}, ["a"])


def test_a_memory_smaller_than_the_round_is_the_operators_mistake():
    with pytest.raises(ConfigError, match="memory of 1 devices: 2 answered"):
        reduce_memory({}, (), ("a", "b"), 1)


# The stage


def draft(updates, step=None, late=None):
    answers = {d: Update(v, 1.0, 1) for d, v in sorted(updates.items())}
    after = {d: Update(v, 1.0, 1) for d, v in (late or {}).items()}
    mean = sum(updates.values()) / max(1, len(updates)) if step is None else step
    return Draft(1, np.zeros(SIZE), answers, mean, 10, after)


def rows_of(state):
    """What is remembered, by device."""
    return {str(d): state["scales"][i] * state[f"row.{i}"] for i, d in enumerate(state["members"])}


def reference(rounds, size, beta1, beta2, slices):
    """The paper's update, kept in plain dictionaries and solved from scratch."""
    mt, memory, counters, order = np.zeros(SIZE), {}, {}, ()
    for updates in rounds:
        counters, order, new = reduce_memory(counters, order, sorted(updates), size)
        mo = beta1 * mt + sum(updates.values()) / len(updates)
        old, memory = memory, {}
        for d in order:
            memory[d] = updates[d] if d in new else beta2 * old[d] + updates.get(d, 0)
        mt = mo.copy()
        for s in slices:
            mt[s] = worker_gradient(mo[s], [row[s] for row in memory.values()])
    return mt, memory, counters


@given(
    seed=st.integers(0, 2**32),
    size=st.integers(3, 7),
    beta2=st.sampled_from([0.0, 0.3, 0.9]),
    granularity=st.sampled_from(["model", "tensor"]),
)
@settings(max_examples=60, deadline=None)
def test_the_incremental_memory_is_the_papers_computed_from_scratch(seed, size, beta2, granularity):
    rng = np.random.default_rng(seed)
    rounds = [
        {f"d{i}": rng.standard_normal(SIZE) for i in rng.choice(10, rng.integers(1, 4), replace=False)}
        for _ in range(6)
    ]
    stage, state = Memory(size, 0.5, beta2, granularity), {}
    for updates in rounds:
        after, state = stage.apply(draft(updates), state, HERE)
    slices = MODEL.layout.slices if granularity == "tensor" else (slice(0, SIZE),)
    mt, memory, counters = reference(rounds, size, 0.5, beta2, slices)
    np.testing.assert_allclose(after.step, mt, atol=1e-7)
    ours = rows_of(state)
    assert list(ours) == list(memory)
    assert state["counters"].tolist() == [counters[d] for d in memory]
    for d, row in memory.items():
        np.testing.assert_allclose(ours[d], row, atol=1e-12)
        for s in slices:
            assert after.step[s] @ row[s] >= -1e-9 * max(1, np.linalg.norm(row))
    stored = np.array([state[f"row.{i}"] for i in range(len(ours))])
    for part, s in enumerate(slices):
        np.testing.assert_allclose(state["gram"][part], stored[:, s] @ stored[:, s].T, atol=1e-9)
    assert state["unsolved"] == 0


def test_a_momentum_that_opposes_nobody_stays_exactly_as_it_is():
    rng = np.random.default_rng(0)
    updates = {d: np.abs(rng.standard_normal(SIZE)) for d in "abc"}
    sent = draft(updates)
    after, state = Memory(5).apply(sent, {}, HERE)
    assert (after.step == sent.step).all()
    assert state["shrunk"] == 1.0
    assert state["largest"] == 0.0


def test_the_report_tells_how_much_the_projection_shrank_the_momentum():
    one = np.zeros(SIZE)
    one[0] = 1.0
    step = np.zeros(SIZE)
    step[:2] = -3.0, 4.0
    after, state = Memory(5).apply(draft({"a": one}, step), {}, HERE)
    np.testing.assert_allclose(after.step[:2], [0, 4])
    np.testing.assert_allclose(state["shrunk"], 0.8)
    np.testing.assert_allclose(state["largest"], 3.0)


def test_the_momentum_is_projected_however_dependent_the_rows_are():
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((40, 2)) @ rng.standard_normal((2, SIZE)) + 1e-8 * rng.standard_normal((40, SIZE))
    step = rng.standard_normal(SIZE)
    after, state = Memory(40).apply(draft({f"d{i:02}": row for i, row in enumerate(flat)}, step), {}, HERE)
    assert state["unsolved"] == 0
    k = HERE.model.layout.trainable
    cosines = flat[:, :k] @ after.step[:k] / np.linalg.norm(flat[:, :k], axis=1) / np.linalg.norm(step[:k])
    assert cosines.min() >= -1e-6
    assert np.linalg.norm(after.step[:k] - step[:k]) > 0.1


def test_a_memory_that_forgets_at_once_asks_nothing_for_the_absent():
    one = np.zeros(SIZE)
    one[0] = 1.0
    stage = Memory(5, 0.0, 0.0)
    _, state = stage.apply(draft({"a": one}), {}, HERE)
    after, state = stage.apply(draft({"b": -one}), state, HERE)
    np.testing.assert_allclose(after.step, -one)
    np.testing.assert_allclose(rows_of(state)["a"], 0)


def test_rows_that_were_not_touched_are_neither_copied_nor_changed():
    rng = np.random.default_rng(0)
    _, state = Memory(5).apply(draft({"a": rng.standard_normal(SIZE), "b": rng.standard_normal(SIZE)}), {}, HERE)
    kept = {name: array.copy() for name, array in state.items()}
    _, after = Memory(5).apply(draft({"b": rng.standard_normal(SIZE)}), state, HERE)
    assert after["row.0"] is state["row.0"]
    assert after["scales"].tolist() == [0.5, 1.0]
    assert all((state[name] == kept[name]).all() for name in kept)
    assert all(array.dtype != object for array in after.values())


def test_a_late_update_is_remembered_but_has_no_part_in_the_mean():
    one = np.zeros(SIZE)
    one[0] = 1.0
    step = -one + 2 * np.eye(SIZE)[1]
    after, state = Memory(5).apply(draft({"a": step}, late={"b": one}), {}, HERE)
    assert state["members"].tolist() == ["a", "b"]
    np.testing.assert_allclose(after.step, 2 * np.eye(SIZE)[1])


def test_late_updates_take_only_the_room_that_is_left_and_a_fresh_one_wins():
    one = np.eye(SIZE)
    _, state = Memory(2).apply(draft({"a": one[0]}, late={"a": one[5], "b": one[1], "c": one[2]}), {}, HERE)
    assert state["members"].tolist() == ["a", "b"]
    assert (rows_of(state)["a"] == one[0]).all()


# The whole


def test_without_memories_it_is_fedavgm_bit_for_bit():
    ours = GradMA(variant="server", memories=0, beta1=0.7, rate=0.5, **ALIKE)
    theirs = FedAvgM(beta=0.7, rate=0.5, weights="uniform", **ALIKE)
    assert (play(ours, 4).params == play(theirs, 4).params).all()


def test_without_memories_momentum_and_worker_it_is_fedavg():
    ours = GradMA(variant="server", memories=0, beta1=0.0, **ALIKE)
    assert (play(ours, 3).params == play(FedAvg(weights="uniform", **ALIKE), 3).params).all()


def test_variants_share_halves_with_the_full_method():
    full, worker, server = (GradMA(variant=v, **ALIKE) for v in ("full", "worker", "server"))
    assert worker.stages() == FedAvg().stages()
    assert full.stages() == server.stages()
    assert (play(full, 1).updates["pi-1"].delta == play(worker, 1).updates["pi-1"].delta).all()
    plain = FedAvg(weights="uniform", **ALIKE)
    assert (play(server, 1).updates["pi-1"].delta == play(plain, 1).updates["pi-1"].delta).all()


@pytest.mark.parametrize("granularity", ["model", "tensor"])
def test_a_short_run_keeps_its_promises_in_float32_with_statistics(granularity):
    model = Linear(4, 3, statistics=True)
    game = play(GradMA(memories=3, granularity=granularity, lr=0.5, batches=4), 4, model)
    state, k = game.server["memory"], model.layout.trainable
    assert state["m"].dtype == np.float32
    assert len(state["m"]) == k
    assert state["row.0"].shape == (k,)
    for row in rows_of(state).values():
        assert row.astype(float) @ state["m"] >= -1e-5 * np.linalg.norm(row) * np.linalg.norm(state["m"])
    assert np.isfinite(game.params).all()
