"""The register of translations: which rule writes which torch operator in ONNX.

A rule gets the graph and the operator's own arguments; tensors come as `Value`. It gives back the name of the
result, or a list of names where the operator has several results; `g.out` holds their fake tensors.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

import torch
from torch._ops import OpOverload

Rule: TypeAlias = Callable[..., Any]  # each rule has the signature of its torch operator
F = TypeVar("F", bound=Rule)
RULES: dict[OpOverload, Rule] = {}
aten = torch.ops.aten


def on(*operators: Any) -> Callable[[F], F]:
    """Register a rule for these operators: by object, or by name; a packet stands for all its overloads."""

    def register(rule: F) -> F:
        for given in operators:
            operator = attrgetter(given)(aten) if isinstance(given, str) else given
            single = isinstance(operator, OpOverload)
            for overload in [operator] if single else [getattr(operator, n) for n in operator.overloads()]:
                RULES[overload] = rule
        return rule

    return register
