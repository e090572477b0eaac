"""Sizes of traced tensors: plain numbers, or symbols that stand for the batch size.

To compare or convert a symbol would silently fix the batch size to that of the example. So only this file works with
symbols: it compares sizes as text, and never turns a symbol into a number.
"""

from collections.abc import Iterable
from typing import TypeAlias

import torch

Dim: TypeAlias = "int | torch.SymInt"


class UncoveredError(Exception):
    """An operator, or this use of it, has no translation."""


def is_symbolic(d: Dim) -> bool:
    return isinstance(d, torch.SymInt) and not d.node.expr.is_Integer


def is_batch(d: Dim) -> bool:
    """Whether it is the batch size itself."""
    return isinstance(d, torch.SymInt) and bool(d.node.expr.is_Symbol)


def static(d: Dim) -> int:
    """A size that does not depend on the batch."""
    if is_symbolic(d):
        raise UncoveredError(f"the size {d} must not depend on the batch size")
    return int(d)


def statics(dims: Iterable[Dim]) -> list[int]:
    return [static(d) for d in dims]


def same(a: Iterable[Dim], b: Iterable[Dim]) -> bool:
    return [str(i) for i in a] == [str(i) for i in b]


def multiple(d: Dim) -> int:
    """How many times the batch size this symbolic size is."""
    symbols = d.node.expr.free_symbols if isinstance(d, torch.SymInt) else ()
    factor = d.node.expr / next(iter(symbols)) if len(symbols) == 1 and isinstance(d, torch.SymInt) else None
    if factor is None or not factor.is_Integer:
        raise UncoveredError(f"the size {d} is not a multiple of the batch size")
    return int(factor)


def evaluated(d: Dim, batch: int) -> int:
    """The number that a symbolic size is for a batch of this size."""
    if not isinstance(d, torch.SymInt):
        return d
    expression = d.node.expr
    return int(expression.subs(dict.fromkeys(expression.free_symbols, batch)))


def axes(dims: "int | Iterable[int]", ndim: int) -> list[int]:
    """These axes counted from the front."""
    listed = [dims] if isinstance(dims, int) else list(dims)
    return [d % ndim for d in listed] if ndim else []


def spread(values: Iterable[Dim], n: int) -> list[int]:
    """One number for each of `n` spatial axes."""
    numbers = statics(values)
    return numbers * n if len(numbers) == 1 else numbers
