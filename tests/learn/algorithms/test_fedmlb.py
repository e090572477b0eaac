"""FedMLB: the loss by hand, and the hybrid paths on torch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from toys import Mlp, dataset, numeric_gradient, site, weights

from edgefl.base.errors import ConfigError
from edgefl.base.vector import norm
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedmlb import FedMLB, multi_level
from edgefl.learn.contract import Task
from edgefl.learn.evaluation.metrics import evaluate
from edgefl.learn.losses import cross_entropy
from edgefl.learn.models.blocks import inside
from edgefl.learn.models.build import build

Y = np.array([0, 2, 1])
stacks = arrays(float, (3, 3, 3), elements=st.floats(-4, 4))


def torch_site(model="mlp"):
    built, params = build(model, (4,), 3, seed=1, device="cpu")
    return built, params, lambda: site(built, dataset(60))


@given(stacks)
def test_the_gradient_is_that_of_the_loss_for_local_logits_and_paths(z):
    def loss(v):
        return multi_level(v[:, 0], v[:, 1:], Y, 0.7, 1.3)[0]

    _, dz = multi_level(z[:, 0], z[:, 1:], Y, 0.7, 1.3)
    np.testing.assert_allclose(dz, numeric_gradient(loss, z), atol=1e-6)


def test_paths_that_agree_with_the_local_model_cost_their_cross_entropy_only():
    z = np.random.default_rng(0).standard_normal((3, 3))
    loss, _ = multi_level(z, np.stack([z, z], axis=1), Y, 0.5, 9.0)
    assert loss == pytest.approx(1.5 * cross_entropy(z, Y)[0])


def test_while_local_and_global_blocks_are_the_same_all_paths_agree():
    model, params, there = torch_site("mlp_bn")
    outputs = inside(model, "fedmlb").hybrid(model, params).logits(params, there().data.x).reshape(60, -1, 3)
    assert outputs.shape[1] == 1 + 2  # two linear layers after the first; a norm stays with its layer
    for i in range(3):
        np.testing.assert_allclose(outputs[:, i], model.logits(params, there().data.x), atol=1e-5)


def test_a_path_is_local_before_its_cut_and_global_after_it():
    model, params, there = torch_site()
    moved = weights(model, 5, scale=0.1)
    logits = inside(model, "fedmlb").hybrid(model, params).logits(moved, there().data.x).reshape(60, -1, 3)
    sizes = [s.stop for s in model.layout]
    for i, end in enumerate((sizes[1], sizes[3])):  # weight and bias of the first layer, then of the second
        mixed = np.concatenate([moved[:end], params[end:]])
        np.testing.assert_allclose(logits[:, 1 + i], model.logits(mixed, there().data.x), atol=1e-5)
    np.testing.assert_allclose(logits[:, 0], model.logits(moved, there().data.x), atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "mlp_bn"])
def test_the_view_has_the_same_vector_and_frozen_blocks_get_no_gradient(name):
    model, params, there = torch_site(name)
    view = inside(model, "fedmlb").hybrid(model, params)
    assert (view.layout.shapes, view.layout.buffers) == (model.layout.shapes, model.layout.buffers)
    z, pullback = view.vjp(params, there().data.x)
    last_path_only = np.zeros_like(z)
    last_path_only[:, -3:] = 1
    g = pullback(last_path_only)
    head = model.layout.slices[-1 - model.layout.buffers]
    assert not g[head].any()  # the head of every path is the frozen one
    assert g[: head.start].any()


def test_without_its_two_terms_and_clipping_it_is_fedavg():
    _, params, there = torch_site()
    ours, _ = FedMLB(lambda1=0, lambda2=0, clip=None).train(Task(1, params), {}, there())
    theirs, _ = FedAvg().train(Task(1, params), {}, there())
    np.testing.assert_allclose(ours.delta, theirs.delta, atol=1e-6)


def test_a_long_gradient_is_cut_to_length():
    _, params, there = torch_site()
    update, _ = FedMLB(batches=1, lr=1.0, clip=0.01).train(Task(1, params), {}, there())
    assert norm(update.delta) == pytest.approx(0.01, rel=1e-3)


def test_it_learns():
    model, params, there = torch_site()
    update, _ = FedMLB(epochs=5).train(Task(1, params), {}, there())
    before, after = (evaluate(model, w, there().data).loss for w in (params, params + update.delta))
    assert after < 0.7 * before


def test_another_back_end_is_refused_by_name():
    model = Mlp(4, 5, 3)
    with pytest.raises(
        ConfigError, match=r"algorithm 'fedmlb' looks inside the network, .* not Mlp; set task.backend = 'torch'"
    ):
        FedMLB().train(Task(1, weights(model)), {}, site(model))


def test_a_network_of_one_block_is_refused_by_name():
    _, params, there = torch_site("softmax")
    with pytest.raises(ConfigError, match=r"algorithm 'fedmlb' needs a network that is one nn\.Sequential"):
        FedMLB().train(Task(1, params), {}, there())
