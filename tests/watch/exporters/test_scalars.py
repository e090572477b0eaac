"""The names of curves: those of classes and real targets stand alone, those of other tasks behind `scores/`."""

from edgefl.base.events import Evaluated, Round
from edgefl.watch.exporters.scalars import scalars

MARKS = {"f1": 0.5, "exact_match": None, "loss": 0.25}


def test_figures_of_classes_and_real_targets_have_their_own_names() -> None:
    figures = scalars(Round(1, {"accuracy": 0.5, "balanced_accuracy": 0.25, "loss": 2.0}))
    assert {"accuracy", "balanced_accuracy", "loss"} <= set(figures)
    assert not {name for name in figures if name.startswith("scores")}
    assert {"loss", "rmse", "mae", "r2"} <= set(scalars(Round(1, {"loss": 1.0, "rmse": 1.0, "mae": 0.5, "r2": 0.5})))


def test_figures_of_other_tasks_are_told_apart_and_those_that_are_not_known_left_out() -> None:
    figures = scalars(Round(1, MARKS))
    assert (figures["scores/f1"], figures["loss"]) == (0.5, 0.25)
    assert not {"f1", "scores/exact_match", "scores/loss"} & set(figures)


def test_what_devices_saw_of_the_models_they_trained_has_names_of_its_own() -> None:
    figures = scalars(Evaluated(1, {"accuracy": 0.5, "loss": 2.0}, local_scores={"accuracy": 0.75, "loss": 1.0}))
    assert (figures["fleet/accuracy"], figures["fleet/local_accuracy"], figures["fleet/local_loss"]) == (0.5, 0.75, 1.0)
