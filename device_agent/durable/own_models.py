"""Models of this device's own, which FedPer, Ditto and their like leave here: kept on disk, and never sent.

    RUN.DIGEST.draft   what the device's own model is, if the coordinator takes the update of this digest
    RUN.NUMBER.own     what it is since the last update that was taken; a draft becomes it by a rename
    RUN.DIGEST.graphs  the graphs that it runs on, as they came; none where the device trains with PyTorch

So a run's model is replaced after each round that counted, and a power cut leaves the old one or the new one, whole.
Numbers grow from run to run. The oldest runs go when there are too many of them, or when they are too large together.
"""

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from edgefl.base.errors import StoreError
from edgefl.base.vector import State
from edgefl.job.run.work import OWN, SHARED
from edgefl.system import store
from edgefl.system.disk import Disk
from edgefl.wire import chunks
from edgefl.wire.messages import Manifest

log = logging.getLogger(__name__)

MOST, LIMIT_MB = 4, 1024
VERSION = 1


@dataclass(frozen=True, slots=True)
class TrainedOwnModel:
    """A model of this device's own, as its training gave it, and what it takes to use it."""

    device: str
    manifest: Manifest
    round: int
    graphs: bytes | bytearray | None  # the frame that they came in
    arrays: State


@dataclass(frozen=True, slots=True)
class StoredOwnModel:
    """A model of this device's own, as it lies on disk."""

    run_key: str
    manifest: Manifest
    round: int
    graphs: bytes | None
    arrays: State


class OwnModels:
    """Those of the last runs: at most `most` of them, of at most `limit` bytes together."""

    def __init__(self, disk: Disk, most: int = MOST, limit: int = LIMIT_MB << 20) -> None:
        self._disk, self.most, self._limit = disk, most, limit
        self._drafts: set[str] = set()  # that are on disk, by the digests of their updates

    def has(self, run_key: str) -> bool:
        """Whether there is one of this run."""
        return bool(self._of(run_key, "own"))

    def tidy(self, updates: Collection[str]) -> None:
        """Remove the drafts that belong to none of these updates, which are known by their digests."""
        waiting = {digest[:16]: digest for digest in updates}
        for name in self._disk.names("*.draft"):
            if (word := _parts(name)[1]) in waiting:
                self._drafts.add(waiting[word])
            else:
                self._disk.remove(name)

    def draft(self, draft: TrainedOwnModel, digest: str) -> None:
        """Write what the model will be, once the update of this digest is taken."""
        self._drafts.add(digest)
        self._write(draft, f"{_run_key(draft.manifest)}.{digest[:16]}.draft")

    def settle(self, run_key: str, digest: str) -> None:
        """Make the draft of this update, which was taken, the model; there may be none, or it is the model already."""
        draft = f"{run_key}.{digest[:16]}.draft"
        if digest not in self._drafts or self._disk.size(draft) is None:
            return
        name = self._name(run_key)
        self._disk.rename(draft, name)
        self._disk.sync(name)
        self._bound(run_key)

    def drop(self, run_key: str, digest: str) -> None:
        """Remove the draft of this update, if there still is one: the update was not taken."""
        if digest in self._drafts:
            self._disk.remove(f"{run_key}.{digest[:16]}.draft")
            self._drafts.discard(digest)

    def renew(self, draft: TrainedOwnModel) -> None:
        """Write the model anew, of the same private part and of a newer shared one."""
        run_key = _run_key(draft.manifest)
        if self._write(draft, self._name(run_key)):
            self._bound(run_key)

    def runs(self) -> list[str]:
        """Return the keys of the runs that left a model here, the newest first."""
        return [_parts(name)[0] for name in sorted(self._disk.names("*.own"), key=_number, reverse=True)]

    def read(self, run_key: str) -> StoredOwnModel:
        """Return the model of this run; a StoreError if it is damaged."""
        return self._read(self._name(run_key))

    def where(self, run_key: str = "") -> str:
        """Return the file of this run's model, or the folder of all, for messages."""
        return self._disk.where(self._name(run_key) if run_key else "")

    # ---- the files ---------------------------------------------------------------------------------------------

    def _write(self, draft: TrainedOwnModel, name: str) -> bool:
        """Write the model and its graphs, if they are what they should be and there is room for them."""
        run_key = _run_key(draft.manifest)
        try:
            check(draft.manifest, draft.arrays, self._disk.where(name))
            graphs = None if draft.graphs is None else chunks.digest(draft.graphs).hex()[:16]
            about = {
                "version": VERSION,
                "device": draft.device,
                "round": draft.round,
                "graphs": graphs,
                "manifest": draft.manifest.model_dump(mode="json"),
            }
            sealed = store.sealed(draft.arrays, about)
            if len(sealed) + len(draft.graphs or b"") > self._limit:
                log.warning(
                    "the model of this device's own is not kept run=%s: it has %d MB, more than agent.own_models_mb",
                    run_key,
                    (len(sealed) + len(draft.graphs or b"")) >> 20,
                )
                return False
            if draft.graphs is not None and self._disk.size(file := f"{run_key}.{graphs}.graphs") != len(draft.graphs):
                self._disk.write(file, draft.graphs)
            self._disk.write(name, sealed)
        except StoreError as error:  # the run goes on: the private part is kept with the update in any case
            log.warning("the model of this device's own is not kept run=%s why=%s", run_key, error)
            return False
        return True

    def _read(self, name: str) -> StoredOwnModel:
        where, (run_key, _, _) = self._disk.where(name), _parts(name)
        arrays, about = store.opened(self._disk.read(name) or b"", where)
        try:
            if about["version"] != VERSION:
                raise StoreError(f"{where}: version {about['version']}, this one reads {VERSION}")
            manifest, graphs = Manifest.model_validate(about["manifest"]), about["graphs"]
            kept = StoredOwnModel(run_key, manifest, int(about["round"]), self._graphs(run_key, graphs), arrays)
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{where}: not a model of this device's own ({type(error).__name__})") from None
        check(manifest, arrays, where)
        return kept

    def _graphs(self, run_key: str, digest: str | None) -> bytes | None:
        if digest is None:
            return None
        name = f"{run_key}.{digest}.graphs"
        frame = self._disk.read(name)
        if frame is None or chunks.digest(frame).hex()[:16] != digest:
            raise StoreError(f"{self._disk.where(name)}: lost or damaged; take part in another round of the run")
        return frame

    def _of(self, run_key: str, kind: str) -> list[str]:
        """The names of this run's files of one kind."""
        return [name for name in self._disk.names(f"{run_key}.*.{kind}") if _parts(name)[0] == run_key]

    def _name(self, run_key: str) -> str:
        """Where the model of this run lies, or will."""
        if before := self._of(run_key, "own"):
            return before[-1]
        return f"{run_key}.{max(map(_number, self._disk.names('*.own')), default=0) + 1}.own"

    def _bound(self, run_key: str) -> None:
        """Remove what is not needed any more, and the oldest other runs while there is too much of all."""
        if len(graphs := self._of(run_key, "graphs")) > 1:  # the run went on with other graphs
            with suppress(StoreError):
                needed = chunks.digest(self._read(self._name(run_key)).graphs or b"").hex()[:16]
                for name in graphs:
                    if _parts(name)[1] != needed:
                        self._disk.remove(name)
        oldest = [_parts(name)[0] for name in sorted(self._disk.names("*.own"), key=_number)]
        others = [run for run in oldest if run != run_key]
        while others and (len(others) + 1 > self.most or self._size() > self._limit):
            gone = others.pop(0)
            log.info("the model of this device's own makes room for newer ones run=%s", gone)
            for kind in ("own", "draft", "graphs"):
                for name in self._of(gone, kind):
                    self._disk.remove(name)

    def _size(self) -> int:
        names = (name for kind in ("own", "graphs") for name in self._disk.names(f"*.{kind}"))
        return sum(self._disk.size(name) or 0 for name in names)


def check(manifest: Manifest, arrays: State, where: str) -> None:
    """Raise a StoreError unless these are the arrays of a model of this layout: a box may say anything."""
    size, channels = manifest.layout.layout().size, manifest.sample[:1]
    shapes: dict[str, tuple[int, ...]] = {OWN: (size,), SHARED: (size,)}
    if "mean" in arrays or "scale" in arrays:
        shapes |= {"mean": channels, "scale": channels}
    if arrays.keys() != shapes.keys():
        raise StoreError(f"{where}: a model of the arrays {', '.join(sorted(arrays))}")
    for name, shape in shapes.items():
        array = arrays[name]
        if array.dtype != np.float32 or array.shape != shape or not np.isfinite(array).all():
            raise StoreError(f"{where}: '{name}' is {array.dtype} of shape {array.shape}, or not finite")


def _run_key(manifest: Manifest) -> str:
    return f"{manifest.job}.{manifest.run_id}"


def _parts(name: str) -> tuple[str, str, str]:
    """Run, number or digest, and kind, of a file's name; the names of runs may have dots."""
    rest, _, kind = name.rpartition(".")
    run_key, _, word = rest.rpartition(".")
    return run_key, word, kind


def _number(name: str) -> int:
    word = _parts(name)[1]
    return int(word) if word.isdecimal() else 0
