"""A network that takes raw units: what the fleet knows of its features is part of the model, around any back-end.

Each feature (or channel) has its mean taken off and is divided by its deviation, in float32, before the network sees
it. `edgefl/delivery/deploy.py` writes the same two steps into the exported file.
"""

from collections.abc import Callable

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, Layout, Vector
from edgefl.learn.models.base import DescendingModel, Descent, Model
from edgefl.learn.models.blocks import inside
from edgefl.learn.models.rule import Rule


class Normalised:
    """A `Model` that normalises the samples of another one. Weights and layout are the inner model's."""

    def __init__(self, inner: Model, mean: Array, scale: Array) -> None:
        """`scale` is what a feature is multiplied with, one over its deviation; one of each for every channel."""
        self.inner = inner
        self.mean, self.scale = mean.astype(np.float32), scale.astype(np.float32)

    @property
    def layout(self) -> Layout:
        return self.inner.layout

    def samples(self, x: Array) -> Array:
        """What the network sees of these samples."""
        if x.dtype.kind != "f" or x.shape[1] != len(self.mean):
            raise ConfigError(
                f"task.normalise = 'fleet' knows {len(self.mean)} features, and these samples are {x.dtype} of shape"
                f" {list(x.shape[1:])}; use the data that the run was made for"
            )
        mean, scale = (along(values, x.ndim) for values in (self.mean, self.scale))
        return np.asarray((x.astype(np.float32, copy=False) - mean) * scale)

    def raw(self, x: Array) -> Array:
        """The samples that the network sees as these."""
        mean, scale = (along(values, x.ndim) for values in (self.mean, self.scale))
        return np.asarray((x / scale + mean).astype(np.float32))

    def logits(self, w: Vector, x: Array) -> Array:
        """The outputs for `x`, in evaluation mode."""
        return self.inner.logits(w, self.samples(x))

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        """The outputs, and the function that turns their gradient into the gradient of `w`."""
        return self.inner.vjp(w, self.samples(x))

    def descent(self, loss: str, rule: Rule, w: Vector) -> "Walk | None":
        """A walk of the inner network, on raw units; None if it takes no such steps."""
        walk = self.inner.descent(loss, rule, w) if isinstance(self.inner, DescendingModel) else None
        return None if walk is None else Walk(walk, self.samples)

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:
        """The gradient of `x`, which is in raw units, for this gradient of the outputs."""
        return np.asarray(self.inner.input_gradient(w, self.samples(x), dz) * along(self.scale, x.ndim))

    def tensors(self, w: Vector) -> dict[str, Array]:
        """The inner network's tensors."""
        return self.inner.tensors(w)

    def featured(self, model: Model) -> Model:  # noqa: ARG002 - it is asked of itself
        """The view into the inner network (`edgefl/learn/models/blocks.py`), on raw units."""
        view = inside(self.inner, "this algorithm").featured(self.inner)
        return Normalised(view, self.mean, self.scale)

    def hybrid(self, model: Model, frozen: Vector) -> Model:  # noqa: ARG002 - likewise
        """The paths through the inner network, on raw units."""
        view = inside(self.inner, "this algorithm").hybrid(self.inner, frozen)
        return Normalised(view, self.mean, self.scale)


class Walk:
    """A `Descent` whose samples are normalised first."""

    def __init__(self, inner: Descent, samples: Callable[[Array], Array]) -> None:
        self._inner, self._samples = inner, samples
        self.outputs, self.most, self.back = inner.outputs, inner.most, inner.back
        self.is_finite, self.params, self.close = inner.is_finite, inner.params, inner.close

    def take(self, x: Array, y: Array, rows: Array) -> Array:
        """One step for each row of `rows`."""
        flat = rows.reshape(-1)
        return self._inner.take(self._samples(x[flat]), y[flat], np.arange(flat.size).reshape(rows.shape))


def along(values: Array, ndim: int) -> Array:
    """Return one number for each channel, in the shape of a batch with this number of axes."""
    return values.reshape(1, -1, *[1] * (ndim - 2))
