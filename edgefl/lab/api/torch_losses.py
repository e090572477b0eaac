"""Losses of torch, as the losses of ours that compute the same: a function of torch.nn.functional, or its module.

Devices have no torch, and a loss here gives its gradient too: what has no equal of ours is refused, with what to give
instead. Importable without torch: who hands over something of torch has imported it.
"""

import sys
from collections.abc import Mapping
from functools import partial
from inspect import isclass
from typing import Any

from edgefl.base.errors import ConfigError
from edgefl.learn.models.user_networks import is_module

SAME = {
    "cross_entropy": "cross_entropy",
    "CrossEntropyLoss": "cross_entropy",
    "mse_loss": "mean_squared_error",
    "MSELoss": "mean_squared_error",
    "binary_cross_entropy_with_logits": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy",
}
# What torch assumes, and we do: another value is another loss.
PLAIN = {
    "weight": None,
    "pos_weight": None,
    "reduction": "mean",
    "label_smoothing": 0.0,
    "ignore_index": -100,  # a sample without a label has one below 0 here
    "size_average": None,
    "reduce": None,
}
INSTEAD = {
    "weight": "classes are weighed by settings={'task.class_weights': ...}",
    "nll_loss": "leave the LogSoftmax out of the model and give cross_entropy",
    "NLLLoss": "leave the LogSoftmax out of the model and give CrossEntropyLoss",
    "binary_cross_entropy": "leave the Sigmoid out of the model and give binary_cross_entropy_with_logits",
    "BCELoss": "leave the Sigmoid out of the model and give BCEWithLogitsLoss",
}
OWN = "give a name, or a function of outputs and labels (numpy) that returns the batch mean and its gradient"


def torch_loss(loss: Any) -> str | None:
    """The name of ours that this loss of torch goes by; None if it is not torch's (Any: from outside)."""
    options: Mapping[str, Any] = {}
    if isinstance(loss, partial) and not loss.args:
        loss, options = loss.func, loss.keywords
    if isclass(loss) and loss.__module__ == "torch.nn.modules.loss":
        loss, options = loss(**options), {}
    if is_module(loss):
        name, options = type(loss).__name__, {key: getattr(loss, key) for key in PLAIN if hasattr(loss, key)}
        theirs = type(loss).__module__ == "torch.nn.modules.loss"
    elif (word := _function(loss)) is not None:
        name, theirs = word, True
    else:
        return None
    if not theirs or name not in SAME:
        raise ConfigError(f"loss = {name}: {INSTEAD.get(name, f'of torch only {_offered()} are known; {OWN}')}")
    for key, value in options.items():
        if key not in PLAIN or (value is not PLAIN[key] and value != PLAIN[key]):
            instead = INSTEAD.get(key, f"leave it out, or {OWN}")
            raise ConfigError(f"loss = {name}({key}=...) has no equal here; {instead}")
    return SAME[name]


def _function(loss: Any) -> str | None:
    """What torch.nn.functional calls it, if it is from there (Any: as above)."""
    word = str(getattr(loss, "__name__", ""))
    return word if word and vars(sys.modules.get("torch.nn.functional", object)).get(word) is loss else None


def _offered() -> str:
    return ", ".join(name for name in SAME if name.islower())
