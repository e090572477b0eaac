"""On which of the rows that it holds back this device evaluates models: on the same ones until ten are different.

The counts of two evaluations, between which one row was added, would give that row's label, or its target. So a device
evaluates on the rows it evaluated on before, until at least ten rows are different from each such set that it still
knows. That holds across runs and jobs, and a power cut: a set is on disk before models are evaluated on it.

No row is kept, only a salted hash of 8 bytes for each.

    rows held back, beside a set from before     evaluated on
    the same                                     the set
    1 to 9 different, and none of them gone      the set, which is still there
    1 to 9 different, and one of them gone       no row: the device sends no counts
    10 or more different from every set          all of them, the newest set from now on
"""

import logging
import secrets
from typing import Literal

import numpy as np

from device_agent.durable.row_hashes import SALT, row_hashes
from edgefl.base.errors import StoreError
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import FEWEST
from edgefl.system import store
from edgefl.system.disk import Disk

log = logging.getLogger(__name__)

NAME = "counted"
MOST = 32  # sets that are kept, the newest; at least one
MOST_BYTES = 8 << 20  # that they take


class CountedRows:
    """The sets on this device's disk. Only the reader of the device's data uses them."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._salt = b""
        self._kept: list[Array] | None = None  # the oldest first; None: not read yet

    def of(self, held_back: Dataset) -> Dataset:
        """Return those of the rows on which models are evaluated; none if that would tell single rows."""
        try:
            rows = self._chosen(held_back)
        except (StoreError, KeyError, TypeError, ValueError) as error:
            where = self._disk.where(NAME)
            log.warning(
                "this device evaluates no model: on which rows it did before cannot be read or written; restore %s, or"
                " delete it to begin anew (%s)",
                where,
                error,
            )
            rows = None
        if rows is None:
            return held_back.take(np.arange(0))
        return held_back if len(rows) == len(held_back) else held_back.take(rows)

    def _chosen(self, held_back: Dataset) -> Array | None:
        """Return the numbers of the rows; None for no row."""
        if len(held_back) < FEWEST:
            return None
        kept = self._read()
        now = row_hashes(held_back, self._salt)[:, 0]
        rows = decided(kept, now)
        if rows is None:
            log.info("evaluates no model: fewer than %d rows are different from before, and some are gone", FEWEST)
        elif isinstance(rows, str):
            self._write([*kept, np.sort(now)])
            return np.arange(len(now))
        elif len(rows) < len(now):
            log.info("evaluates models on %d of %d samples held back: on the same as before", len(rows), len(now))
        return rows

    def _read(self) -> list[Array]:
        if self._kept is None:
            raw = self._disk.read(NAME)
            if raw is None:
                self._salt, self._kept = secrets.token_bytes(SALT), []
            else:
                arrays, about = store.opened(raw, self._disk.where(NAME))
                self._salt, self._kept = bytes.fromhex(about["salt"]), [arrays[str(i)] for i in range(len(arrays))]
        return self._kept

    def _write(self, kept: list[Array]) -> None:
        kept = kept[-MOST:]
        while len(kept) > 1 and sum(one.nbytes for one in kept) > MOST_BYTES:
            kept = kept[1:]
        arrays = {str(i): one for i, one in enumerate(kept)}
        self._disk.write(NAME, store.sealed(arrays, {"salt": self._salt.hex()}))
        self._kept = kept


def decided(kept: list[Array], now: Array) -> Array | Literal["new"] | None:
    """Return the rows of a set that is still there; "new" where all of them are a new set, None for silence."""
    near = False
    for one in reversed(kept):
        rows = found(one, now)
        if len(one) + len(now) - 2 * len(rows) < FEWEST:
            if len(rows) == len(one):
                return rows
            near = True
    return None if near else "new"


def found(one: Array, now: Array) -> Array:
    """Return which of the rows with these hashes are in a set (sorted hashes); of equal rows as many as it has."""
    order = np.argsort(now, kind="stable")
    ordered = now[order]
    number = np.arange(len(now)) - np.searchsorted(ordered, ordered)  # of this row among those that are equal
    there = np.searchsorted(one, ordered, "right") - np.searchsorted(one, ordered)
    return np.sort(order[number < there])
