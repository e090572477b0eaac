"""Tensors that never leave a device: which they are, and local descent that shares only the others.

They are named by patterns over the layout (`head.*`, `*.bias`), or follow from it: the last layer, the norm layers.
What the coordinator holds in their place is what the run began with and is not used; an update is zero there.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, Layout, State, Vector
from edgefl.learn.contract import STRICT, Site, Task, Update
from edgefl.learn.training.local import LocalTraining, Walked

log = logging.getLogger(__name__)

KEPT = "private"  # the name of what a device keeps


@dataclass(frozen=True, config=STRICT, kw_only=True)
class PrivateParts(LocalTraining):
    """Plain descent from the received model with the device's own parts in it; `private` names them by patterns."""

    private: tuple[str, ...] = ()  # patterns of tensor names; the algorithm's own choice unless said

    keeps: ClassVar[str] = "parts"  # what stays on the device unless said, for messages

    def chosen(self, layout: Layout) -> tuple[str, ...]:
        """The tensors that stay on the device unless the run file says."""
        raise NotImplementedError

    def mask(self, layout: Layout) -> Array:
        """True where a number of the vector stays on the device."""
        names = matching(layout, self.private) if self.private else self.chosen(layout)
        return masked(layout, names)

    def fits(self, layout: Layout) -> None:
        """Refuse a network of which nothing, or everything, would be private; log which tensors are."""
        private = self.mask(layout)
        if private.any() and not private[: layout.trainable].all():
            names = [name for name, part in zip(layout.names, layout.slices, strict=True) if private[part].any()]
            log.info("stay on the devices tensors=%s", ",".join(names))
            return
        which = "all that this network trains" if private.any() else "nothing of this network"
        raise ConfigError(
            f"algorithm.name = '{type(self).__name__.lower()}': {self.keeps} would stay on the devices, and that is"
            f" {which}; name what stays in algorithm.private, by patterns over {', '.join(layout.names)}"
        )

    def own(self, params: Vector, state: State, layout: Layout) -> Vector:
        """The received model with the device's own parts."""
        if KEPT not in state:
            return params
        w = params.copy()
        w[self.mask(layout)] = state[KEPT]
        return w

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        """Everything is trained together; the private parts stay."""
        begun = replace(task, params=self.own(task.params, state, site.model.layout))
        return self.shared(begun, site, self.descend(begun, site))

    def shared(self, begun: Task, site: Site, walked: Walked) -> tuple[Update, State]:
        """What of a walk may be sent, and what is kept of it."""
        private, update = self.mask(site.model.layout), self.update(begun, site, walked)
        delta = np.where(private, update.delta.dtype.type(0), update.delta)
        return replace(update, delta=delta), {KEPT: walked.params[private]}


def matching(layout: Layout, patterns: Sequence[str]) -> tuple[str, ...]:
    """The tensors that these patterns name; one that names none is a mistake."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in layout.names):
            raise ConfigError(
                f"algorithm.private: no tensor is called '{pattern}'; the network has {', '.join(layout.names)}"
            )
    return tuple(name for name in layout.names if any(fnmatchcase(name, pattern) for pattern in patterns))


def masked(layout: Layout, names: Sequence[str]) -> Array:
    """True for every number of these tensors."""
    mask = np.zeros(layout.size, bool)
    for name, part in zip(layout.names, layout.slices, strict=True):
        mask[part] = name in names
    return mask


def last_layer(layout: Layout) -> tuple[str, ...]:
    """The tensors of the layer that has the last trained tensor."""
    trained = layout.names[: len(layout.names) - layout.buffers]
    head = _layer(trained[-1])
    return tuple(name for name in layout.names if _layer(name) == head)


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
