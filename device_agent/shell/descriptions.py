"""What this device has said of its data (`task.normalise`, `task.class_weights`): it says the same again.

The sums of two runs, between which one row was added, would give that row. So a device describes its data anew only
where at least ten rows are different from those of every description that it still knows; else it says the nearest of
them once more, word for word. That holds across runs and jobs, and a power cut: a description is on disk before it is
said.

No row is kept, only a sketch of all: each row is hashed with a salt of this device's own, and the hashes are added up
in 1,024 places. A row that was added or removed changes one place, whatever else is there, so at least as many rows
are different as places are. The sketch is 8 kB, however many rows there are.

    rows changed since     the same classes described before     other classes
    none                   say it again                          describe them too
    1 to 9                 say it again                          say nothing
    10 or more             describe them anew                    describe them anew
"""

import json
import logging
import secrets
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from device_agent.durable.row_hashes import SALT, row_hashes
from device_agent.shell.order import Cancellation, Train, TrainingOrder, Watch
from device_agent.shell.samples import Samples
from device_agent.shell.workers import fitted
from edgefl.base.errors import StoreError
from edgefl.base.vector import Array, State
from edgefl.job.run.work import WorkResult
from edgefl.learn.data import description
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import FEWEST
from edgefl.learn.data.held_back import rows_set_aside
from edgefl.system import blas, store
from edgefl.system.disk import Disk

log = logging.getLogger(__name__)

NAME = "descriptions"
PLACES = 1024  # of a sketch
MOST = 32  # descriptions that are kept, the newest; at least one
MOST_BYTES = 8 << 20  # that they take
MOST_KINDS = 8  # lists of classes of one description
FEATURES = ("samples", "mean", "squares")


@dataclass(frozen=True, slots=True)
class DataDescription:
    """What was said of some rows; `classes` by what the run called them."""

    sketch: Array  # uint64
    features: State  # samples, mean and squares
    classes: dict[str, Array] = field(default_factory=dict)

    def told(self, kind: str) -> State:
        """Return everything that was said where classes were called so."""
        counts = self.classes[kind]
        n = np.array([int(counts.sum())], np.int64) if len(counts) else self.features["samples"]
        return {**self.features, "samples": n, "classes": counts}

    @property
    def size(self) -> int:
        return sum(array.nbytes for array in (self.sketch, *self.features.values(), *self.classes.values()))


class Descriptions:
    """The descriptions on this device's disk. Only the background uses them, one task at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._salt = b""
        self._kept: list[DataDescription] | None = None  # None: not read yet

    def of(self, data: Dataset, rows: Dataset) -> State:
        """Return what the device says of `data`, kept on disk first; `rows` are all that it holds, unfitted."""
        if len(data) < FEWEST:
            return _silence(data)
        kept, kind = self._read(), _kind(data)
        if kept is None:
            return _silence(data)
        sketch = sketched(rows, self._salt)
        chosen = decided(kept, sketch, kind)
        if isinstance(chosen, DataDescription) and kind in chosen.classes:
            log.info("described the data as before")
            return chosen.told(kind)
        if chosen is None:
            log.info("does not describe the data: fewer than %d rows are different from those described before", FEWEST)
            return _silence(data)
        with blas.one_thread():
            told = description.describe(data, features=True, classes=bool(data.classes))
        if isinstance(chosen, DataDescription):
            fresh = replace(chosen, classes={**chosen.classes, kind: told["classes"]})
            kept = [fresh if one is chosen else one for one in kept]
        else:
            fresh = DataDescription(sketch, {key: told[key] for key in FEATURES}, {kind: told["classes"]})
            kept = _newest([*kept, fresh])
        self._write(kept)
        return fresh.told(kind)

    def _read(self) -> list[DataDescription] | None:
        """Return what is known; None if it cannot be read, and then nothing can be said any more."""
        if self._kept is not None:
            return self._kept
        try:
            raw = self._disk.read(NAME)
            if raw is None:
                self._salt, self._kept = secrets.token_bytes(SALT), []
            else:
                arrays, about = store.opened(raw, self._disk.where(NAME))
                self._salt, self._kept = bytes.fromhex(about["salt"]), _unpacked(arrays, about["kinds"])
        except (StoreError, KeyError, TypeError, ValueError) as error:
            log.warning(
                "this device does not describe its data: what it said before cannot be read; restore %s, or delete it"
                " to begin anew (%s)",
                self._disk.where(NAME),
                error,
            )
        return self._kept

    def _write(self, kept: list[DataDescription]) -> None:
        arrays: State = {}
        for i, one in enumerate(kept):
            arrays[f"{i}/sketch"] = one.sketch
            arrays |= {f"{i}/{key}": array for key, array in one.features.items()}
            arrays |= {f"{i}/classes/{j}": counts for j, counts in enumerate(one.classes.values())}
        about = {"salt": self._salt.hex(), "kinds": [list(one.classes) for one in kept]}
        self._disk.write(NAME, store.sealed(arrays, about))
        self._kept = kept


@dataclass(frozen=True, slots=True)
class Describing:
    """Has the task of describing the data done, with what the device said before where that still holds."""

    train: Train
    descriptions: Descriptions
    samples: Samples
    device: str

    def __call__(self, order: TrainingOrder, watch: Watch, cancelled: Cancellation) -> WorkResult:
        """Return the work that was ordered."""
        if self.samples.describes:
            order = replace(order, state=self.descriptions.of(*self._described(order)))
        return self.train(order, watch, cancelled)

    def _described(self, order: TrainingOrder) -> tuple[Dataset, Dataset]:
        """Return the samples that are described, and the rows that tell whether they are others than before.

        These are all that the device holds, since which of them are held back may change with one more. Only of a
        trial, whose data are public, it is the share that this run trains on.
        """
        manifest, share = order.item.manifest, order.task.held_back
        data = self.samples.current(lambda data: fitted(self.device, data, manifest))
        rows, held_back = self.samples.data, self.samples.held_back
        if held_back is not None:
            return data, joined(rows, held_back)
        if share is not None:
            kept = rows_set_aside(len(data), share, manifest.seed, self.device)[0]
            return data.take(kept), rows.take(kept)
        return data, rows


def decided(kept: list[DataDescription], sketch: Array, kind: str) -> DataDescription | Literal["new"] | None:
    """Return the description to say again, or to complete; "new" where the data are others, None for silence."""
    near = sorted(((differing(one.sketch, sketch), i) for i, one in enumerate(kept)), key=lambda pair: pair[0])
    near = [(rows, i) for rows, i in near if rows < FEWEST]
    for _, i in near:
        if kind in kept[i].classes:
            return kept[i]
    if not near:
        return "new"
    rows, i = near[0]
    return kept[i] if rows == 0 and len(kept[i].classes) < MOST_KINDS else None


def differing(one: Array, other: Array) -> int:
    """Return how many rows, at least, are in one of two sketches and not in the other."""
    return int((one != other).sum())


def sketched(rows: Dataset, salt: bytes) -> Array:
    """Return the sketch of these rows."""
    places, values = row_hashes(rows, salt).T
    sketch = np.zeros(PLACES, np.uint64)
    np.add.at(sketch, (places % PLACES).astype(np.int64), values)
    return sketch


def joined(one: Dataset, other: Dataset) -> Dataset:
    """Return the rows of both."""
    if not len(other):
        return one
    return replace(one, x=np.concatenate([one.x, other.x]), y=np.concatenate([one.y, other.y]))


def _kind(data: Dataset) -> str:
    """Return by which list of classes these data are counted."""
    return json.dumps([data.classes, data.class_names])


def _silence(data: Dataset) -> State:
    return description.describe(data, features=True, classes=bool(data.classes), silent=True)


def _newest(kept: list[DataDescription]) -> list[DataDescription]:
    kept = kept[-MOST:]
    while len(kept) > 1 and sum(one.size for one in kept) > MOST_BYTES:
        kept = kept[1:]
    return kept


def _unpacked(arrays: State, kinds: list[list[str]]) -> list[DataDescription]:
    return [
        DataDescription(
            arrays[f"{i}/sketch"],
            {key: arrays[f"{i}/{key}"] for key in FEATURES},
            {kind: arrays[f"{i}/classes/{j}"] for j, kind in enumerate(names)},
        )
        for i, names in enumerate(kinds)
    ]
