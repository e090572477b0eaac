"""How good a model is: one mapping of figures by name, whatever the task, and the common ones as properties.

The order of the names says what counts: a model is judged by the first one.

    classes        accuracy, balanced_accuracy, loss
    real targets   loss, rmse, mae, r2
    other tasks    the figures of the task, its chief one first, then loss

A mapping without any entry means that the model was not evaluated. A figure is None where it cannot be said of these
samples: the AUROC without an anomaly, R2 of targets that do not vary. Every name is in
`edgefl/learn/evaluation/figures.py`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

Scores: TypeAlias = Mapping[str, float | None]

COMMON = ("accuracy", "balanced_accuracy", "loss", "rmse", "mae", "r2")  # of classes and real targets, in that order
# Mappings of figures in JSON; which of them flat records have as keys, and what the keys begin with.
MAPPINGS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "scores": ("", COMMON),
    "local_scores": ("local_", ("accuracy", "rmse", "loss")),
    "best_score": ("best_", ("accuracy", "loss")),
    "exported_scores": ("exported_", ("accuracy", "rmse")),
}


class Scored:
    """What says how good a model is; the properties are None where its task has no such figure."""

    __slots__ = ()
    scores: Scores

    @property
    def accuracy(self) -> float | None:
        """Share of the samples whose class was found."""
        return self.scores.get("accuracy")

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean accuracy of the classes that have samples."""
        return self.scores.get("balanced_accuracy")

    @property
    def loss(self) -> float | None:
        """Mean loss; None of a model that was not evaluated."""
        return self.scores.get("loss")

    @property
    def rmse(self) -> float | None:
        """Root of the mean squared error of real targets."""
        return self.scores.get("rmse")

    @property
    def mae(self) -> float | None:
        """Mean absolute error of real targets."""
        return self.scores.get("mae")

    @property
    def r2(self) -> float | None:
        """Share of the targets' variance that is explained."""
        return self.scores.get("r2")


def beside(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with the common figures of its mappings as keys of their own, for readers of flat records."""
    flat: dict[str, Any] = {}
    for key, value in told.items():
        flat[key] = value
        prefix, names = MAPPINGS.get(key, ("", ()))
        flat |= {prefix + name: value.get(name) for name in names}
    return flat


def upgraded(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object of a fact in schema 2; in schema 1 the common figures stood beside `scores`, and not in it.

    Raise a TypeError if its figures are no mapping.
    """
    first = told.get("first")  # of `Evaluating`
    if isinstance(first, Mapping) and "scores" in first:
        return {**told, "first": _gathered(first, "scores")}
    if "loss" in told and "loss" not in (told.get("scores") or {}):
        gathered = {key: _gathered(told, key) for key in MAPPINGS}
        return {**told, "scores": {}, **{key: figures for key, figures in gathered.items() if figures or key in told}}
    if wrong := [key for key in MAPPINGS if not isinstance(told.get(key, {}), Mapping)]:
        raise TypeError(f"{wrong[0]} is no mapping of figures")
    return told


def _gathered(told: Mapping[str, Any], key: str) -> dict[str, float | None]:
    prefix, names = MAPPINGS[key]
    common = {name: value for name in names if (value := told.get(prefix + name)) is not None}
    return {**(told.get(key) or {}), **common}
