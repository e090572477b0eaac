"""Device half and server stages: what cannot go together is refused when the run file is read."""

import numpy as np
import pytest
from toys import Linear, dataset, site

from edgefl.aggregation import Momentum, merge
from edgefl.algorithms import registry
from edgefl.algorithms.gradma import Memory
from edgefl.algorithms.upcycled import Upcycle
from edgefl.config.reader import parse
from edgefl.config.schema import RunFile
from edgefl.contract import Draft, Update
from edgefl.errors import ConfigError

FREE = ["scale", "clip", "momentum", "memory", "sgc", "finetune"]


def read(algorithm: str, *stages: str, **hyper: object) -> RunFile:
    table = {
        "algorithm": {"name": algorithm, **hyper},
        "aggregation": [{"name": stage} for stage in stages],
        "rounds": {"cohort": 2},
    }
    return parse(RunFile, table, "run.toml", environment={})


@pytest.mark.parametrize("algorithm", sorted(set(registry.ALGORITHMS) - {"upcycled"}))
def test_the_push_is_refused_behind_devices_that_train_in_every_round(algorithm):
    with pytest.raises(
        ConfigError, match=f"'upcycle' would throw away what the devices of '{algorithm}' train"
    ) as line:
        read(algorithm, "upcycle")
    assert "\n" not in str(line.value)


def test_the_push_of_the_coordinator_is_refused_beside_that_of_the_devices():
    with pytest.raises(ConfigError, match="would throw away"):
        read("upcycled", "upcycle", even="device")
    read("upcycled", "mean", "momentum", even="device")


@pytest.mark.parametrize("stages", [("mean",), ("momentum",), ("mean", "memory")])
def test_a_pipeline_that_makes_nothing_of_free_rounds_is_refused(stages):
    with pytest.raises(ConfigError, match="asks nobody in every second round, and no stage"):
        read("upcycled", *stages)


@pytest.mark.parametrize("stage", sorted(set(registry.STAGES) - {*FREE, "upcycle"}))
def test_a_stage_that_needs_answers_is_refused_after_the_push(stage):
    with pytest.raises(ConfigError, match=f"'{stage}' needs answers, and algorithm 'upcycled' asks nobody"):
        read("upcycled", "upcycle", stage)


@pytest.mark.parametrize("stage", FREE)
def test_the_others_go_with_it(stage):
    assert [each.name for each in read("upcycled", "upcycle", stage).make_stages()] == ["upcycle", stage]


@pytest.mark.parametrize("algorithm", sorted(registry.ALGORITHMS))
def test_every_algorithm_goes_with_its_own_stages(algorithm):
    assert read(algorithm).make_stages()


# ── what momentum and memory do in a free round ──────────────────────────────────────────────────────────────

HERE = site(Linear(1, 2, bias=False), dataset(features=1, classes=2))
START = np.zeros(2)


def two_rounds(*stages):
    """Round 1: one device moves by (4, -2). Round 2 is free, with kappa = 1/2. The steps, and the last states."""
    updates = {"a": Update(np.array([4.0, -2.0]), 1.0, 1)}
    odd, states = merge(1, START, updates, stages=stages, states={}, site=HERE)
    even, states = merge(2, odd, {}, stages=stages, states=states, site=HERE)
    return odd - START, even - odd, states


def test_alone_the_push_is_half_the_step_before():
    odd, even, _ = two_rounds(Upcycle(kappa=0.5))
    assert odd.tolist() == [4, -2]
    assert even.tolist() == [2, -1]


def test_momentum_takes_the_push_in_as_a_step_like_any_other():
    _, even, states = two_rounds(Upcycle(kappa=0.5), Momentum(beta=0.5))
    assert even.tolist() == [0.5 * 4 + 2, 0.5 * -2 - 1]  # beta m + push
    assert states["momentum"]["m"].tolist() == [4, -2]


def test_memory_takes_the_push_in_and_lets_its_rows_decay():
    _, even, states = two_rounds(Upcycle(kappa=0.5), Memory(size=3, beta1=0.5, beta2=0.25))
    assert even.tolist() == [0.5 * 4 + 2, 0.5 * -2 - 1]
    assert states["memory"]["members"].tolist() == ["a"]
    assert states["memory"]["scales"].tolist() == [0.25]
    assert (states["memory"]["counters"] == 1).all()  # nobody was seen again


def test_memory_keeps_a_push_from_opposing_a_device_that_is_remembered():
    stages = Upcycle(kappa=1.0), Memory(size=3, beta1=0.0, beta2=0.5)
    before = Draft(0, START, {"b": Update(np.array([1.0, 0.0]), 1.0, 1)}, np.zeros(2), 3)
    states = {"memory": Memory(size=3).apply(before, {}, HERE)[1]}
    odd, states = merge(1, START, {"a": Update(np.array([1.0, 1.0]), 1.0, 1)}, stages=stages, states=states, site=HERE)
    states = {**states, "upcycle": {"previous": odd + np.array([3.0, -1.0]), "round": np.array(1)}}  # pushes by (-3, 1)
    even, _ = merge(2, odd, {}, stages=stages, states=states, site=HERE)
    step = even - odd
    assert (step @ np.array([[1.0, 1.0], [1.0, 0.0]]).T >= -1e-12).all()
