"""What a gateway was asked, and all that goes on to its site: models and graphs as they came, signature and all."""

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
    previous: Item | None  # the one before it, for algorithms that look back
    graphs: Item | None
    state: State  # what was kept: what a lossy codec left out of the last answer
    most: int  # bytes that a model may have when it is opened
    seal: Seal | None = None  # for whom the answer is
