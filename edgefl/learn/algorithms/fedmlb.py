"""FedMLB: local blocks must also work when frozen global blocks continue after them (Kim et al., 2022)."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.vector import Array, State, Vector, norm
from edgefl.learn.contract import STRICT, Site, Task, Update
from edgefl.learn.losses import Loss, cross_entropy, log_softmax
from edgefl.learn.models.blocks import inside
from edgefl.learn.training.local import LocalTraining
from edgefl.learn.training.public import classified


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedMLB(LocalTraining):
    """The local loss gets lambda1 times the paths' cross-entropy and lambda2 times KL(path || local), path means."""

    name: Literal["fedmlb"] = "fedmlb"
    plain_steps: ClassVar[bool] = False
    lambda1: Annotated[float, Field(ge=0)] = 1.0
    lambda2: Annotated[float, Field(ge=0)] = 1.0
    clip: Annotated[float, Field(gt=0)] | None = 10.0  # the longest gradient, as in the authors' program

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        classes = classified(site, "algorithm 'fedmlb'")
        sgd, k = self.sgd(site), site.model.layout.trainable
        model = inside(site.model, "algorithm 'fedmlb'").hybrid(site.model, task.params)

        def step(w: Vector, x: Array, y: Array) -> Vector:
            joined, pullback = model.vjp(w, x)
            z = joined.reshape(len(x), -1, classes)
            _, dz = multi_level(z[:, 0], z[:, 1:], y, self.lambda1, self.lambda2, site.loss)
            g = pullback(dz.reshape(joined.shape))
            length = norm(g[:k])
            if self.clip is not None and length > self.clip:
                g = np.concatenate([g[:k] * g.dtype.type(self.clip / length), g[k:]])
            return sgd(w, g)

        return self.update(task, site, self.walk(task, site, step)), state


def multi_level(  # noqa: PLR0917 - the paper's own symbols
    z: Array, paths: Array, y: Array, lambda1: float, lambda2: float, plain: Loss = cross_entropy
) -> tuple[float, Array]:
    """The loss of local logits `z` (samples, classes) with `paths` (samples, paths, classes), batch mean.

    Its gradient comes as (samples, 1 + paths, classes): the local logits first.
    """
    n, count, _ = paths.shape
    real = z.dtype.type
    loss, own = plain(z, y)
    logq, dpaths = log_softmax(z), np.empty_like(paths)
    for i in range(count):
        logp = log_softmax(paths[:, i])
        p, gap = np.exp(logp), logp - logq
        kl = (p * gap).sum(axis=1, keepdims=True)
        ce, dce = plain(paths[:, i], y)
        loss += (lambda1 * ce + lambda2 * float(kl.mean())) / count
        dpaths[:, i] = real(lambda1 / count) * dce + real(lambda2 / (count * n)) * p * (gap - kl)
        own = own + real(lambda2 / (count * n)) * (np.exp(logq) - p)
    return loss, np.concatenate([own[:, None], dpaths], axis=1)
