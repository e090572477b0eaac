"""FedAsync: models are mixed, and an old one counts less."""

import numpy as np
import pytest
from plays import Play, fleet
from toys import Linear, site, weights

from edgefl.base.errors import RunError
from edgefl.learn.algorithms.fedasync import FedAsync, Mix
from edgefl.learn.algorithms.fedprox import FedProx
from edgefl.learn.contract import Draft, Update

HERE = site()


def answer(*numbers: float) -> Update:
    return Update(np.array(numbers), 1.0, 1)


def mixed(stage, answers, start):
    """The models after each of these rounds; a round is answers by name, with their ages."""
    models, state = [np.array(start)], {}
    for round, arrived in enumerate(answers, 1):
        updates, ages = {d: u for d, (u, _) in arrived.items()}, {d: age for d, (_, age) in arrived.items()}
        draft = Draft(round, models[-1], updates, np.zeros(2), ages=ages)
        draft, state = stage.apply(draft, state, HERE)
        models.append(models[-1] + draft.step)
    return models, state


def test_an_old_model_is_mixed_in_by_a_power_of_its_age():
    rounds = [{"a": (answer(1, 0), 0)}, {"b": (answer(0, 2), 1)}, {"c": (answer(1, 1), 2)}]
    models, _ = mixed(Mix(alpha=0.5, power=0.7), rounds, (1.0, 1.0))
    x = [np.array([1.0, 1.0])]
    for (update, age), began in (((answer(1, 0), 0), 0), ((answer(0, 2), 1), 0), ((answer(1, 1), 2), 0)):
        a = 0.5 * (1 + age) ** -0.7
        x.append((1 - a) * x[-1] + a * (x[began] + update.delta))
    np.testing.assert_allclose(models, x)


def test_of_several_answers_one_is_mixed_in_after_another():
    models, _ = mixed(Mix(alpha=0.5), [{"a": (answer(4, 0), 0), "b": (answer(0, 4), 0)}], (0.0, 0.0))
    np.testing.assert_allclose(models[-1], [1.0, 2.0])


def test_only_the_newest_models_are_kept():
    rounds = [{"a": (answer(1, 0), 0)}] * 4
    _, state = mixed(Mix(history=2), rounds, (0.0, 0.0))
    assert set(state) == {"model.3", "model.4"}


def test_an_answer_older_than_all_models_is_an_error():
    with pytest.raises(RunError, match=r"began 2 rounds ago, and only 0 models are kept"):
        mixed(Mix(history=0), [{"a": (answer(1, 0), 0)}, {"a": (answer(1, 0), 2)}], (0.0, 0.0))


def test_devices_train_as_in_fedprox():
    model = Linear(4, 3)
    ours, theirs = (
        Play(one, fleet(2, model), weights(model)).rounds(1) for one in (FedAsync(rho=0.1), FedProx(mu=0.1))
    )
    for name, update in ours.updates.items():
        assert (update.delta == theirs.updates[name].delta).all()
