"""The two mechanisms of private Upcycled-FL: noise on the trained model, or a random tilt of its objective.

Whoever can draw the noise again can subtract it, and a coordinator knows the seed of every stream. So a real device
draws its noise from the operating system's entropy (`Site.noise`); a simulation, which has no secrets, draws it from
the site's stream and repeats exactly. `noise = "seeded"` makes real devices repeat too, and promises them nothing.
"""

from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.algorithms.base import STRICT, Noise, Site
from edgefl.errors import ConfigError
from edgefl.privacy.accountant import objective_epsilon, upcycled_epsilon
from edgefl.vector import State, Vector, norm


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Output:
    """Output perturbation: the trained model is clipped to length `clip` and gets Gaussian noise of size `sigma`."""

    mechanism: Literal["output"] = "output"
    clip: Annotated[float, Field(gt=0)] = 10.0
    sigma: Annotated[float, Field(gt=0)] = 1.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    noise: Literal["secret", "seeded"] = "secret"

    def tilt(self, site: Site, w: Vector, mu: float) -> Vector | None:  # noqa: ARG002 - the objective stays as it is
        """What is added to every gradient: nothing."""
        _refuse_statistics(site)
        return None

    def release(self, w: Vector, site: Site) -> Vector:
        """The trained model as others may see it."""
        noise = source(site, self.noise).normal(0.0, self.sigma, len(w))
        return np.asarray(clipped(w, self.clip) + noise.astype(w.dtype))

    def spent(self, odd_updates: int, samples: int, mu: float) -> dict[str, float]:  # noqa: ARG002 - one shape for both
        """The epsilon so far under either sensitivity, at this `delta`."""
        price = odd_updates, self.clip, self.sigma, samples, self.delta
        return {
            "eps_paper": upcycled_epsilon(*price, sensitivity="paper"),
            "eps_worst_case": upcycled_epsilon(*price, sensitivity="worst_case"),
            "delta": self.delta,
        }


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Objective:
    """Objective perturbation: one random linear term <b, w> per update, b with density exp(-alpha ||b||).

    `u1` and `u2` bound the first and second derivative of the loss; the defaults are binary logistic regression's.
    """

    mechanism: Literal["objective"] = "objective"
    alpha: Annotated[float, Field(gt=0)] = 20.0
    u1: Annotated[float, Field(gt=0)] = 1.0
    u2: Annotated[float, Field(gt=0)] = 0.25
    noise: Literal["secret", "seeded"] = "secret"

    def tilt(self, site: Site, w: Vector, mu: float) -> Vector | None:
        """The vector b that is added to every gradient of this update; refuses what the theorem does not cover."""
        _refuse_statistics(site)
        if len(site.model.layout.names) > 2:
            raise ConfigError(
                f"privacy: a model of {len(site.model.layout.names)} tensors is not a generalised linear model, "
                "as objective perturbation needs; use mechanism 'output'"
            )
        rows = np.asarray(site.data.x, np.float64).reshape(len(site.data), -1)
        longest = float(np.sqrt((rows * rows).sum(axis=1).max(initial=0.0)))
        objective_epsilon(
            1, self.alpha, self.u1, self.u2, len(site.data), mu, classes=site.data.classes, feature_norm=longest
        )
        return tilt(len(w), self.alpha, source(site, self.noise)).astype(w.dtype)

    def release(self, w: Vector, site: Site) -> Vector:  # noqa: ARG002 - the noise is in it already
        """The trained model as others may see it."""
        return w

    def spent(self, odd_updates: int, samples: int, mu: float) -> dict[str, float]:
        """The epsilon so far, and the upper bound that the paper's own index range gives."""
        price = odd_updates, self.alpha, self.u1, self.u2, samples, mu
        return {
            "eps_paper": objective_epsilon(*price),
            "eps_paper_range": objective_epsilon(*price, terms="paper"),
            "delta": 0.0,
        }


Mechanism: TypeAlias = Annotated[Output | Objective, Field(discriminator="mechanism")]


def clipped(w: Vector, clip: float) -> Vector:
    """`w`, shortened to length `clip` if it is longer."""
    return np.asarray(w / w.dtype.type(max(1.0, norm(w) / clip)))


def source(site: Site, wanted: Literal["secret", "seeded"]) -> Noise:
    """Where a mechanism draws from: a real device's own entropy, unless the run says otherwise."""
    return site.rng if wanted == "seeded" or site.noise is None else site.noise


def tilt(size: int, alpha: float, rng: Noise) -> Vector:
    """A vector with density proportional to exp(-alpha ||b||): any direction, a length from Gamma(size, 1/alpha)."""
    direction = rng.normal(0.0, 1.0, size)
    return np.asarray(direction * (rng.gamma(size, 1 / alpha) / norm(direction)))


@dataclass(frozen=True)
class Price:
    """How the cost of private updates on these samples is reckoned."""

    mechanism: Mechanism
    samples: int
    mu: float

    def of(self, updates: int) -> dict[str, float]:
        """The epsilons and the delta that so many updates have cost."""
        return self.mechanism.spent(updates, self.samples, self.mu)


def keep_spent(old: State, refused: State) -> State:
    """The device's state after its update was lost or refused: as before, but the data were used and that counts."""
    return {**old, "odd_updates": refused["odd_updates"]} if "odd_updates" in refused else old


def _refuse_statistics(site: Site) -> None:
    """Statistics of BatchNorm get no noise, so a model that sends them is not private."""
    if site.model.layout.buffers:
        raise ConfigError(
            f"privacy: the model sends {site.model.layout.buffers} BatchNorm statistics that no noise covers; "
            "use a model without BatchNorm"
        )
