"""A network that takes several inputs, or gives outputs of any shape, as one from rows to rows.

It stays the same module, with the same tensors under the same names: only its class learns to read and write rows.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from edgefl.base.errors import ConfigError
from edgefl.learn.tasks.fields import Field, Fields, in_order, starts
from edgefl.learn.tasks.form import PLAIN, Form


class OnRows(nn.Module):
    """What the class of such a network also is."""

    form: Form = PLAIN

    @property
    def has_real_inputs(self) -> bool:
        """Whether there is anything that a gradient of the samples could be of."""
        inputs = self.form.inputs
        return not inputs or any(not field.whole for field in inputs)

    def forward(self, x: Tensor) -> Tensor:
        """Rows of outputs for rows of samples."""
        z = self._outputs(x)
        return row(z, self.form.outputs, type(self).__name__) if self.form.outputs else z

    def _outputs(self, x: Tensor) -> Any:  # Any: whatever the network gives
        inputs = unpacked(self.form.inputs, x)
        if not inputs:
            return super().forward(x)
        return super().forward(*inputs.values()) if in_order(self.form.inputs) else super().forward(**inputs)


def on_rows(module: nn.Module, form: Form) -> nn.Module:
    """The module itself, whose class now reads and writes rows."""
    kind = type(module)
    module.__class__ = type(kind.__name__, (OnRows, kind), {"form": form, "__module__": kind.__module__})
    return module


def unpacked(inputs: Fields, x: Tensor) -> dict[str, Tensor]:
    """The inputs in these rows, by name."""
    return {field.name: _part(field, x, start) for field, start in zip(inputs, starts(inputs), strict=True)}


def _part(field: Field, x: Tensor, start: int) -> Tensor:
    part = x[:, start : start + field.size].reshape(-1, *field.shape) if field.shape else x[:, start]
    return part.to(torch.int64) if field.whole else part


def row(z: Any, outputs: Fields, network: str) -> Tensor:
    """The outputs of a network, which may be several by name or in their order, as rows."""
    if len(outputs) == 1 and isinstance(z, Tensor):
        return _flat(z, outputs[0], network)
    names = [field.name for field in outputs]
    given = z if isinstance(z, Mapping) else dict(zip(names, z, strict=False)) if isinstance(z, tuple) else {}
    lacking = [name for name in names if not isinstance(given.get(name), Tensor)]
    if lacking:
        seen = ", ".join(map(str, given)) or type(z).__name__
        raise ConfigError(
            f"model {network}: gives {seen}, and the task needs '{lacking[0]}'; return a dictionary of tensors, or a"
            f" tuple in the order {', '.join(names)}"
        )
    return torch.cat([_flat(given[field.name], field, network) for field in outputs], dim=1)


def _classes_differ(given: tuple[int, ...], needed: tuple[int, ...]) -> str:
    """A hint, where it may only be that the data show fewer classes than there are."""
    differ = len(given) == len(needed) and sum(one != other for one, other in zip(given, needed, strict=True)) == 1
    return "; if there are more classes than the data show, task.classes says how many" if differ else ""


def _flat(z: Tensor, field: Field, network: str) -> Tensor:
    shape = tuple(z.shape[1:])
    if shape not in {field.shape, (field.size,)} and not (shape == () and field.size == 1):
        raise ConfigError(
            f"model {network}: gives {list(shape)} for a sample{f' as {field.name!r}' if field.name else ''}, the task"
            f" needs {list(field.shape)}{_classes_differ(shape, field.shape)}"
        )
    return z.unsqueeze(1) if not shape else z.flatten(1)
