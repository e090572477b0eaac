"""What a training back-end offers: a forward pass and its pullback, nothing else."""

from collections.abc import Callable
from typing import Protocol, TypeGuard, runtime_checkable

from edgefl.base.vector import Array, Layout, Vector
from edgefl.learn.models.rule import Rule


class Model(Protocol):
    """A network without weights of its own: the weights are always an argument.

    `vjp` runs in training mode. Entries of the pulled-back vector that belong to buffers hold the exact move of
    the statistic (old minus new), so that one descent step with rate one updates it.
    """

    @property
    def layout(self) -> Layout: ...

    def logits(self, w: Vector, x: Array) -> Array:
        """The outputs for `x`, in evaluation mode."""
        ...

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        """The outputs, and the function that turns their gradient into the gradient of `w`."""
        ...

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:
        """The gradient of `x`, in evaluation mode, for this gradient of the outputs."""
        ...

    def tensors(self, w: Vector) -> dict[str, Array]:
        """The network with these weights, tensor by tensor under its own names, what is not trained included."""
        ...


class Descent(Protocol):
    """A walk in progress. The model has its weights, until it is closed."""

    @property
    def outputs(self) -> int:
        """How many numbers the network gives for a sample."""
        ...

    def most(self, batch: int) -> int:
        """How many mini-batches of this size one call takes; it depends on sizes alone, and changes no bit."""
        ...

    def take(self, x: Array, y: Array, rows: Array) -> Array:
        """One step for each row of `rows`, which numbers the samples of a mini-batch; their losses."""
        ...

    def back(self) -> None:
        """Undo the last call."""
        ...

    def is_finite(self) -> bool:
        """Whether all weights are."""
        ...

    def params(self) -> Vector:
        """The weights now."""
        ...

    def close(self) -> None:
        """Leave its memory to the next walk."""
        ...


@runtime_checkable
class DescendingModel(Protocol):
    """A model that may take whole steps by itself."""

    def descent(self, loss: str, rule: Rule, w: Vector) -> Descent | None:
        """A walk from `w` down this loss; None if there is no graph for such steps."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A model whose work can be ended from another thread in the middle of a pass."""

    def interrupt(self) -> None:
        """End what runs as soon as possible (by `Interrupted`), and let nothing run until `resume`."""
        ...

    def resume(self) -> None:
        """Let work begin again."""
        ...


def descends(model: object) -> TypeGuard[DescendingModel]:
    """As isinstance has it, which takes longer than a small step."""
    return issubclass(type(model), DescendingModel)


def interruptible(model: object) -> TypeGuard[Interruptible]:
    """As isinstance has it, which looks at every method anew and takes longer than a small step."""
    return issubclass(type(model), Interruptible)
