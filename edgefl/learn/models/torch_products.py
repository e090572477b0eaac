"""Inner products of long vectors on a GPU: what SGC and GradMA's memory spend their time on.

The same sums as `learn/products.py` makes with numpy, in float64 and block by block; only their order differs, and
with it the last digits. The vectors stay where they are, and blocks of them travel.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from edgefl.base.vector import Array, Vector
from edgefl.learn.products import Products, Rows

NUMBERS = 8_000_000  # of a block, all rows together: 64 MB on the device


def products(device: str) -> Products:
    """Both functions, on this device."""
    return Products(partial(inner, device), partial(recover, device))


def inner(device: str, rows: Rows, lead: int | None = None) -> Array:
    """Inner products of the first `lead` rows (all, if not said) with all rows."""
    lead = len(rows) if lead is None else lead
    total = torch.zeros((lead, len(rows)), dtype=torch.float64, device=device)
    for block in _blocks(device, rows):
        total = total + block.narrow(0, 0, lead) @ block.T
    return np.asarray(total.cpu().numpy())


def recover(device: str, p: Vector, rows: Rows, multipliers: Array) -> Vector:
    """The sum p + rows' multipliers in the type of `p`; p itself if no row pushes."""
    active = np.flatnonzero(multipliers).tolist()
    if not active:
        return p
    factors = torch.tensor([1.0, *multipliers[active].tolist()], dtype=torch.float64, device=device)
    blocks = _blocks(device, [p, *(rows[i] for i in active)])
    return np.concatenate([(factors @ block).cpu().numpy().astype(p.dtype) for block in blocks])


def _blocks(device: str, rows: Rows) -> Iterator[Tensor]:
    """The rows as float64 on the device, some columns at a time."""
    width = max(1, NUMBERS // len(rows))
    for start in range(0, len(rows[0]), width):
        columns = np.stack([np.asarray(row[start : start + width]) for row in rows])
        yield torch.tensor(columns, dtype=torch.float64, device=device)
