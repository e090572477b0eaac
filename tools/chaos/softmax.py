"""The job of the simulated fleets: a softmax regression of a few numbers in plain numpy, so that seeds cost little."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgefl.base import seeds
from edgefl.base.vector import Array, Layout, Vector
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import Job
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import LOSSES
from edgefl.learn.models.base import Model

FEATURES, CLASSES = 3, 3
TESTED = 12  # samples that a model is judged by
PUBLIC = 8  # samples that server stages train on


class Softmax:
    """z = x W + b."""

    layout = Layout(("w", "b"), ((FEATURES, CLASSES), (CLASSES,)))

    def logits(self, w: Vector, x: Array) -> Array:
        weights, bias = _parts(w)
        z: Array = x @ weights + bias
        return z

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        def pullback(dz: Array) -> Vector:
            return np.concatenate([(x.T @ dz).reshape(-1), dz.sum(axis=0)])

        return self.logits(w, x), pullback

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:  # noqa: ARG002
        gradient: Array = dz @ _parts(w)[0].T
        return gradient

    def tensors(self, w: Vector) -> dict[str, Array]:
        return dict(self.layout.layers(w))

    # What MOON and FedMLB want to see inside a network (edgefl/learn/models/blocks.py).

    def featured(self, model: Model) -> Model:
        """The outputs, and beside them the input of the only layer there is."""
        return ModelBeside(self.layout, model, lambda x: x)

    def hybrid(self, model: Model, frozen: Vector) -> Model:
        """The outputs, and beside them those of the one path there can be: all of it frozen."""
        return ModelBeside(self.layout, model, lambda x: self.logits(frozen, x))


@dataclass(frozen=True)
class ModelBeside:
    """A model with something in the same row of its outputs that its weights have no part in."""

    layout: Layout
    model: Model
    more: Callable[[Array], Array]

    def logits(self, w: Vector, x: Array) -> Array:
        return np.concatenate([self.model.logits(w, x), self.more(x)], axis=1)

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        z, pullback = self.model.vjp(w, x)
        return np.concatenate([z, self.more(x)], axis=1), lambda dz: pullback(dz[:, : z.shape[1]])

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:
        return self.model.input_gradient(w, x, dz[:, :CLASSES])

    def tensors(self, w: Vector) -> dict[str, Array]:
        return self.model.tensors(w)


def _parts(w: Vector) -> tuple[Array, Array]:
    return w[: FEATURES * CLASSES].reshape(FEATURES, CLASSES), w[FEATURES * CLASSES :]


def samples(seed: int, name: str, count: int) -> Dataset:
    """Clouds around the corners of a simplex, each device with its own draw."""
    rng = seeds.stream(seed, name, "samples")
    y = rng.integers(0, CLASSES, count)
    x = np.eye(FEATURES)[y] * 2.0 + 0.5 * rng.standard_normal((count, FEATURES))
    return Dataset(x.astype(np.float32), y.astype(np.int64), CLASSES)


def make_job(run: RunFile) -> Job:
    """What `edgefl.job.run.job.prepare` makes of a run file, without a network to build or to export."""
    seed = run.run.seed
    return Job(
        run=run,
        algorithm=run.make_algorithm(),
        stages=run.make_stages(),
        model=Softmax(),
        device_model=Softmax(),
        graphs=None,
        start=np.zeros(Softmax.layout.size, np.float32),
        loss=LOSSES[run.task.loss],
        up=run.wire.up_codec(),
        down=run.wire.down_codec(),
        sample=(FEATURES,),
        classes=CLASSES,
        public=samples(seed, "public", PUBLIC),
        test=samples(seed, "test", TESTED),
    )


def fleet(seed: int, names: Sequence[str], counts: Sequence[int]) -> dict[str, Dataset]:
    """What each device holds."""
    return {name: samples(seed, name, count) for name, count in zip(names, counts, strict=True)}
