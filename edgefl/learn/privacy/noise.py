"""The two private mechanisms: noise on the trained model, or a random tilt of the objective and its exact minimiser.

Noise that can be drawn again can be subtracted, and a coordinator knows the seed of every stream. So a real device
draws its noise from the operating system's entropy (`Site.noise`); a simulation, which has no secrets, draws it from
the site's stream and repeats exactly. `noise = "seeded"` makes real devices repeat too, and promises them nothing.

What `spent` calls epsilon is an upper bound for the mechanism as it runs, for data sets of one size that differ in one
record. Its sums are made as if double precision were exact.
"""

from collections.abc import Callable
from dataclasses import dataclass as record
from dataclasses import replace
from math import inf
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, Layout, State, Vector, norm
from edgefl.learn.contract import STRICT, Noise, Site
from edgefl.learn.privacy import linear
from edgefl.learn.privacy.accountant import objective_epsilon, output_epsilon, upcycled_epsilon
from edgefl.learn.training.divergence import is_finite, quiet
from edgefl.learn.training.local import Walked

COVER = 1e4  # the noise over an inexact minimiser, in units of what its inexactness can be


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Output:
    """Output perturbation: the trained model is clipped to length `clip` and gets Gaussian noise of size `sigma`.

    The paper clips the model. With `clips = "update"` it is the way from the received model that is clipped: it is
    shorter, so the same noise over a smaller clip promises more.
    """

    mechanism: Literal["output"] = "output"
    clip: Annotated[float, Field(gt=0)] = 10.0  # the longest that is sent
    sigma: Annotated[float, Field(gt=0)] = 1.0  # of the noise on each number
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-3  # at which epsilon is told
    clips: Literal["model", "update"] = "model"  # what is clipped
    noise: Literal["secret", "seeded"] = "secret"  # seeded repeats, and the coordinator can take it off again

    def perform(self, train: Callable[[], Walked], received: Vector, site: Site, mu: float) -> Walked:  # noqa: ARG002
        """What `train` makes, as others may see it."""
        if site.model.layout.buffers:  # statistics of BatchNorm get no noise
            raise ConfigError(
                f"privacy: the model sends {site.model.layout.buffers} BatchNorm statistics that no noise covers; "
                "use a model without BatchNorm",
                free_of_data=True,
            )
        walked = train()
        return replace(walked, params=self.release(walked.params, received, site))

    def release(self, w: Vector, received: Vector, site: Site) -> Vector:
        """Return the trained model as others may see it; training that left the finite numbers ends where it began."""
        centre = received.astype(np.float64) if self.clips == "update" else np.zeros(len(w))
        ended = w if is_finite(w) else received
        with quiet():  # what was received may have no finite numbers either
            near = clipped(np.nan_to_num(ended.astype(np.float64) - centre, posinf=0.0, neginf=0.0), self.clip)
            return np.asarray(centre + near + source(site, self.noise).normal(0.0, self.sigma, len(w))).astype(w.dtype)

    def spent(self, updates: int, samples: int, mu: float, layout: Layout) -> dict[str, float]:  # noqa: ARG002 - one shape for both
        """Return the epsilon of this number of updates at this `delta`, and the paper's figure."""
        exact = output_epsilon(updates, self.clip, self.sigma, self.delta)
        return {
            "epsilon": inf if self.noise == "seeded" else exact,
            "delta": self.delta,
            "as_published": upcycled_epsilon(updates, self.clip, self.sigma, samples, self.delta),
        }


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Objective:
    """Objective perturbation: one random linear term <b, w> per update, b with density exp(-alpha ||b||).

    The proof is about the minimiser of the tilted objective, so the device finds it: lr, batch, epochs, momentum and
    weight_decay have no say. What the search leaves open is covered by Gaussian noise, COVER times as large, which
    costs `delta` and next to no epsilon.
    """

    mechanism: Literal["objective"] = "objective"
    alpha: Annotated[float, Field(gt=0)] = 20.0  # of the density: the smaller, the stronger the tilt
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-6  # at which epsilon is told
    noise: Literal["secret", "seeded"] = "secret"  # as with output perturbation

    def perform(self, train: Callable[[], Walked], received: Vector, site: Site, mu: float) -> Walked:  # noqa: ARG002
        """The minimiser of the tilted objective, as others may see it; `train` is not asked."""
        layer = linear.linear_layer(site.model.layout)
        x, y = linear.check_site(layer, site)
        self._epsilon(layer, 1, len(y), mu)
        draw = source(site, self.noise)
        w = linear.minimise(layer, x, y, received, mu, tilt(len(received), self.alpha, draw))
        covered = w + draw.normal(0.0, COVER * _open(mu), len(w))
        return Walked(covered.astype(received.dtype), steps=1, samples=len(y))

    def spent(self, updates: int, samples: int, mu: float, layout: Layout) -> dict[str, float]:
        """Return the epsilon of this number of updates at this `delta`, and the paper's figure."""
        exact = self._epsilon(linear.linear_layer(layout), updates, samples, mu)
        inexact = output_epsilon(updates, _open(mu) / 2, COVER * _open(mu), self.delta)
        return {
            "epsilon": inf if self.noise == "seeded" else exact + inexact,
            "delta": self.delta,
            "as_published": objective_epsilon(updates, self.alpha, 1.0, 0.25, samples, mu),
        }

    def _epsilon(self, layer: linear.LinearLayer, updates: int, samples: int, mu: float) -> float:
        bounds = layer.bounds()
        return objective_epsilon(
            updates, self.alpha, bounds.u1, bounds.u2, samples, mu, classes=layer.outputs, rank=bounds.rank
        )


def _open(mu: float) -> float:
    """How far apart two answers to one tilted objective can be: either lies within TOLERANCE / mu of the minimiser."""
    return 2 * linear.TOLERANCE / mu


Mechanism: TypeAlias = Annotated[Output | Objective, Field(discriminator="mechanism")]


def clipped(w: Array, clip: float) -> Array:
    """`w`, shortened to length `clip` if it is longer."""
    return np.asarray(w / w.dtype.type(max(1.0, norm(w) / clip)))


def source(site: Site, kind: Literal["secret", "seeded"]) -> Noise:
    """Where a mechanism draws from: a real device's own entropy, unless the run says otherwise."""
    return site.rng if kind == "seeded" or site.noise is None else site.noise


def tilt(size: int, alpha: float, rng: Noise) -> Vector:
    """A vector with density proportional to exp(-alpha ||b||): any direction, a length from Gamma(size, 1/alpha)."""
    direction = rng.normal(0.0, 1.0, size)
    return np.asarray(direction * (rng.gamma(size, 1 / alpha) / norm(direction)))


@record(frozen=True, slots=True)
class Price:
    """How the cost of private updates on these samples is reckoned."""

    mechanism: Mechanism
    samples: int
    mu: float
    layout: Layout

    def of(self, updates: int) -> dict[str, float]:
        """Return `epsilon` (infinite where nothing is promised), `delta` and `as_published` of these updates."""
        return self.mechanism.spent(updates, self.samples, self.mu, self.layout)


def counted(state: State) -> State:
    """One more private update in a device's state; the name is from Upcycled-FL, where only odd rounds have them."""
    return {"odd_updates": np.array(int(state.get("odd_updates", 0)) + 1, np.int64)}


def keep_spent(old: State, refused: State) -> State:
    """The device's state after its update was lost or refused: as before, but the data were used and that counts."""
    return {**old, "odd_updates": refused["odd_updates"]} if "odd_updates" in refused else old
