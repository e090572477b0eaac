"""FedNTD, on numbers worked out in sight."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from toys import Linear, dataset, numeric_gradient, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedntd import FedNTD, not_true
from edgefl.learn.contract import Task
from edgefl.learn.data.dataset import Dataset

logits = arrays(float, (4, 3), elements=st.floats(-5, 5))
Y = np.array([0, 2, 1, 2])


def test_without_its_distillation_it_is_fedavg_bit_for_bit():
    task = Task(1, weights(Linear(4, 3)))
    ours, _ = FedNTD(beta=0, epochs=2).train(task, {}, site())
    theirs, _ = FedAvg(epochs=2).train(task, {}, site())
    np.testing.assert_array_equal(ours.delta, theirs.delta)


def test_two_not_true_classes_give_the_divergence_of_a_coin():
    z, teacher = np.array([[9.0, 0.0, 0.0]]), np.array([[-4.0, np.log(3.0), 0.0]])
    loss, dz = not_true(z, np.array([0]), teacher, 1.0)
    assert loss == pytest.approx(0.75 * np.log(1.5) + 0.25 * np.log(0.5))
    np.testing.assert_allclose(dz, [[0, -0.25, 0.25]])


@given(logits, logits, st.sampled_from([1.0, 3.0]))
def test_the_label_gets_no_gradient_and_the_gradient_is_exact(z, teacher, tau):
    _, dz = not_true(z, Y, teacher, tau)
    assert (dz[np.arange(4), Y] == 0).all()
    np.testing.assert_allclose(dz, numeric_gradient(lambda v: not_true(v, Y, teacher, tau)[0], z), atol=1e-6)


@given(logits)
def test_identical_models_have_nothing_to_distil(z):
    loss, dz = not_true(z, Y, z, 3.0)
    assert loss == 0
    assert not dz.any()


@given(logits, logits)
def test_the_divergence_is_never_negative(z, teacher):
    assert not_true(z, Y, teacher, 1.0)[0] >= -1e-12


def test_it_holds_on_to_what_the_global_model_knows_about_absent_classes():
    one_class, model = dataset(40, only=(0,)), Linear(4, 3)
    task = Task(1, weights(model, scale=2.0))
    before = model.logits(task.params, one_class.x)

    def drift(algorithm):
        after = model.logits(task.params + algorithm.train(task, {}, site(model, one_class))[0].delta, one_class.x)
        return not_true(after, one_class.y, before, 1.0)[0]

    assert drift(FedNTD(epochs=5, beta=5.0)) < drift(FedAvg(epochs=5))


def test_real_targets_are_refused():
    data = Dataset(np.zeros((4, 2), np.float32), np.zeros(4, np.float32), 0)
    with pytest.raises(ConfigError, match="algorithm 'fedntd' works on class labels"):
        FedNTD().train(Task(1, np.zeros(3, np.float32)), {}, site(Linear(2, 1), data))
