"""FedDF: the ensemble of the round teaches the mean."""

from dataclasses import replace

import numpy as np
import pytest
from toys import Linear, dataset, nothing, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.aggregation import mean
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.feddf import CosineAdam, Ensemble, FedDF, divergence, mean_logits
from edgefl.learn.contract import Draft, Task, Update
from edgefl.learn.losses import softmax

MODEL = Linear(4, 3)
PUBLIC = dataset(80, seed=9)


def draft(*deltas, step=None):
    updates = {f"d{i}": Update(delta, 1.0 + i, 1) for i, delta in enumerate(deltas)}
    return Draft(1, weights(MODEL), updates, mean(updates) if step is None else step)


def away(seed):
    return weights(MODEL, seed, scale=1.0)


def test_its_devices_are_fedavgs():
    task = Task(1, weights(MODEL))
    np.testing.assert_array_equal(
        FedDF().train(task, {}, site(MODEL))[0].delta, FedAvg().train(task, {}, site(MODEL))[0].delta
    )


def test_the_ensemble_averages_logits_and_not_probabilities():
    d = draft(away(1), away(2))
    members = [MODEL.logits(d.params + u.delta, PUBLIC.x) for u in d.updates.values()]
    ensemble = mean_logits(d, site(MODEL), PUBLIC.x)
    np.testing.assert_allclose(ensemble, (members[0] + members[1]) / 2, rtol=1e-6)
    assert np.abs(softmax(ensemble) - (softmax(members[0]) + softmax(members[1])) / 2).max() > 0.01


def test_a_student_that_is_the_ensemble_stays_where_it_is():
    d = draft(away(1))  # one member: the mean is the member
    after, state = Ensemble(steps=20, every=5, patience=1).apply(d, {}, site(MODEL, PUBLIC))
    assert int(state["steps"]) == 0
    np.testing.assert_array_equal(after.step, (d.params + d.step) - d.params)


def test_a_student_elsewhere_comes_closer_to_the_ensemble():
    d = draft(away(1), away(2), step=away(3))
    after, state = Ensemble(steps=200, rate=0.01).apply(d, {}, site(MODEL, PUBLIC))
    far = divergence(site(MODEL), PUBLIC.x, mean_logits(d, site(MODEL), PUBLIC.x))
    assert far(after.params + after.step) < 0.5 * far(d.params + d.step)
    assert int(state["steps"]) > 0


def test_labels_are_not_looked_at():
    all_zero, all_two = (replace(PUBLIC, y=np.full_like(PUBLIC.y, c)) for c in (0, 2))  # one class: the same split
    d = draft(away(1), away(2), step=away(3))
    a, b = (Ensemble(steps=50).apply(d, {}, site(MODEL, data))[0] for data in (all_zero, all_two))
    np.testing.assert_array_equal(a.step, b.step)


def test_the_first_step_of_adam_is_its_rate_in_every_direction_and_the_last_is_none():
    adam = CosineAdam(MODEL.layout, 0.01, 2)
    w, g = np.zeros(MODEL.layout.size), away(1).astype(float)
    first = adam(w, g)
    np.testing.assert_allclose(first, -0.01 * np.sign(g), rtol=1e-4)
    middle = adam(first, g)
    np.testing.assert_allclose(middle - first, -0.005 * np.sign(g), rtol=1e-4)
    np.testing.assert_array_equal(adam(middle, g), middle)


def test_statistics_move_by_exactly_their_entry():
    model = Linear(4, 3, statistics=True)
    w, g = weights(model), np.ones(model.layout.size, np.float32)
    k = model.layout.trainable
    np.testing.assert_array_equal(CosineAdam(model.layout, 0.01, 10)(w, g)[k:], w[k:] - 1)


def test_a_round_without_devices_is_left_alone():
    empty = Draft(2, weights(MODEL), {}, np.zeros(MODEL.layout.size, np.float32))
    assert Ensemble().apply(empty, {}, site(MODEL, PUBLIC)) == (empty, {})


def test_without_public_data_the_stage_names_the_key_to_set():
    with pytest.raises(ConfigError, match=r"aggregation 'ensemble' .* set task\.public"):
        Ensemble().apply(draft(away(1)), {}, site(MODEL, nothing(PUBLIC)))


def test_the_algorithm_hands_its_numbers_to_its_stage():
    assert FedDF(steps=7, rate=0.5).stages()[1] == Ensemble(steps=7, rate=0.5)
