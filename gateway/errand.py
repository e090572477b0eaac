"""The task of a gateway, and what it passes on to its site: models and graphs unchanged, with their signatures."""

from dataclasses import dataclass

from device_agent.decide.vocabulary import Tasked
from device_agent.shell.order import Item
from device_agent.shell.training import Seal
from edgefl.base.vector import State


@dataclass(frozen=True, slots=True)
class Errand:
    """One task of the coordinator; `number` is that of the agent's training."""

    number: int
    task: Tasked
    item: Item  # its model
    previous: Item | None  # the model of the round before, for algorithms that use it
    graphs: Item | None
    state: State  # kept between rounds: the residual of a lossy codec
    most: int  # bytes that a model may have when it is opened
    seal: Seal | None = None  # the coordinator's key that the answer is sealed for
