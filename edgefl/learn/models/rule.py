"""Plain descent as a rule: what a step does to the weights, so that a graph can do it too."""

from dataclasses import dataclass

TERMS = ("pull", "decay", "momentum")  # what a rule may have besides the gradient


@dataclass(frozen=True, slots=True)
class Rule:
    """w <- w - lr v, where v <- momentum v + g + weight_decay w + pull (w - anchor).

    v begins at zero with every walk; the anchor is where the walk began. Statistics follow none of it.
    """

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    pull: float = 0.0

    @property
    def terms(self) -> tuple[str, ...]:
        """Those it has."""
        sizes = {"pull": self.pull, "decay": self.weight_decay, "momentum": self.momentum}
        return tuple(term for term in TERMS if sizes[term])


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Which whole steps a graph takes: down which loss, and with which terms."""

    loss: str  # one of edgefl/learn/models/onnx/descent.py
    terms: tuple[str, ...] = ()
