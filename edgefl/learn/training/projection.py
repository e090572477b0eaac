"""The nearest vector that agrees with given ones: min 1/2 ||x - p||^2 subject to rows @ x >= margin.

It is solved in the dual, min 1/2 z'Gz - q'z over z >= 0 with G = rows rows' and q = margin - rows @ p, which has one
variable per row whatever the size of the model; then x = p + rows' z. Four solvers, one answer:

    up to 4 rows   every active set is tried: exact, and a device needs no solver
    no margin > 0  x = 0 will do, so there always is an answer: non-negative least squares with a ridge, which finds one
                   however dependent the rows are
    margins > 0    quadprog, where it is installed, finds the active set, which is then solved exactly
    otherwise      least-distance programming by non-negative least squares, in numpy; it also judges what
                   quadprog, whose ridge hides infeasibility, left open

Every answer is checked against the conditions of optimality. Where none passes, no x meets the margins:
`feasible` is False and x is p. Multipliers are unique only if the active rows are independent; x always is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations
from math import sqrt
from typing import Any, Literal, TypeAlias

import numpy as np

from edgefl.base.vector import Array, Layout, Vector
from edgefl.learn.products import Rows, inner, recover

Granularity: TypeAlias = Literal["model", "tensor"]

ENUMERATED = 4  # as many rows, at most, are solved by trying all active sets
NEGLIGIBLE = 1e-12  # of the longest row, or of the largest eigenvalue: nothing but rounding
EXACT = 1e-11  # an answer this close to optimal needs no second opinion
MET = 1e-12  # of p, or of the largest margin or product: a margin missed by so little is met but for rounding
ACCEPTED = 1e-6  # the primal check at its most generous, relative to the largest margin or product, or to p
RIDGE = 1e-13  # on rows of length one: what it costs is in `always_solved`


@dataclass(frozen=True, slots=True)
class Projection:
    """The projected vector, one multiplier per row, and whether the margins can be met at all."""

    x: Vector
    multipliers: Array
    feasible: bool


@dataclass(frozen=True, slots=True)
class Dual:
    """One multiplier per row, all zero where the margins cannot be met."""

    multipliers: Array
    feasible: bool


def project(p: Vector, rows: Rows, margin: float | Array = 0.0) -> Projection:
    """The nearest x to `p` with rows @ x >= margin (one number, or one per row); p itself if p will do."""
    k = len(rows)
    table = inner([*rows, p])
    dual = solve_dual(table[:k, :k], table[:k, k], margin, sqrt(table[k, k]))
    return Projection(recover(p, rows, dual.multipliers), dual.multipliers, dual.feasible)


def parts(layout: Layout, granularity: Granularity) -> tuple[slice, ...]:
    """What is projected on its own: the model as one, or each tensor; never the statistics at the end."""
    if granularity == "model":
        return (slice(0, layout.trainable),)
    return layout.slices[: len(layout.names) - layout.buffers]


def solve_dual(gram: Array, products: Array, margin: float | Array = 0.0, length: float = 0.0) -> Dual:
    """The multipliers, from the Gram matrix of the rows and their products with p.

    `length` is the norm of p, if known: products below its rounding errors count as zero.
    """
    nothing = np.zeros(len(gram))
    b = np.broadcast_to(np.asarray(margin, np.float64), nothing.shape)
    norms = np.sqrt(np.diagonal(gram))
    if not (np.isfinite(gram).all() and np.isfinite(products).all() and np.isfinite(b).all()):
        return Dual(nothing, feasible=False)
    keep = np.flatnonzero((norms > NEGLIGIBLE * norms.max(initial=0.0)) & (norms > 0))
    if (np.delete(b, keep) > 0).any():  # a row of zeros can have no positive product
        return Dual(nothing, feasible=False)
    norms = norms[keep]  # rows of length one from here on
    q, reached = (b - products)[keep] / norms, np.abs(products[keep]) / norms
    scale = max(np.abs(b[keep] / norms).max(initial=0.0), reached.max(initial=0.0))
    if q.max(initial=0.0) <= MET * max(length, scale):
        return Dual(nothing, feasible=True)
    unit, always = gram[np.ix_(keep, keep)] / np.outer(norms, norms), bool(b.max() <= 0)
    z, error = _solve((unit + unit.T) / 2, q / scale, always=always)
    # With no margin above zero x = 0 will do, so an error can only be rounding; otherwise it may be a contradiction.
    rounding = ACCEPTED * max(1.0, length / scale) if always else min(ACCEPTED, 1e-12 * max(1.0, z.max()))
    if error > rounding + 1e-14 * length / scale:
        return Dual(nothing, feasible=False)
    nothing[keep] = z * scale / norms
    return Dual(nothing, feasible=True)


def _solve(gram: Array, q: Array, *, always: bool) -> tuple[Array, float]:
    """The best multipliers found, and how far they are from optimal (infinite: there are none)."""
    best, least = np.zeros(len(q)), np.inf
    for z in _candidates(gram, q, always=always):
        gap = q - gram @ z  # above zero: the row's margin is missed; below: met with room to spare
        slack = np.where(z > 0, np.abs(gap), gap).max()  # who pushes must have no room to spare
        error = max(slack, -z.min() / max(1.0, z.max()))
        if error < least:
            best, least = np.maximum(z, 0), error
        if error <= EXACT:
            break
    return best, float(least)


def _candidates(gram: Array, q: Array, *, always: bool) -> Iterator[Array]:
    """Multipliers worth checking, the likeliest first, each computed only if asked for."""
    k = len(q)
    if k <= ENUMERATED:
        for size in range(1, k + 1):
            for active in combinations(range(k), size):
                yield _exact(gram, q, np.array(active))
    if always:
        z = always_solved(gram, q)
        yield _exact(gram, q, np.flatnonzero(z > 1e-9 * z.max()))
        yield z
    if always or k <= ENUMERATED:
        return
    if solve_qp := _quadprog():
        ridge = 1e-10 * np.eye(k)  # relative, for the rows have length one
        z = solve_qp(gram + ridge, q, np.eye(k), np.zeros(k))[0]
        yield _exact(gram, q, np.flatnonzero(z > 1e-9 * z.max()))
    nearest = least_distance(gram, q)
    if nearest is not None:
        yield _exact(gram, q, np.flatnonzero(nearest > 1e-9 * nearest.max()))
        yield nearest


def _exact(gram: Array, q: Array, active: Array) -> Array:
    """The multipliers that meet the margins of these rows exactly, or nearly if they contradict each other."""
    z = np.zeros(len(q))
    z[active] = np.linalg.lstsq(gram[np.ix_(active, active)], q[active], rcond=NEGLIGIBLE)[0]
    return z


def always_solved(gram: Array, q: Array) -> Array:
    """The multipliers where x = 0 meets all margins: the z >= 0 with the least 1/2 z'(G + ridge)z - q'z.

    The ridge makes the problem strictly convex, so there is one answer even where rows depend on each other. It misses
    no margin of a row of length one by more than sqrt(ridge) ||p||: optimality gives q - Gz <= ridge z; and the least
    value is not above that of z = 0, so ridge ||z||^2 / 2 <= q'z - z'Gz / 2 <= (||p||^2 - ||p + rows'z||^2) / 2.
    """
    values, vectors = np.linalg.eigh(gram)
    roots = np.sqrt(np.maximum(values, 0) + RIDGE)
    return nnls(roots[:, None] * vectors.T, vectors.T @ q / roots)


def least_distance(gram: Array, q: Array) -> Array | None:
    """The multipliers by least-distance programming (Lawson and Hanson); None: no x meets the margins.

    `gram` belongs to rows of length one, and the largest of |q| is about one.
    """
    values, vectors = np.linalg.eigh(gram)
    values[values < NEGLIGIBLE * values[-1]] = 0  # without this, rounding makes contradictions look satisfiable
    e = np.vstack([np.sqrt(values)[:, None] * vectors.T, q])
    f = np.zeros(len(e))
    f[-1] = 1
    u = nnls(e, f)
    r = e @ u - f
    left = -r[-1]  # in theory ||r||^2, which is 1 / (1 + distance^2)
    return None if left <= 1e-14 else np.asarray(u / left)


def nnls(e: Array, f: Array) -> Array:
    """Return the u >= 0 with the least ||e u - f||, by Lawson and Hanson's active sets.

    `scipy.optimize.nnls` does the same and is not used: devices come here too, with three or four rows that nearly
    depend on each other, and have no scipy; and its answers differ in the last bits, so drivers would disagree.
    """
    n = e.shape[1]
    u, inside, barred = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool)
    resting = 0
    for _ in range(10 * n):  # far more than it takes; what is not optimal by then fails its check
        pull = np.where(inside | barred, -np.inf, e.T @ (f - e @ u))
        j = int(pull.argmax())
        if pull[j] <= 1e-14:
            break
        before = u.copy(), inside.copy()
        inside[j] = True
        while inside.any():
            s = np.zeros(n)
            s[inside] = np.linalg.lstsq(e[:, inside], f, rcond=None)[0]
            blocked = inside & (s <= 0)
            if not blocked.any():
                break
            rows = np.flatnonzero(blocked)
            shares = u[rows] / np.maximum(u[rows] - s[rows], 1e-300)  # 0 / 0 is no step at all
            u += shares.min() * (s - u)
            inside[rows[shares <= shares.min()]] = False  # by name, not by value: the loop must end
            u[~inside] = 0
        else:
            s = u
        u = s
        barred[:] = False
        barred[j] = not inside[j]  # rounding let it in and threw it out again: another must move first
        resting = resting + 1 if (u == before[0]).all() and (inside == before[1]).all() else 0
        if resting == 2:
            break  # the two that pull most would take turns for ever
    return u


@cache
def _quadprog() -> Callable[..., Any] | None:
    """The solver of quadprog (Any: it has no types), imported at first use: a device never comes here."""
    return import_module("quadprog").solve_qp if find_spec("quadprog") else None
