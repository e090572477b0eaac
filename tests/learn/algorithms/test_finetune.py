"""Fine-tuning on the public labels: the baseline that Flashback has to be compared with."""

import numpy as np
import pytest
from toys import Linear, dataset, nothing, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.aggregation import Mean, merge
from edgefl.learn.algorithms import registry
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.finetune import Finetune
from edgefl.learn.contract import Budget, Draft, Task
from edgefl.learn.evaluation.metrics import evaluate
from edgefl.learn.training.local import Sgd, gradient, walk
from edgefl.learn.training.public import split

MODEL = Linear(4, 3)
PUBLIC = dataset(80, seed=9)


def start():
    return Draft(1, weights(MODEL), {}, np.full(MODEL.layout.size, 0.01, np.float32))


def test_it_is_descent_on_the_training_part_and_nothing_else():
    tuned, state = Finetune(lr=0.05, batch=16).apply(start(), {}, site(MODEL, PUBLIC, 3))
    public = site(MODEL, PUBLIC, 3)
    part = site(MODEL, split(public, "finetune").training, 3)
    sgd, draft = Sgd(MODEL.layout, 0.05), start()
    walked = walk(
        draft.params + draft.step, lambda w, x, y: sgd(w, gradient(part, w, x, y)), part, Budget(), batch=16, epochs=3
    )
    np.testing.assert_allclose(tuned.params + tuned.step, walked.params, atol=1e-6)
    assert int(state["epochs"]) == 3


def test_fedavg_and_finetune_learn_classes_that_no_device_has():
    device, params = dataset(60, seed=1, only=(0, 1)), weights(MODEL)
    update, _ = FedAvg(epochs=5).train(Task(1, params), {}, site(MODEL, device))
    plain, _ = merge(1, params, {"a": update}, stages=(Mean(),), states={}, site=site(MODEL, PUBLIC))
    tuned, _ = merge(1, params, {"a": update}, stages=(Mean(), Finetune()), states={}, site=site(MODEL, PUBLIC))
    test = dataset(200, seed=20)
    assert evaluate(MODEL, tuned, test).per_class[2] > evaluate(MODEL, plain, test).per_class[2]


def test_with_patience_a_useless_epoch_is_thrown_away():
    tuned, state = Finetune(lr=1000.0, patience=1).apply(start(), {}, site(MODEL, PUBLIC))
    np.testing.assert_array_equal(tuned.params + tuned.step, start().params + start().step)
    assert int(state["epochs"]) == 0


def test_without_public_data_the_stage_names_the_key_to_set():
    with pytest.raises(ConfigError, match=r"aggregation 'finetune' .* set task\.public"):
        Finetune().apply(start(), {}, site(MODEL, nothing(PUBLIC)))


def test_a_run_file_can_name_it():
    assert registry.stage({"name": "finetune", "max_epochs": 3, "lr": 0.05}) == Finetune(lr=0.05)
