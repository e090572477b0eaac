"""A validation part, cut from training data: settings are chosen by it, so test data play no part.

It is drawn by seed from each device's part, or from the public data at the coordinator. What devices set aside to
test models on is left out of everything, too: where they judge, each sets something aside of what is left instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.held_back import aside_of, rows_set_aside

Place: TypeAlias = Literal["devices", "public"]


@dataclass(frozen=True, slots=True)
class Validation:
    """How much is cut, and from whose samples."""

    share: float
    place: Place = "devices"
    held_back: float | None = None  # the share that devices set aside to test models on, where they do


@dataclass(frozen=True, slots=True)
class ValidationSplit:
    """Rows of the training part: what is left at the coordinator and on each device, and what is judged by."""

    public: Array
    devices: tuple[Array, ...]
    validation: Array


def cut(
    public: Array, devices: Sequence[Array], names: Sequence[str], validation: Validation, seed: int
) -> ValidationSplit:
    """Cut the validation part out of these rows; no row is in two places."""
    parts = [_trained_on(rows, name, validation.held_back, seed) for rows, name in zip(devices, names, strict=True)]
    if validation.place == "public":
        if len(public) < 2:
            raise ConfigError(
                "evaluation.validation_from = 'public': the coordinator holds no public data to judge by; raise"
                " task.public, or leave the key out"
            )
        rest, judged = _divided(public, validation.share, seed, "public")
        return ValidationSplit(rest, tuple(parts), judged)
    both = [_divided(rows, validation.share, seed, name) for rows, name in zip(parts, names, strict=True)]
    judged = np.sort(np.concatenate([judged for _, judged in both]))
    if not len(judged):
        raise ConfigError(
            f"evaluation.validation = {validation.share}: no device has samples enough to set that share aside;"
            " raise it, or ask for fewer devices"
        )
    return ValidationSplit(public, tuple(rest for rest, _ in both), judged)


def _trained_on(rows: Array, name: str, held_back: float | None, seed: int) -> Array:
    """What a device trains on, without what it sets aside to test models on."""
    return rows if held_back is None else rows[rows_set_aside(len(rows), held_back, seed, name)[0]]


def _divided(rows: Array, share: float, seed: int, holder: str) -> tuple[Array, Array]:
    order, count = seeds.stream(seed, holder, "validation").permutation(len(rows)), aside_of(len(rows), share)
    return rows[np.sort(order[count:])], rows[np.sort(order[:count])]
