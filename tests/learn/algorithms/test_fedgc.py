from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import fleet
from toys import Linear, Mlp, site, weights

from edgefl.base import seeds
from edgefl.base.vector import Layout
from edgefl.learn.aggregation import Mean, merge
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedgc import FedGC, Sgc, cgc, sgc
from edgefl.learn.contract import Draft, Task, Update

C = 1e-3
LAYOUT = Layout(("a", "b", "c", "mean"), ((6,), (2, 4), (1,), (3,)), buffers=1)
TENSORS = LAYOUT.slices[:3]
seed = given(seed=st.integers(0, 2**32))


def play(algorithm, rounds, model=None, count=3):
    """The model after so many rounds with everybody, the last updates and what the stages and devices kept."""
    model = model or Mlp(4, 5, 3)
    params, previous, server, kept, updates = weights(model), None, {}, {}, {}
    sites = fleet(count, model)
    for r in range(1, rounds + 1):
        for device, place in sites.items():
            task = Task(r, params, previous=previous if algorithm.traits.uses_previous else None)
            here = replace(place, rng=seeds.stream(7, r, device))
            updates[device], kept[device] = algorithm.train(task, kept.get(device, {}), here)
        merged, server = merge(r, params, updates, stages=algorithm.stages(), states=server, site=here)
        params, previous = merged, params
    return params, updates, server, kept


@seed
@settings(max_examples=100, deadline=None)
def test_every_tensor_agrees_with_the_last_gradient_and_only_needed_pushes_are_made(seed):
    rng = np.random.default_rng(seed)
    h, z = rng.standard_normal((2, LAYOUT.size))
    u = cgc(h, z, LAYOUT)
    for s in TENSORS:
        assert u[s] @ z[s] >= C * (1 - 1e-9)
        if h[s] @ z[s] >= C:
            assert (u[s] == h[s]).all()
        else:
            np.testing.assert_allclose(u[s] @ z[s], C, rtol=1e-9)
            v = (u[s] - h[s]) @ z[s] / (z[s] @ z[s])
            assert v > 0
            np.testing.assert_allclose(u[s] - h[s], v * z[s], atol=1e-12)
    assert (u[LAYOUT.trainable :] == h[LAYOUT.trainable :]).all()


@seed
@settings(max_examples=50, deadline=None)
def test_without_a_layout_the_whole_vector_is_one_constraint(seed):
    rng = np.random.default_rng(seed)
    h, z = rng.standard_normal((2, 15))
    u = cgc(h, z)
    assert u @ z >= C * (1 - 1e-9)
    v = max(0.0, (C - h @ z) / (z @ z))
    np.testing.assert_allclose(u, h + v * z, atol=1e-12)


def test_a_tensor_whose_last_gradient_is_zero_stays_as_it_is():
    h, z = -np.ones(LAYOUT.size), np.ones(LAYOUT.size)
    z[TENSORS[1]] = 0
    u = cgc(h, z, LAYOUT)
    assert (u[TENSORS[1]] == -1).all()
    np.testing.assert_allclose(u[TENSORS[0]], C / 6)


def test_a_tiny_last_gradient_makes_a_huge_push_unless_guarded():
    h, z = np.array([0.0, 1.0], np.float32), np.array([1e-6, 0.0], np.float32)
    np.testing.assert_allclose(cgc(h, z), [1e3, 1], rtol=1e-5)
    np.testing.assert_allclose(cgc(h, z, c_rel=0.1), [0.1, 1], rtol=1e-5)
    assert np.isfinite(cgc(h, np.array([1e-30, 0.0], np.float32))).all()


@given(seed=st.integers(0, 2**32), k=st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_the_mean_is_pushed_as_little_as_needed_to_agree_with_everybody(seed, k):
    rng = np.random.default_rng(seed)
    gradients = rng.standard_normal((k, 30))
    shares = rng.dirichlet(np.full(k, 0.1))
    mean = shares @ gradients
    projection = sgc(mean, gradients)
    assert projection.feasible
    products, z = gradients @ projection.x, projection.multipliers
    assert (products >= C - 1e-6 * np.abs(gradients @ mean).max()).all()
    assert (z >= 0).all()
    np.testing.assert_allclose(z * (products - C), 0, atol=1e-8)
    np.testing.assert_allclose(projection.x, mean + z @ gradients, atol=1e-10)
    if (gradients @ mean >= C).all():
        assert (projection.x == mean).all()
    order = rng.permutation(k)
    np.testing.assert_allclose(sgc(mean, gradients[order]).x, projection.x, atol=1e-9)


def test_contradicting_devices_leave_the_mean_exactly_as_it_is():
    g = np.array([1.0, 2.0])
    mean = 0.3 * g
    projection = sgc(mean, [g, -g])
    assert not projection.feasible
    assert projection.x is mean


def test_a_device_that_sent_zeros_is_left_out_unless_strict():
    gradients = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 2.0]])
    mean = np.array([-1.0, 0.0])
    projection = sgc(mean, gradients)
    assert projection.feasible
    assert projection.multipliers[1] == 0
    assert projection.multipliers[0] > 0
    assert not sgc(mean, gradients, strict=True).feasible
    assert sgc(mean, np.zeros((2, 2))).x is mean


def test_one_device_alone_decides():
    g = np.array([0.3, -0.2])
    assert sgc(g, [g]).x is g


def stage(step, deltas, state=None, **options):
    updates = {f"pi-{i}": Update(np.array(d), 1.0, 1) for i, d in enumerate(deltas)}
    draft = Draft(2, np.zeros(len(step)), updates, np.array(step))
    width = len(step)
    return Sgc(**options).apply(draft, state or {}, site(Linear(width, 1, bias=False)))


def test_the_stage_counts_what_is_infeasible():
    draft, state = stage([0.1, 0.2], [[1.0, 2.0], [-1.0, -2.0]])
    assert draft.step.tolist() == [0.1, 0.2]
    assert state["infeasible"] == 1
    _, state = stage([0.1, 0.2], [[1.0, 2.0], [-1.0, -2.0]], state)
    assert state["infeasible"] == 2
    draft, state = stage([-0.1, 0.2], [[1.0, 0.0], [0.0, 1.0]], state)
    assert state["infeasible"] == 2
    assert state["largest"] > 0
    np.testing.assert_allclose(draft.step, [C, 0.2])


@pytest.mark.parametrize("lr", [0.01, 1.0])
def test_the_stage_on_steps_is_sgc_on_gradients(lr):
    rng = np.random.default_rng(0)
    gradients = rng.standard_normal((4, 8))
    mean = gradients[0] - gradients[1]
    draft, _ = stage(lr * mean, lr * gradients, lr=lr, margin=0.5)
    np.testing.assert_allclose(draft.step / lr, sgc(mean, gradients, 0.5).x, atol=1e-9)


def test_the_stage_can_look_at_each_tensor_and_leaves_statistics_alone():
    model = Linear(2, 1, statistics=True)
    updates = {"a": Update(np.array([1.0, 0.0, 1.0, 5.0, 5.0]), 1.0, 1)}
    draft = Draft(1, np.zeros(5), updates, np.array([-1.0, 1.0, 4.0, -7.0, -7.0]))
    after, _ = Sgc(granularity="tensor").apply(draft, {}, site(model))
    np.testing.assert_allclose(after.step, [C, 1.0, 4.0, -7.0, -7.0])


def test_without_both_constraints_it_is_fedavg_bit_for_bit():
    plain = FedAvg(batches=3, batch=8, weights="batch")
    ours = FedGC(batches=3, batch=8, cgc=False, sgc=False)
    assert (play(ours, 3)[0] == play(plain, 3)[0]).all()


def test_the_first_round_without_sgc_is_fedavgs():
    plain, ours = FedAvg(batches=3, batch=8, weights="batch"), FedGC(batches=3, batch=8, sgc=False, margin=100)
    assert (play(ours, 1)[0] == play(plain, 1)[0]).all()
    assert (play(ours, 2)[0] != play(plain, 2)[0]).any()


@pytest.mark.parametrize("granularity", ["tensor", "model"])
def test_what_a_device_sends_agrees_with_the_last_step(granularity):
    algorithm = FedGC(lr=0.2, batches=2, batch=4, margin=100, granularity=granularity)
    before = play(algorithm, 1)[0]
    _, updates, _, kept = play(algorithm, 2)
    z = before - weights(Mlp(4, 5, 3))
    layout = Mlp(4, 5, 3).layout
    slices = layout.slices if granularity == "tensor" else (slice(0, layout.size),)
    for update in updates.values():
        for s in slices:
            assert update.delta[s].astype(float) @ z[s] / 0.2**2 >= 100 - 1e-3
    assert sum(int(state["corrected"]) for state in kept.values()) > 0
    assert max(float(state["largest"]) for state in kept.values()) > 0


def test_the_order_of_arrival_changes_nothing():
    algorithm = FedGC(batches=2, batch=4)
    params, updates, _, _ = play(algorithm, 2)
    here = site(Mlp(4, 5, 3))
    forth = merge(3, params, updates, stages=algorithm.stages(), states={}, site=here)[0]
    back = merge(3, params, dict(reversed(updates.items())), stages=algorithm.stages(), states={}, site=here)[0]
    assert (forth == back).all()


def test_without_sgc_the_coordinator_takes_the_plain_mean():
    assert FedGC(sgc=False).stages() == (Mean(),)
    assert FedGC(lr=0.3).stages() == (Mean(), Sgc(lr=0.3))
