"""Of which rows this device tells sums: evaluates models, counts labels, and measures a loss. It is of the same rows
until ten are different.

The counts of two evaluations, between which one row was added, would give that row's label, or its target. So a device
evaluates on the rows it evaluated on before, until at least ten rows are different from each such set that it still
knows. The same holds for its training data, of which runs may ask for label counts and for a loss: there is a file for
each of the two. That holds across runs and jobs, and a power cut: a set is on disk before models are evaluated on it.

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
from edgefl.learn.data.description import FEWEST, LeftOut
from edgefl.system import store
from edgefl.system.disk import Disk

log = logging.getLogger(__name__)

NAME, SUMMED = "counted", "summed"  # files: of rows that are held back, and of those that are trained on
SILENT = {NAME: "evaluates no model", SUMMED: "tells no label counts and no loss"}
SPEAKS = {NAME: "evaluates models by means", SUMMED: "tells label counts and losses"}
MOST = 32  # sets that are kept, the newest; at least one
MOST_BYTES = 8 << 20  # that they take


class CountedRows:
    """The sets on this device's disk. Only the reader of the device's data uses them."""

    def __init__(self, disk: Disk, name: str = NAME) -> None:
        self._disk, self._name = disk, name
        self._salt = b""
        self._kept: list[Array] | None = None  # the oldest first; None: not read yet

    def of(self, held_back: Dataset) -> Dataset:
        """Return those of the rows on which models are evaluated; none if that would tell single rows."""
        rows = self._rows(held_back)
        if rows is None:
            return held_back.take(np.arange(0))
        return held_back if len(rows) == len(held_back) else held_back.take(rows)

    def left_out(self, data: Dataset) -> LeftOut:
        """Return the numbers of the rows that no sum may be over; None if there may be no sum at all."""
        rows = self._rows(data)
        if rows is None:
            return None
        return tuple(np.delete(np.arange(len(data)), rows).tolist())  # np.setdiff1d would load masked arrays: 2 MB

    def _rows(self, data: Dataset) -> Array | None:
        try:
            return self._chosen(data)
        except (StoreError, KeyError, TypeError, ValueError) as error:
            where = self._disk.where(self._name)
            log.warning(
                "this device %s: of which rows it did before cannot be read or written; restore %s, or delete it to"
                " begin anew (%s)",
                SILENT[self._name],
                where,
                error,
            )
            return None

    def _chosen(self, data: Dataset) -> Array | None:
        """Return the numbers of the rows; None for no row."""
        if len(data) < FEWEST:
            return None
        kept = self._read()
        now = row_hashes(data, self._salt)[:, 0]
        rows = decided(kept, now)
        if rows is None:
            silent = SILENT[self._name]
            log.info("%s: fewer than %d rows are different from before, and some are gone", silent, FEWEST)
        elif isinstance(rows, str):
            self._write([*kept, np.sort(now)])
            return np.arange(len(now))
        elif len(rows) < len(now):
            log.info("%s of %d of %d samples: of the same as before", SPEAKS[self._name], len(rows), len(now))
        return rows

    def _read(self) -> list[Array]:
        if self._kept is None:
            raw = self._disk.read(self._name)
            if raw is None:
                self._salt, self._kept = secrets.token_bytes(SALT), []
            else:
                arrays, about = store.opened(raw, self._disk.where(self._name))
                self._salt, self._kept = bytes.fromhex(about["salt"]), [arrays[str(i)] for i in range(len(arrays))]
        return self._kept

    def _write(self, kept: list[Array]) -> None:
        kept = kept[-MOST:]
        while len(kept) > 1 and sum(one.nbytes for one in kept) > MOST_BYTES:
            kept = kept[1:]
        arrays = {str(i): one for i, one in enumerate(kept)}
        self._disk.write(self._name, store.sealed(arrays, {"salt": self._salt.hex()}))
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
