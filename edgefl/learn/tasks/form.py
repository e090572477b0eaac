"""The form of a task: how the rows of samples, labels and outputs are read. Networks and the wire see rows alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgefl.base.vector import Array
from edgefl.learn.losses import Loss
from edgefl.learn.tasks import fields
from edgefl.learn.tasks.fields import Fields


@dataclass(frozen=True, slots=True)
class Form:
    """Of a kind of task (`kinds.py`); a plain one learns a class or real numbers, and needs no form."""

    kind: str = ""
    inputs: Fields = ()  # several arrays of a sample, where it is not one
    labels: Fields = ()  # what a row of y holds, where it is not a class or some real numbers
    outputs: Fields = ()  # what a row that the network gives holds, likewise

    @property
    def known(self) -> bool:
        """Whether there is anything to say about rows at all."""
        return bool(self.kind or self.inputs or self.labels)

    def loss(self, plain: Loss) -> Loss:
        """The loss on rows."""
        return RowLoss(plain, self) if self.kind else plain

    def described(self) -> dict[str, Any] | None:
        """As JSON has it; None of a plain one."""
        if not self.known:
            return None
        parts = {"inputs": self.inputs, "labels": self.labels, "outputs": self.outputs}
        return {"kind": self.kind, **{name: fields.described(part) for name, part in parts.items()}}


PLAIN = Form()


def read(table: Mapping[str, Any] | None) -> Form:
    """The form behind such JSON."""
    if table is None:
        return PLAIN
    return Form(str(table["kind"]), *(fields.read(table[name]) for name in ("inputs", "labels", "outputs")))


@dataclass(frozen=True, slots=True)
class RowLoss:
    """A loss of outputs and labels in their own shapes, as one of rows."""

    plain: Loss
    form: Form

    def __call__(self, z: Array, y: Array) -> tuple[float, Array]:
        """The batch mean, and its gradient with respect to the rows of outputs."""
        outputs = self.form.outputs
        natural: Any = fields.natural  # what a user's function takes: arrays, or several by name
        loss, dz = self.plain(natural(outputs, z), natural(self.form.labels, y))
        return loss, fields.as_rows(outputs, dz, z.dtype)
