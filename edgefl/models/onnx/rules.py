"""The register of translations: which rule writes which torch operator in ONNX.

A rule gets the graph and the operator's own arguments; tensors come as `Value`. It gives back the name of the
result, or a list of names where the operator has several results; `g.out` holds their fake tensors.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch

Rule: TypeAlias = Callable[..., Any]  # each rule has the signature of its torch operator
F = TypeVar("F", bound=Rule)
RULES: dict[torch._ops.OpOverload, Rule] = {}
aten = torch.ops.aten


def on(*operators: Any) -> Callable[[F], F]:
    """Register a rule for these operators; a packet stands for all its overloads."""

    def register(rule: F) -> F:
        for operator in operators:
            single = isinstance(operator, torch._ops.OpOverload)
            for overload in [operator] if single else [getattr(operator, n) for n in operator.overloads()]:
                RULES[overload] = rule
        return rule

    return register
