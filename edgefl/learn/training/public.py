"""Training at the coordinator, on public data: the split, and the early stopping that the server stages share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import nan
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as parameters

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, Vector
from edgefl.learn.contract import STRICT, Site
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.evaluation.metrics import evaluate
from edgefl.learn.losses import cross_entropy
from edgefl.learn.training.divergence import check_loss, checked_step
from edgefl.learn.training.local import Sgd

Score = Callable[[Vector], float]  # lower is better


@dataclass(frozen=True, slots=True)
class Public:
    """The public data in two parts: one to train on, one to know when to stop."""

    training: Dataset
    validation: Dataset


@dataclass(frozen=True, slots=True)
class Polished:
    """The best model seen, and at which check it was; 0 is the model the training began with."""

    params: Vector
    check: int


@parameters(frozen=True, config=STRICT, kw_only=True)
class PublicTraining:
    """Descent on the public data: a fresh optimiser every round, the best epoch kept."""

    lr: Annotated[float, Field(gt=0)] = 0.1
    batch: Annotated[int, Field(ge=1)] = 32
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_epochs: Annotated[int, Field(ge=0)] = 20
    patience: Annotated[int, Field(ge=1)] | None = 3  # epochs without a better one; None: all epochs, the last one kept
    patience_on: Literal["loss", "accuracy"] = "loss"
    keep_start: bool = True  # whether the model before the first epoch may win

    def sgd(self, site: Site) -> Sgd:
        """A fresh optimiser for one round."""
        return Sgd(site.model.layout, self.lr, self.momentum, self.weight_decay)

    def polish(self, w: Vector, public: Public, site: Site, step: Callable[[Vector, Array], Vector]) -> Polished:
        """The best model on the way from `w`; `step` is given the weights and the numbers of the rows of a batch."""
        samples = len(public.training)
        return polish(
            w,
            step,
            score(site, public.validation, self.patience_on),
            rows(samples, self.batch, site),
            checks=self.max_epochs,
            every=-(-samples // self.batch),
            patience=self.patience,
            keep_start=self.keep_start,
        )


def split(site: Site, stage: str) -> Public:
    """Three quarters to train on, one to validate; the same in every round, and every class in both if it can be."""
    if len(site.data) < 4:
        seen = "there are none" if not len(site.data) else f"there are {len(site.data)}"
        raise ConfigError(
            f"aggregation '{stage}' needs at least 4 public samples and {seen}; set task.public, for example to 0.02"
        )
    order = np.argsort(site.data.y.reshape(len(site.data), -1)[:, 0], kind="stable")
    held_out = np.zeros(len(order), bool)
    held_out[order[3::4]] = True
    return Public(site.data.take(np.flatnonzero(~held_out)), site.data.take(np.flatnonzero(held_out)))


def classified(site: Site, who: str) -> int:
    """How many classes the site's labels have; `who` cannot work on real targets."""
    if site.data.classes < 2:
        raise ConfigError(f"{who} works on class labels and task.data has none; choose a classification task")
    return site.data.classes


def score(site: Site, data: Dataset, kind: Literal["loss", "accuracy"]) -> Score:
    """How far from good a model is on the data: cross-entropy (of real targets the site's loss), or share of errors."""
    if kind == "accuracy" and not data.classes:
        raise ConfigError("patience_on = 'accuracy' needs class labels and task.data has none; use 'loss'")

    def far(w: Vector) -> float:
        evaluation = evaluate(site.model, w, data, cross_entropy if data.classes else site.loss)
        loss = nan if evaluation.loss is None else evaluation.loss
        check_loss(loss)
        return loss if kind == "loss" else 1.0 - (evaluation.accuracy or 0.0)

    return far


def rows(samples: int, batch: int, site: Site) -> Iterator[Array]:
    """The row numbers of mini-batches without end, freshly shuffled in every pass."""
    while True:
        order = site.rng.permutation(samples)
        yield from (order[i : i + batch] for i in range(0, samples, batch))


def polish(
    w: Vector,
    step: Callable[[Vector, Array], Vector],
    far: Score,
    batches: Iterator[Array],
    *,
    checks: int,
    every: int,
    patience: int | None,
    keep_start: bool = True,
) -> Polished:
    """Walk from `w` and give back the best model of all checks, one after `every` steps.

    It stops when `patience` checks in a row were no better; without patience it goes to the end and stays there.
    """
    best, at = w, 0
    lowest = far(w) if keep_start and patience is not None and checks else np.inf
    for check in range(1, checks + 1):
        for number, batch in enumerate(islice(batches, every), 1 + every * (check - 1)):
            w = checked_step(number, step, w, batch)
        if patience is None:
            best, at = w, check
            continue
        distance = far(w)
        if distance < lowest:
            best, at, lowest = w, check, distance
        elif check - at >= patience:
            break
    return Polished(best, at)
