"""Unknown arguments: refused in one line, with the one that is meant or the place where it is said."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from edgefl.base.errors import ConfigError, nearest
from edgefl.lab.api.description import Setup

P = ParamSpec("P")
R = TypeVar("R")

ALGORITHM = "it belongs to the algorithm: algorithm='fedavg:{}'"
# Names that users of torch or another framework look for, and the name here.
ELSEWHERE = {
    **dict.fromkeys(("lr", "learning_rate"), ALGORITHM.format("lr=0.1")),
    **dict.fromkeys(("epochs", "local_epochs"), ALGORITHM.format("epochs=5")),
    **dict.fromkeys(("batch", "batch_size"), ALGORITHM.format("batch=32")),
    **dict.fromkeys(("momentum", "weight_decay", "mu"), "it belongs to the algorithm: algorithm='fedprox:mu=0.1'"),
    **dict.fromkeys(("optimiser", "optimizer"), ALGORITHM.format("optimiser=adam:lr=0.01")),
    **dict.fromkeys(("clients", "devices", "num_clients"), "say fleet=10, or clients as data={name: (x, y)}"),
    **dict.fromkeys(("cohort", "split"), "it belongs to the fleet: fleet=edgefl.Fleet(devices=10, cohort=5)"),
    "selection": "say settings={'selection.name': 'oort'}",
    "strategy": "say algorithm='fedavg'",
    **dict.fromkeys(("dataset", "train"), "say data=..."),
    **dict.fromkeys(("criterion", "loss_fn"), "say loss=..."),
    **dict.fromkeys(("patience", "budget", "device", "codec"), "say settings={'evaluation.patience': 5, ...}"),
}


def explained(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses an argument that it does not know as a ConfigError that helps."""
    parameters = signature(function).parameters
    known = [name for name, one in parameters.items() if one.kind is not Parameter.VAR_KEYWORD and name != "self"]
    if len(known) < len(parameters) - ("self" in parameters):
        known += Setup.__annotations__

    @wraps(function)
    def checked(*args: P.args, **given: P.kwargs) -> R:
        check_known(_name(function), given, known)
        return function(*args, **given)

    return checked


def check_known(name: str, given: Any, known: Sequence[str]) -> None:  # Any: the arguments, whatever they are
    """Refuse the first of these arguments that is not among the known ones."""
    for word in given:
        if word not in known:
            how = ELSEWHERE.get(word) if word in ELSEWHERE else nearest(word, known)
            raise ConfigError(f"{name} has no argument '{word}'; {how}")


def _name(function: Callable[..., Any]) -> str:
    return f"edgefl.{function.__qualname__.removesuffix('.__init__')}"
