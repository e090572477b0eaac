"""Optimisers of local descent: what a gradient does to the weights. Each begins anew with every round.

    sgd     v <- momentum v + g             w <- w - lr v;  with `nesterov`  w <- w - lr (g + momentum v)
    adam    m, v: running means of g, g^2   w <- w - lr m' / (sqrt(v') + eps);  the weight decay is part of g
    adamw   the same, and the weight decay is not: w <- w - lr weight_decay w goes before

Primes are corrected for the beginning at zero. Statistics at the end of the vector move by exactly their entry.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass as parameters

from edgefl.base.vector import Layout, Vector
from edgefl.learn.models.rule import Rule
from edgefl.learn.training.walking import Sgd

Move: TypeAlias = Callable[[Vector, Vector], Vector]  # weights and a gradient in, new weights out
Beta: TypeAlias = Annotated[float, Field(ge=0, lt=1)]


@parameters(frozen=True, config={"extra": "forbid"}, kw_only=True)
class Optimiser:
    """Which one, besides `lr`, `momentum` and `weight_decay`, which are the algorithm's."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    nesterov: bool = False  # of sgd
    beta1: Beta = 0.9  # of adam and adamw, as are the next two
    beta2: Beta = 0.999
    eps: Annotated[float, Field(gt=0)] = 1e-8

    @property
    def plain(self) -> bool:
        """Whether its steps are those of a graph's rule (models/rule.py)."""
        return self.name == "sgd" and not self.nesterov

    def begin(self, layout: Layout, rule: Rule) -> Move:
        """A fresh one, for one walk."""
        if self.name == "sgd":
            return Sgd(layout, rule.lr, rule.momentum, rule.weight_decay, nesterov=self.nesterov)
        return AdamOptimiser(self, layout, rule.lr, rule.weight_decay)


def _table(given: Any) -> Any:  # Any: pydantic's own
    return {"name": given} if isinstance(given, str) else given


Named: TypeAlias = Annotated[Optimiser, BeforeValidator(_table)]  # `optimiser = "adam"`, or a table with a name


class AdamOptimiser:
    """Adam, or AdamW."""

    def __init__(self, about: Optimiser, layout: Layout, lr: float, weight_decay: float) -> None:
        self.about, self.lr, self.weight_decay, self.trainable = about, lr, weight_decay, layout.trainable
        self.steps, self.m, self.v = 0, np.zeros(self.trainable), np.zeros(self.trainable)

    def __call__(self, w: Vector, g: Vector) -> Vector:
        """The weights after one step along `g`; sums are kept in double precision."""
        k, about = self.trainable, self.about
        self.steps += 1
        here, slope = w[:k].astype(np.float64), g[:k].astype(np.float64)
        if about.name == "adam":
            slope += self.weight_decay * here
        else:
            here -= self.lr * self.weight_decay * here
        self.m += (1 - about.beta1) * (slope - self.m)
        self.v += (1 - about.beta2) * (slope * slope - self.v)
        first, second = 1 - about.beta1**self.steps, 1 - about.beta2**self.steps
        moved = here - self.lr * (self.m / first) / (np.sqrt(self.v / second) + about.eps)
        return np.concatenate([moved.astype(w.dtype), w[k:] - g[k:]])
