"""MOON: the contrast by hand, and the device half on torch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from toys import Mlp, dataset, numeric_gradient, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.moon import Moon, contrast
from edgefl.learn.contract import Task
from edgefl.learn.models.blocks import inside
from edgefl.learn.models.build import build

rows = arrays(float, (3, 4), elements=st.floats(0.1, 3))


def torch_site(model="mlp_bn", samples=60):
    built, params = build(model, (4,), 3, seed=1, device="cpu")
    return built, params, lambda: site(built, dataset(samples))


def test_equal_features_everywhere_cost_log_two_and_pull_nowhere():
    h = np.random.default_rng(0).standard_normal((5, 4))
    loss, dh = contrast(h, h, h, 0.5)
    assert loss == pytest.approx(np.log(2))
    np.testing.assert_allclose(dh, 0, atol=1e-15)


def test_right_angles_give_a_number_worked_out_by_hand():
    h, towards, away = np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]]), np.array([[0.0, 3.0]])
    loss, dh = contrast(h, towards, away, 0.5)
    assert loss == pytest.approx(np.log1p(np.exp(-2.0)))  # cosines 1 and 0
    np.testing.assert_allclose(dh, [[0.0, 2.0 / (1 + np.exp(2.0))]], atol=1e-12)


@given(rows, rows, rows)
def test_the_gradient_is_that_of_the_loss(h, towards, away):
    _, dh = contrast(h, towards, away, 0.5)
    np.testing.assert_allclose(dh, numeric_gradient(lambda v: contrast(v, towards, away, 0.5)[0], h), atol=1e-6)


def test_features_that_are_all_zero_do_no_harm():
    h = np.zeros((2, 4), np.float32)
    loss, dh = contrast(h, np.ones((2, 4), np.float32), h, 0.5)
    assert np.isfinite(loss)
    np.testing.assert_array_equal(dh, 0)


def test_without_the_contrast_it_is_fedavg_on_any_back_end():
    model = Mlp(4, 5, 3)
    task = Task(1, weights(model))
    ours, kept = Moon(mu=0).train(task, {}, site(model))
    theirs, _ = FedAvg().train(task, {}, site(model))
    np.testing.assert_array_equal(ours.delta, theirs.delta)
    np.testing.assert_allclose(kept["previous"], task.params + ours.delta, atol=1e-7)


def test_the_view_with_features_has_the_same_vector_and_the_same_outputs():
    model, params, there = torch_site()
    view = inside(model, "moon").featured(model)
    x = there().data.x
    assert (view.layout.shapes, view.layout.buffers) == (model.layout.shapes, model.layout.buffers)
    both = view.logits(params, x)
    assert both.shape == (60, 3 + 100)
    np.testing.assert_array_equal(both[:, :3], model.logits(params, x))
    last = model.layout.layers(params)
    np.testing.assert_allclose(both[:, 3:] @ last["7.weight"].T + last["7.bias"], both[:, :3], atol=1e-5)


def test_the_first_time_the_contrast_starts_without_a_pull():
    _, params, there = torch_site("mlp")
    task = Task(1, params)
    ours, _ = Moon(batches=1).train(task, {}, there())
    theirs, _ = FedAvg(batches=1).train(task, {}, there())
    np.testing.assert_allclose(ours.delta, theirs.delta, atol=1e-6)


def test_the_device_keeps_its_model_and_it_changes_the_next_round():
    _, params, there = torch_site()
    first, kept = Moon(epochs=2).train(Task(1, params), {}, there())
    np.testing.assert_allclose(kept["previous"], params + first.delta, atol=1e-7)
    second, _ = Moon(epochs=2).train(Task(2, params), kept, there())
    fresh, _ = Moon(epochs=2).train(Task(2, params), {}, there())
    assert (second.delta != fresh.delta).any()
    assert second.extra == {}


def test_features_leave_the_old_model_and_stay_near_the_received_one():
    model, params, there = torch_site("mlp")
    old = params + FedAvg(epochs=10).train(Task(1, params), {}, there())[0].delta
    view, x = inside(model, "moon").featured(model), there().data.x

    def apart(w):
        h, towards, away = (view.logits(v, x)[:, 3:] for v in (w, params, old))
        return contrast(h, towards, away, 0.5)[0]

    weak, strong = (Moon(mu=mu, epochs=3).train(Task(2, params), {"previous": old}, there())[0] for mu in (0.0, 5.0))
    assert apart(params + strong.delta) < apart(params + weak.delta)


def test_another_back_end_is_refused_by_name():
    model = Mlp(4, 5, 3)
    with pytest.raises(
        ConfigError, match=r"algorithm 'moon' looks inside the network, .* not Mlp; set task.backend = 'torch'"
    ):
        Moon().train(Task(1, weights(model)), {}, site(model))
