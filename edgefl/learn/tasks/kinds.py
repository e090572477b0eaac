"""The kinds of tasks, by the word of `task.kind`: what their labels and outputs are, and what a model is worth.

A kind counts a model's predictions on a batch as sums, so the counts of devices add up to those of all their samples.
The model is judged on the coordinator's own test data by the same numbers. No sum is of a single sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from edgefl.base.errors import ConfigError, RemoteError
from edgefl.base.vector import Array
from edgefl.learn.tasks import fields
from edgefl.learn.tasks.autoencoder import Autoencoder
from edgefl.learn.tasks.fields import in_words
from edgefl.learn.tasks.form import Form
from edgefl.learn.tasks.heads import Heads
from edgefl.learn.tasks.multilabel import Multilabel
from edgefl.learn.tasks.next_token import NextToken
from edgefl.learn.tasks.segmentation import Segmentation

if TYPE_CHECKING:
    from edgefl.learn.data.dataset import Dataset  # which has a form: it must not be needed to be imported

Outputs: TypeAlias = Mapping[str, tuple[int, ...]]  # what several outputs are called, and their shapes


class TaskKind(Protocol):
    """What a task is that learns neither one class nor some real numbers."""

    @property
    def loss(self) -> str:
        """Its loss, where the run file names none."""
        ...

    def form(self, parts: "Sequence[Dataset]", classes: int | None, outputs: Outputs | None, where: str) -> Form:
        """How its rows are read, from the data that the coordinator sees and the word of its run file."""
        ...

    def sound(self, form: Form) -> bool:
        """Return whether a received form is one of this kind."""
        ...

    def rows(self, data: "Dataset", form: Form, where: str) -> Array:
        """The labels of these data as rows of the form; what does not fit is refused."""
        ...

    def asked(self, form: Form) -> "int | dict[str, tuple[int, ...]]":
        """What a factory of networks is told of the outputs."""
        ...

    def shape(self, form: Form) -> tuple[int, int]:
        """Of its sums."""
        ...

    def count(self, form: Form, z: Array, y: Array) -> Array:
        """The sums over a batch of outputs and labels, both in rows."""
        ...

    def scores(self, form: Form, sums: Array, samples: float) -> dict[str, float | None]:
        """Return the scores of a model from these sums over its samples; the first one is the chief score."""
        ...

    def held(self, sums: Array) -> Array:
        """What of the sums follows from the samples alone, whatever the model."""
        ...

    def possible(self, form: Form, sums: Array, samples: int) -> bool:
        """Return whether this number of samples can have such sums."""
        ...


LARGEST = 2**28  # numbers of a row

KINDS: dict[str, TaskKind] = {
    "segmentation": Segmentation(),
    "multilabel": Multilabel(),
    "next_token": NextToken(),
    "autoencoder": Autoencoder(),
    "heads": Heads(),
}


_TAKE_PLAIN_LOSSES = {"segmentation", "autoencoder"}  # cross-entropy, and the squared error


def kind_of(loss: str) -> str | None:
    """The kind whose labels this loss takes, where plain ones mean nothing to it."""
    return next((word for word, kind in KINDS.items() if kind.loss == loss and word not in _TAKE_PLAIN_LOSSES), None)


def checked(form: Form) -> Form:
    """The form that a message tells, if there is such a one: what it names, devices take apart and put together."""
    for part in (form.inputs, form.labels, form.outputs):
        if any((field.name and not field.name.isidentifier()) or min(field.shape, default=1) < 1 for field in part):
            raise RemoteError("model.form", f"rows of {in_words(part)[:200]} have no such names and shapes")
        if len({field.name for field in part}) != len(part) or fields.width(part) > LARGEST:
            raise RemoteError("model.form", f"rows of {in_words(part)[:200]} are too long, or name an array twice")
    if form.kind and not KINDS[form.kind].sound(form):
        raise RemoteError(
            "model.form", f"a task '{form.kind}' has no labels {in_words(form.labels)} for {in_words(form.outputs)}"
        )
    return form


def formed(data: "Dataset", form: Form, where: str) -> "Dataset":
    """The data as a task of this form needs them, at the coordinator and on devices alike."""
    if data.form == form:
        return data
    if data.form.inputs != form.inputs:
        own, run = in_words(data.form.inputs) or "one array", in_words(form.inputs) or "one array"
        raise ConfigError(
            f"{where}: its samples have as inputs {own}, the run's have {run}; correct the data",
            told=f"its samples have other inputs than the run's {run}; correct the data",
        )
    if not form.kind:
        if data.form.labels:
            raise ConfigError(
                f"{where}: its labels are {in_words(data.form.labels)}, neither a class nor real targets;"
                " set task.kind",
                told="its labels are neither a class nor real targets; set task.kind",
            )
        return data
    y = KINDS[form.kind].rows(data, form, where)
    if y.shape != (len(data), fields.width(form.labels)):
        raise ConfigError(
            f"{where}: a row of its labels has {y.shape[1:]} numbers, task.kind = '{form.kind}' needs"
            f" {fields.width(form.labels)} ({in_words(form.labels)}); correct the data",
            told=f"its labels are not {in_words(form.labels)} as the run's; correct the data",
        )
    return replace(data, y=y, classes=0, class_names=None, target_names=None, form=form)
