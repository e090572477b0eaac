"""Several outputs at once, by name, each with a label of its own or none: a class here, real numbers there.

Labels by name that are whole numbers are classes, others real. An output of a label's name is judged by it: a class by
its accuracy, real numbers by their RMSE.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.tasks import fields
from edgefl.learn.tasks.fields import Field, Fields, in_words
from edgefl.learn.tasks.form import Form
from edgefl.learn.tasks.labels import whole

if TYPE_CHECKING:
    from edgefl.learn.data.dataset import Dataset  # which has a form: it must not be needed to be imported


@dataclass(frozen=True, slots=True)
class Heads:
    """`NAME.accuracy` or `NAME.rmse` of each label. sums: what each missed, a class by 1, and squared: (2, labels)."""

    loss: str = "heads"

    def form(
        self, parts: "Sequence[Dataset]", classes: int | None, outputs: Mapping[str, tuple[int, ...]] | None, where: str
    ) -> Form:
        labels = parts[0].form.labels
        if not labels or not all(field.name for field in labels) or classes:
            raise ConfigError(
                f"{where}: task.kind = 'heads' takes labels by name (y as a dictionary, or y.NAME in an .npz) and no"
                " task.classes; task.outputs tells the shape of each output"
            )
        counted = {field.name: _classes(parts, field.name) for field in labels if field.whole}
        shapes = {f.name: (counted[f.name], *f.shape) if f.whole else f.shape or (1,) for f in labels}
        shapes |= {name: tuple(shape) for name, shape in (outputs or {}).items()}
        for field in labels:
            if not _fits(field, shapes[field.name]):
                raise ConfigError(
                    f"task.outputs.{field.name} = {list(shapes[field.name])} is no output for labels"
                    f" {in_words((field,))}; give [classes, ...] for whole numbers, else the shape of the label"
                )
        given = tuple(Field(name, shape) for name, shape in shapes.items())
        return Form("heads", parts[0].form.inputs, labels, given)

    def sound(self, form: Form) -> bool:
        outputs = {field.name: field.shape for field in form.outputs}
        named = bool(form.labels) and all(field.name in outputs for field in form.labels)
        return named and all(_fits(field, outputs[field.name]) for field in form.labels)

    def rows(self, data: "Dataset", form: Form, where: str) -> Array:
        if data.form.labels != form.labels:
            own, run = in_words(data.form.labels) or "one array", in_words(form.labels)
            raise ConfigError(
                f"{where}: its labels are {own}, the run's {run}; correct the data",
                told=f"its labels are not {run} as the run's; correct the data",
            )
        named = fields.unpack(form.labels, data.y)
        for name, _, below in _heads(form):
            if below:
                whole(named[name], where, f"classes of '{name}'", least=0, below=below)
        return data.y

    def asked(self, form: Form) -> dict[str, tuple[int, ...]]:
        return {field.name: field.shape for field in form.outputs}

    def shape(self, form: Form) -> tuple[int, int]:
        return 2, len(form.labels)

    def count(self, form: Form, z: Array, y: Array) -> Array:
        outputs, labels = fields.unpack(form.outputs, z), fields.unpack(form.labels, y)
        columns = []
        for name, size, classes in _heads(form):
            if classes:
                gaps = (outputs[name].argmax(axis=1) != labels[name]).astype(np.float64)
            else:
                gaps = outputs[name].reshape(labels[name].shape).astype(np.float64) - labels[name]
            columns.append([np.abs(gaps).sum() / size, (gaps * gaps).sum() / size])
        return np.array(columns).T

    def scores(self, form: Form, sums: Array, samples: float) -> dict[str, float | None]:
        told: dict[str, float | None] = {}
        for (name, _, classes), (gaps, squares) in zip(_heads(form), sums.T.tolist(), strict=True):
            told |= {f"{name}.accuracy": 1 - gaps / samples} if classes else {f"{name}.rmse": sqrt(squares / samples)}
        return told

    def held(self, sums: Array) -> Array:  # noqa: ARG002 - of a kind
        return np.zeros(0)  # nothing of what is missed follows from the samples alone

    def possible(self, form: Form, sums: Array, samples: int) -> bool:
        gaps, squares = sums
        most = [samples if classes else np.inf for _, _, classes in _heads(form)]
        return bool((sums >= 0).all() and (gaps <= most).all() and (gaps * gaps <= squares * samples * 1.000001).all())


def _heads(form: Form) -> list[tuple[str, int, int]]:
    """Name, numbers and classes (0: real) of each label."""
    shapes: Fields = form.outputs
    outputs = {field.name: field.shape for field in shapes}
    return [(f.name, f.size, outputs[f.name][0] if f.whole else 0) for f in form.labels]


def _fits(label: Field, output: tuple[int, ...]) -> bool:
    if label.whole:
        return len(output) == len(label.shape) + 1 and output[1:] == label.shape and output[0] > 1
    return Field("", output).size == label.size


def _classes(parts: "Sequence[Dataset]", name: str) -> int:
    return max(2, max(int(fields.unpack(part.form.labels, part.y)[name].max(initial=0)) for part in parts) + 1)
