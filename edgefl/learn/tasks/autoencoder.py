"""An autoencoder: the label of a sample is the sample. Judged by its error and, where anomalies are marked, by AUROC.

Labels that come with the data only mark anomalies (0: ordinary) where a model is judged: no loss sees them. How sure
a model is that a sample is one is the error of its reconstruction, told in steps of an eighth of an octave.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.tasks.fields import Field
from edgefl.learn.tasks.form import Form
from edgefl.learn.tasks.labels import label_shape, share, whole

if TYPE_CHECKING:
    from edgefl.learn.data.dataset import Dataset  # which has a form: it must not be needed to be imported

LOWEST, HIGHEST, STEPS = -32, 16, 8  # octaves of a sample's mean squared error, and steps in each
BINS = (HIGHEST - LOWEST) * STEPS
KINDS = 2**24  # of anomalies, at most
MARK = Field("anomaly", (), whole=True, learnt=False)


@dataclass(frozen=True, slots=True)
class Autoencoder:
    """`reconstruction_error`, the root of the mean squared gap; `auroc`: how often an anomaly has the larger error.

    sums: of ordinary samples and of anomalies (rows), how many there are in each step of the error, and last the
    summed mean squared errors: (2, steps + 1).
    """

    loss: str = "squared_error"

    def form(
        self, parts: "Sequence[Dataset]", classes: int | None, outputs: Mapping[str, tuple[int, ...]] | None, where: str
    ) -> Form:
        data = parts[0]
        if data.form.inputs or data.x.dtype.kind != "f" or outputs or classes:
            raise ConfigError(
                f"{where}: an autoencoder learns samples of real numbers, one array each, without task.classes and"
                f" task.outputs; these are {data.x.dtype} of shape {list(data.shape)}"
            )
        labels = Field("", data.shape), MARK
        return Form("autoencoder", (), labels, (Field("", data.shape),))

    def sound(self, form: Form) -> bool:
        if len(form.labels) != 2 or len(form.outputs) != 1 or form.inputs:
            return False
        return form.labels[0].shape == form.outputs[0].shape and form.labels[1] == MARK

    def rows(self, data: "Dataset", form: Form, where: str) -> Array:
        if label_shape(data, "autoencoder", where):
            raise ConfigError(f"{where}: has several labels; give one, 0 of ordinary samples and 1 of anomalies")
        marks = whole(data.y, where, "marks of anomalies", least=0, below=KINDS) > 0
        return np.concatenate([data.x.reshape(len(data), form.labels[0].size), marks], axis=1).astype(np.float32)

    def asked(self, form: Form) -> int:
        return form.outputs[0].size

    def shape(self, form: Form) -> tuple[int, int]:  # noqa: ARG002 - of a kind
        return 2, BINS + 1

    def count(self, form: Form, z: Array, y: Array) -> Array:  # noqa: ARG002 - of a kind
        gaps = z.astype(np.float64) - y[:, :-1]
        each = np.mean(gaps * gaps, axis=1)
        steps = np.floor(STEPS * (np.log2(np.maximum(each, 2.0**LOWEST)) - LOWEST)).astype(np.int64)
        sums = np.zeros((2, BINS + 1))
        marks = y[:, -1].astype(np.int64)
        np.add.at(sums, (marks, np.clip(steps, 0, BINS - 1)), 1)
        np.add.at(sums, (marks, np.full(len(y), BINS)), each)
        return sums

    def scores(self, form: Form, sums: Array, samples: float) -> dict[str, float | None]:  # noqa: ARG002 - of a kind
        return {"reconstruction_error": sqrt(sums[:, -1].sum() / samples), "auroc": auroc(*sums[:, :-1])}

    def held(self, sums: Array) -> Array:
        return np.asarray(sums[:, :-1].sum(axis=1))

    def possible(self, form: Form, sums: Array, samples: int) -> bool:  # noqa: ARG002 - of a kind
        return bool((sums >= 0).all() and sums[:, :-1].sum() == samples)


def auroc(ordinary: Array, anomalies: Array) -> float | None:
    """The chance that an anomaly lies in a higher step than an ordinary sample, the same step counted half."""
    below = np.cumsum(ordinary) - ordinary / 2
    return share(float((anomalies * below).sum()), float(ordinary.sum() * anomalies.sum()))
