"""What a training back-end offers: a forward pass and its pullback, nothing else."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from edgefl.vector import Array, Layout, Vector


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


@runtime_checkable
class Interruptible(Protocol):
    """A model whose work can be ended from another thread in the middle of a pass."""

    def interrupt(self) -> None:
        """End what runs as soon as possible (by `Interrupted`), and let nothing run until `resume`."""
        ...

    def resume(self) -> None:
        """Let work begin again."""
        ...
