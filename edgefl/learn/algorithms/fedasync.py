"""FedAsync: every answer is mixed into the model as it comes, an old one with less weight (Xie et al., 2019).

    x <- (1 - a) x + a x_i,   a = alpha (1 + s)^-power

x_i is the model of the device, which began from the shared model of s merges ago. It belongs to rounds that wait for
no device (`rounds.mode = "buffered"`) with `rounds.buffer = 1`. Devices go down F(w) + rho/2 ||w - received||^2.
"""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.errors import RunError
from edgefl.base.vector import State
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Traits
from edgefl.learn.training.local import LocalTraining, Rule

Share = Annotated[float, Field(gt=0, le=1)]
Power = Annotated[float, Field(ge=0)]
History = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FedAsync(LocalTraining):
    """Local descent with an elastic band, and a mixture of models at the coordinator."""

    name: Literal["fedasync"] = "fedasync"
    rho: Annotated[float, Field(ge=0)] = 0.005
    alpha: Share = 0.6
    power: Power = 0.5
    history: History = 20

    def rule(self) -> Rule:
        """Plain steps with an elastic band."""
        return Rule(self.lr, self.momentum, self.weight_decay, self.rho)

    def stages(self) -> tuple[Stage, ...]:
        return (Mix(alpha=self.alpha, power=self.power, history=self.history),)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Mix:
    """Takes the place of `mean`: answers are mixed in one after another, by name where several come at once.

    To know the model of a device from its update, the last `history` models are kept; `rounds.staleness` must not
    exceed it.
    """

    name: Literal["mix"] = "mix"
    alpha: Share = 0.6
    power: Power = 0.5
    history: History = 20

    @property
    def traits(self) -> Traits:
        """It looks at the ages of answers itself, as far back as it keeps models."""
        return Traits(individual=True, buffered=True, makes_step=True, history=self.history)

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:  # noqa: ARG002
        models = {**state, _key(draft.round): draft.params}
        x, real = draft.params, draft.params.dtype.type
        for device, update in draft.updates.items():
            age = draft.ages.get(device, 0)
            began = models.get(_key(draft.round - age))
            if began is None:
                raise RunError(
                    f"aggregation 'mix': device '{device}' began {age} rounds ago, and only {self.history} models are"
                    " kept; raise algorithm.history, or lower rounds.staleness"
                )
            share = real(self.alpha * (1 + age) ** -self.power)
            x = x + share * (began + update.delta - x)
        return replace(draft, step=np.asarray(x - draft.params)), self._newest(models, draft.round)

    def _newest(self, models: State, round: int) -> State:
        """Those that an answer to the next round may have begun from."""
        return {_key(at): models[_key(at)] for at in range(round + 1 - self.history, round + 1) if _key(at) in models}


def _key(round: int) -> str:
    return f"model.{round}"
