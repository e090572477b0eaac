"""One mapping of figures: facts of schema 1 are read into it, and flat records have the keys that they always had."""

import json
from typing import Any

import pytest

from edgefl.base.events import Done, Evaluated, Evaluating, Round, as_json, as_record, from_json
from edgefl.base.scores import COMMON

# As edgefl wrote them before: every common figure a key of its own, and `scores` for other tasks alone.
NOTHING: dict[str, Any] = {**dict.fromkeys(COMMON), "scores": None, "per_target": None}
CLASSES = {**NOTHING, "accuracy": 0.5, "balanced_accuracy": 0.4, "loss": 1.5}
REAL = {**NOTHING, "loss": 0.5, "mae": 0.25, "rmse": 0.75, "r2": 0.125}
TASK = {**NOTHING, "loss": 0.5, "scores": {"auroc": None, "reconstruction_error": 2.0}}


@pytest.mark.parametrize(
    ("old", "scores"),
    [
        (CLASSES, {"accuracy": 0.5, "balanced_accuracy": 0.4, "loss": 1.5}),
        (REAL, {"loss": 0.5, "rmse": 0.75, "mae": 0.25, "r2": 0.125}),
        (TASK, {"auroc": None, "reconstruction_error": 2.0, "loss": 0.5}),
        (NOTHING, {}),
    ],
)
def test_a_round_of_schema_1_is_read(old: dict[str, Any], scores: dict[str, Any]) -> None:
    fact = from_json({"event": "round", "round": 3, **old, "bytes_up": 9})
    assert fact == Round(3, scores, bytes_up=9)
    assert isinstance(fact, Round)
    assert list(fact.scores) == list(scores), "what the model is judged by first"


def test_so_are_the_models_that_devices_trained_and_the_best_one() -> None:
    local = {"local_accuracy": 0.75, "local_rmse": None, "local_loss": 0.5, "local_scores": None}
    seen = from_json({"event": "evaluated", "round": 1, **CLASSES, **local, "per_device": None})
    assert seen == Evaluated(1, CLASSES_NOW, local_scores={"accuracy": 0.75, "loss": 0.5})
    best = {"best_accuracy": None, "best_loss": None, "best_score": {"mean_iou": 0.5}, "best_round": 2}
    done = from_json({"event": "done", "run": "r", "algorithm": "a", "rounds": 3, **NOTHING, **best})
    assert done == Done("r", "a", 3, best_score={"mean_iou": 0.5}, best_round=2)
    best |= {"best_accuracy": 0.5, "best_score": None}
    done = from_json({"event": "done", "run": "r", "algorithm": "a", "rounds": 3, **CLASSES, **best})
    assert done == Done("r", "a", 3, CLASSES_NOW, best_score={"accuracy": 0.5}, best_round=2)


CLASSES_NOW = {"accuracy": 0.5, "balanced_accuracy": 0.4, "loss": 1.5}


def test_so_is_the_model_that_a_run_began_with() -> None:
    opening = Evaluating("digits", 9, 0, None, 0, 2, None, first=CLASSES_NOW)
    assert from_json({**as_json(opening), "first": CLASSES}) == opening
    assert from_json(as_json(opening)) == opening


def test_a_flat_record_has_the_common_figures_as_keys_and_is_read_again() -> None:
    fact = Evaluated(2, CLASSES_NOW, local_scores={"accuracy": 0.75, "loss": 0.5})
    record = json.loads(json.dumps(as_record(fact)))
    assert {name: record[name] for name in COMMON} == {**dict.fromkeys(COMMON), **CLASSES_NOW}
    assert (record["local_accuracy"], record["local_loss"]) == (0.75, 0.5)
    assert record["scores"] == CLASSES_NOW
    assert from_json(record) == fact
    assert from_json(as_record(Round(1))) == Round(1)


def test_figures_that_are_no_mapping_are_no_fact() -> None:
    for wrong in ({"scores": 5}, {"scores": [["loss", 1]]}, {"local_scores": "loss"}):
        with pytest.raises(TypeError):
            from_json({"event": "evaluated", "round": 1, **wrong})
