"""Segmentation: a class for each pixel, or each moment of a signal. Judged by the mean IoU of its classes.

The network gives (classes, ...) for labels (...); a label below 0 is not known, and neither learnt nor judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.tasks import overlap
from edgefl.learn.tasks.fields import WHOLE, Field
from edgefl.learn.tasks.form import Form
from edgefl.learn.tasks.labels import classes_of, label_shape, mean, share, whole

if TYPE_CHECKING:
    from edgefl.learn.data.dataset import Dataset  # which has a form: it must not be needed to be imported


@dataclass(frozen=True, slots=True)
class Segmentation:
    """`mean_iou`, and `pixel_accuracy`: the share of places that are taken for what they are."""

    loss: str = "cross_entropy"

    def form(
        self, parts: "Sequence[Dataset]", classes: int | None, outputs: Mapping[str, tuple[int, ...]] | None, where: str
    ) -> Form:
        shape, count = label_shape(parts[0], "segmentation", where), classes_of(parts, classes)
        if not shape or outputs or count < 2:
            raise ConfigError(
                f"{where}: labels of shape {list(shape)} in {count} classes are no segmentation; give y of shape"
                " (n, height, width) with class numbers, and no task.outputs"
            )
        return Form(
            "segmentation", parts[0].form.inputs, (Field("", shape, whole=True),), (Field("", (count, *shape)),)
        )

    def sound(self, form: Form) -> bool:
        one = len(form.labels) == len(form.outputs) == 1
        return one and form.labels[0].whole and form.outputs[0].shape[1:] == form.labels[0].shape != ()

    def rows(self, data: "Dataset", form: Form, where: str) -> Array:
        if (shape := label_shape(data, "segmentation", where)) != form.labels[0].shape:
            there = list(form.labels[0].shape)
            raise ConfigError(
                f"{where}: its labels have shape {list(shape)}, the run's {there}; correct the data",
                told=f"its labels do not have the shape {there} of the run's; correct the data",
            )
        return whole(data.y, where, "classes of the run", least=-WHOLE, below=self.asked(form))

    def asked(self, form: Form) -> int:
        return form.outputs[0].shape[0]

    def shape(self, form: Form) -> tuple[int, int]:
        return 3, self.asked(form)

    def count(self, form: Form, z: Array, y: Array) -> Array:
        classes = self.asked(form)
        taken, true = z.reshape(len(z), classes, -1).argmax(axis=1).reshape(-1), y.astype(np.int64).reshape(-1)
        taken, true = taken[true >= 0], true[true >= 0]
        by_class = (np.bincount(part, minlength=classes) for part in (taken[taken == true], taken, true))
        return overlap.overlap(*by_class)

    def scores(self, form: Form, sums: Array, samples: float) -> dict[str, float | None]:  # noqa: ARG002 - of a kind
        return {"mean_iou": mean(overlap.iou(sums)), "pixel_accuracy": share(sums[0].sum(), sums[2].sum())}

    def held(self, sums: Array) -> Array:
        return np.asarray(sums[2])

    def possible(self, form: Form, sums: Array, samples: int) -> bool:
        most = samples * prod(form.labels[0].shape)
        return overlap.possible(sums, most) and sums[1].sum() == sums[2].sum() <= most
