"""FedCurv: a device may move freely where the others' models do not care (Shoham et al., 2019).

How much device k cares about each weight is its diagonal Fisher information F_k. Each device is sent the sums
P = sum F_k and Q = sum F_k theta_k; a device takes its own share out and adds lam sum F_k (w - theta_k)^2 to its loss.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, State, Vector
from edgefl.learn.aggregation import Mean
from edgefl.learn.algorithms.extras import gather
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Task, Traits, Update
from edgefl.learn.training.local import LocalTraining, gradient


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedCurv(LocalTraining):
    """Local descent with the others' curvature as a spring; the first round has none.

    The plan is one for all, so a device subtracts its own share itself. It keeps the share it last sent, and since a
    state is kept only if its update was accepted, that share is in the sums, up to the codec's rounding.
    """

    name: Literal["fedcurv"] = "fedcurv"
    plain_steps: ClassVar[bool] = False
    lam: Annotated[float, Field(ge=0)] = 1e-4

    traits = Traits(one_model="devices pull towards where the others stood in the last round")

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        sums, nothing = server.get("curvature", {}), np.zeros_like(params)
        return {"P": sums.get("P", nothing), "Q": sums.get("Q", nothing)}

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        sgd, k = self.sgd(site), site.model.layout.trainable
        p, q = others(task.extra, state)
        p, q = p[:k], q[:k]

        def step(w: Vector, x: Array, y: Array) -> Vector:
            g = gradient(site, w, x, y)
            spring = w.dtype.type(2 * self.lam) * (p * w[:k] - q)
            return sgd(w, np.concatenate([g[:k] + spring, g[k:]]))

        walked = self.walk(task, site, step)
        f = fisher(site, walked.params)
        update = self.update(task, site, walked, {"F": f})
        return update, {"F": f, "Q": f * (task.params + update.delta)}  # theta as the coordinator will compute it

    def stages(self) -> tuple[Stage, ...]:
        return (Mean(), Curvature())


@dataclass(frozen=True, config=STRICT)
class Curvature:
    """Keeps the newest F_k and F_k theta_k of every device, and their sums P and Q."""

    name: Literal["curvature"] = "curvature"

    traits = Traits(
        individual=True,
        one_model="a Fisher information holds around the model where it was measured",
        believes="the Fisher information that devices send",
    )

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:  # noqa: ARG002
        rows = {key: row for key, row in state.items() if key not in {"P", "Q"}}
        for device, f in gather(draft, "F", self.name):
            theta = draft.params + draft.updates[device].delta
            rows |= {f"F {device}": np.array(f), f"Q {device}": f * theta}
        return draft, {**rows, "P": total(rows, "F ", draft.params), "Q": total(rows, "Q ", draft.params)}


def total(rows: Mapping[str, Vector], prefix: str, like: Vector) -> Vector:
    """The sum of the rows whose key starts so, always in the order of the devices: nothing drifts over the rounds."""
    out = np.zeros(like.shape, np.float64)
    for key in sorted(rows):
        if key.startswith(prefix):
            out += rows[key]
    return out.astype(like.dtype)


def others(sums: State, own: State) -> tuple[Vector, Vector]:
    """P and Q without the device's own share, as new arrays."""
    if "F" not in own:
        return sums["P"].copy(), sums["Q"].copy()
    return np.maximum(sums["P"] - own["F"], 0), sums["Q"] - own["Q"]  # rounding must not turn a spring around


def fisher(site: Site, w: Vector) -> Vector:
    """The diagonal empirical Fisher information: the mean over samples of the squared gradient, zero for statistics.

    One sample at a time, because the square of a batch's mean gradient is something else.
    """
    k, out = site.model.layout.trainable, np.zeros(len(w), np.float64)
    for i in range(len(site.data)):
        g = gradient(site, w, site.data.x[i : i + 1], site.data.y[i : i + 1])[:k].astype(np.float64)
        out[:k] += g * g
    return (out / len(site.data)).astype(w.dtype)
