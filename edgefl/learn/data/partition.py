"""Dividing samples among devices: who holds what.

Every function gives back one array of row numbers for each device; together they hold every row exactly once.
They are pure: the same labels and the same stream give the same division in every process.
"""

import heapq
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array


def part_names(count: int) -> tuple[str, ...]:
    """Return what the devices of a divided data set are called, everywhere: their names are seeds."""
    return tuple(f"device-{i:0{max(2, len(str(count - 1)))}d}" for i in range(count))


def iid(n: int, devices: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Divide the samples at random; the sizes of the parts differ by at most one."""
    _enough(n, devices, 1)
    return tuple(np.sort(rows) for rows in np.array_split(rng.permutation(n), devices))


def dirichlet(y: Array, devices: int, omega: float, rng: np.random.Generator, minimum: int = 2) -> tuple[Array, ...]:
    """Each class is shared out by its own draw from Dirichlet(omega): the smaller omega, the more one-sided.

    GradMA's variant: every device first gets `minimum` samples at random, so no draw has to be repeated.
    """
    _enough(len(y), devices, minimum)
    order = rng.permutation(len(y))
    held = [[rows] for rows in np.split(order[: devices * minimum], devices)]
    rest = order[devices * minimum :]
    for c in np.unique(y):
        _deal(rest[y[rest] == c], rng.dirichlet(np.full(devices, omega)), held)
    return _joined(held)


def by_class(y: Array, devices: int, per_device: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Each device holds exactly `per_device` classes, each class being cut into shards of about equal size."""
    classes, sizes = np.unique(y, return_counts=True)
    if not per_device <= len(classes) <= devices * per_device:
        raise ConfigError(
            f"partition: {devices} devices with per_device = {per_device} classes each cannot hold exactly "
            f"{len(classes)} classes; change devices or per_device"
        )
    shards = apportion(sizes, devices * per_device, np.minimum(sizes, devices))
    cut = [np.array_split(rng.permutation(np.flatnonzero(y == c)), k) for c, k in zip(classes, shards, strict=True)]
    held: list[list[Array]] = []
    for _ in range(devices):
        left = np.array([len(pile) for pile in cut])
        # Those with most shards left go first: no class is left over with fewer devices than shards.
        most = np.lexsort((rng.random(len(left)), -left))[:per_device]
        held.append([cut[c].pop() for c in most])
    return _joined(held)


def natural(groups: Array, devices: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Each device holds whole groups, in their order if there is one for each, else spread to even out the sizes."""
    owners, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if devices > len(owners):
        raise ConfigError(f"partition: {devices} devices but only {len(owners)} natural owners; ask for fewer devices")
    order = rng.permutation(len(owners))
    loads = [(0, device) for device in range(devices)]
    holder = np.empty(len(owners), np.int64)
    for group in order[np.argsort(-sizes[order], kind="stable")]:  # the largest first, to the least loaded
        load, device = heapq.heappop(loads)
        holder[group] = device
        heapq.heappush(loads, (load + int(sizes[group]), device))
    held = [np.flatnonzero(holder[number.reshape(-1)] == device) for device in dict.fromkeys(holder.tolist())]
    return tuple(held)


def power_law(
    y: Array, devices: int, rng: np.random.Generator, *, per_device: int = 2, sigma: float = 2.0, minimum: int = 5
) -> tuple[Array, ...]:
    """A few neighbouring classes for each device and sizes with a long tail, after FedProx.

    Device u holds classes u, u + 1, ... (`per_device` of them, modulo their number): `minimum` samples of each,
    as far as they reach, and a share of the rest that is lognormal(0, sigma).
    """
    classes = np.unique(y)
    per_device = min(per_device, len(classes))
    if devices + per_device - 1 < len(classes):
        raise ConfigError(
            f"partition: {devices} devices with per_device = {per_device} cannot hold {len(classes)} classes; "
            f"ask for at least {len(classes) - per_device + 1} devices"
        )
    held: list[list[Array]] = [[] for _ in range(devices)]
    for i, c in enumerate(classes):
        holders = [held[u] for u in range(devices) if (i - u) % len(classes) < per_device]
        rows = rng.permutation(np.flatnonzero(y == c))
        each = min(minimum, len(rows) // len(holders))
        for u, holder in enumerate(holders):
            holder.append(rows[u * each : (u + 1) * each])
        weights = rng.lognormal(0, sigma, len(holders))
        _deal(rows[len(holders) * each :], weights / weights.sum(), holders)
    return _joined(held)


def apportion(sizes: Array, total: int, most: Array) -> Array:
    """`total` seats for parties of these sizes: one each while they last, then in proportion, never above `most`.

    The next seat goes where one seat stands for most (Adams's method), which keeps the largest shard small.
    """
    if most.sum() < total:
        raise ConfigError(f"partition: {sizes.sum()} samples are too few for {total} shares; ask for fewer devices")
    sure = max(0, total - len(sizes)) * sizes // max(1, int(sizes.sum()))  # no device ends below this
    seats: Array = np.minimum(sure, most).astype(np.int64)
    for _ in range(total - int(seats.sum())):
        claim = np.where(seats == 0, np.inf, sizes / np.maximum(seats, 1))
        claim[seats >= most] = -1
        best = np.flatnonzero(claim == claim.max())
        seats[best[np.argmax(sizes[best])]] += 1
    return seats


def _deal(rows: Array, shares: Array, held: list[list[Array]]) -> None:
    """Cut these rows by the shares and append one piece to each holding."""
    ends = np.floor(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
    for holding, piece in zip(held, np.split(rows, np.minimum(ends, len(rows))), strict=True):
        holding.append(piece)


def _joined(held: list[list[Array]]) -> tuple[Array, ...]:
    return tuple(np.sort(np.concatenate([np.zeros(0, np.int64), *pieces])) for pieces in held)


def _enough(n: int, devices: int, minimum: int) -> None:
    if n < devices * minimum:
        raise ConfigError(
            f"partition: {n} samples cannot give {devices} devices at least {minimum} each; ask for fewer devices"
        )


OPTIONS: dict[str, dict[str, Any]] = {  # what a kind can be told, and its default; Any: as TOML has it
    "dirichlet": {"omega": 0.5},
    "classes": {"per_device": 2},
    "power_law": {"per_device": 2},
}


class Partition(BaseModel):
    """The run file's word on who holds what, e.g. `{ kind = "dirichlet", omega = 0.1, devices = 20 }`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)  # when first read

    # By chance, one-sided by chance, some classes each, by the data's own groups (as persons), or in unequal sizes.
    kind: Literal["iid", "dirichlet", "classes", "natural", "power_law"] = "iid"
    devices: Annotated[int, Field(ge=1)] = 10  # how many parts
    omega: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # dirichlet: small is one-sided
    per_device: Annotated[int, Field(ge=1)] | None = None  # classes, power_law: classes that each device has

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:  # Any: not yet validated
        return OPTIONS.get(str(given.get("kind")), {}) | given if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _meant(self) -> "Partition":
        for option in ("omega", "per_device"):
            value, known = getattr(self, option), option in OPTIONS.get(self.kind, {})
            if known and value is None:
                raise ValueError(f"kind '{self.kind}' needs {option}")
            if value is not None and not known:
                raise ValueError(f"{option} = {value} means nothing to kind '{self.kind}'; leave it out")
        return self

    def split(self, y: Array, groups: Array | None, rng: np.random.Generator) -> tuple[Array, ...]:
        """The rows of each device, given the label and the natural owner of every row."""
        if self.kind == "iid":
            return iid(len(y), self.devices, rng)
        if self.kind == "natural":
            if groups is None:
                raise ConfigError("partition: kind 'natural' needs data with owners; this data set has none, use 'iid'")
            return natural(groups, self.devices, rng)
        if y.dtype.kind not in "iu":
            raise ConfigError(f"partition: kind '{self.kind}' needs class labels; these are real numbers, use 'iid'")
        if self.kind == "dirichlet":
            return dirichlet(y, self.devices, self.omega or 0.5, rng)
        if self.kind == "classes":
            return by_class(y, self.devices, self.per_device or 2, rng)
        return power_law(y, self.devices, rng, per_device=self.per_device or 2)
