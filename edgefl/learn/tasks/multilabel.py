"""Several labels at once: each is there or not, and none excludes another. Judged by F1, the mean over the labels.

Labels are (n, labels) of 0 and 1; the network gives a logit for each, and 0 or more means that it is there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.tasks import overlap
from edgefl.learn.tasks.fields import Field
from edgefl.learn.tasks.form import Form
from edgefl.learn.tasks.labels import label_shape, mean, share, whole

if TYPE_CHECKING:
    from edgefl.learn.data.dataset import Dataset  # which has a form: it must not be needed to be imported


@dataclass(frozen=True, slots=True)
class Multilabel:
    """`f1`, and `exact_match`: the share of samples of which every label is right, the last column of the sums."""

    loss: str = "binary_cross_entropy"

    def form(
        self, parts: "Sequence[Dataset]", classes: int | None, outputs: Mapping[str, tuple[int, ...]] | None, where: str
    ) -> Form:
        shape = label_shape(parts[0], "multilabel", where)
        if len(shape) != 1 or outputs or classes not in {None, shape[0]}:
            raise ConfigError(
                f"{where}: labels of shape {list(shape)} (task.classes = {classes}) are no several labels; give y of"
                " shape (n, labels) with 0 and 1, (n, 1) for a single one, and no task.outputs"
            )
        return Form("multilabel", parts[0].form.inputs, (Field("", shape, whole=True),), (Field("", shape),))

    def sound(self, form: Form) -> bool:
        one = len(form.labels) == len(form.outputs) == 1
        return one and form.labels[0].shape == form.outputs[0].shape and len(form.labels[0].shape) == 1

    def rows(self, data: "Dataset", form: Form, where: str) -> Array:  # noqa: ARG002 - of a kind
        label_shape(data, "multilabel", where)
        return whole(data.y, where, "marks", least=0, below=2)

    def asked(self, form: Form) -> int:
        return form.outputs[0].shape[0]

    def shape(self, form: Form) -> tuple[int, int]:
        return 3, self.asked(form) + 1

    def count(self, form: Form, z: Array, y: Array) -> Array:  # noqa: ARG002 - of a kind
        taken, true = z >= 0, y > 0
        exact, samples = [(taken == true).all(axis=1).sum()], [len(y)]
        sums = ((taken & true).sum(axis=0), taken.sum(axis=0), true.sum(axis=0))
        return overlap.overlap(
            *(np.append(part, last) for part, last in zip(sums, (exact, samples, samples), strict=True))
        )

    def scores(self, form: Form, sums: Array, samples: float) -> dict[str, float | None]:  # noqa: ARG002 - of a kind
        return {"f1": mean(overlap.f1(sums[:, :-1])), "exact_match": share(sums[0, -1], samples)}

    def held(self, sums: Array) -> Array:
        return np.asarray(sums[2])

    def possible(self, form: Form, sums: Array, samples: int) -> bool:  # noqa: ARG002 - of a kind
        return overlap.possible(sums, samples) and sums[1, -1] == sums[2, -1] == samples
