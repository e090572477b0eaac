"""What a simulated run leaves in its folder, and how it goes on there after it was killed.

    metrics.jsonl                   a line for each round and the end, as a coordinator writes it
    checkpoint-000012.safetensors   the model, and beside it what only the run needs: the same files as of a fleet
    loop-000012.safetensors         what the plain loop remembers besides, written before its checkpoint
    simulated.json                  which run this is; another one, or one that has ended, is begun anew

A checkpoint is written when the last one is older than some seconds, and at the end. A run that is killed goes on from
it with the same bits. An emulated fleet, and rounds that wait for nobody, have no such moment between two rounds: they
are played again from the beginning, to the same model.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from coordinator import checkpoint
from coordinator.checkpoint import Saved
from coordinator.metrics_file import MetricsFile, reports
from edgefl.config.schema import RunFile
from edgefl.errors import StoreError
from edgefl.events import Fact, Started, Tell
from edgefl.exporters.opening import Exporters, flattened
from edgefl.run.fingerprint import digest
from edgefl.run.job import Job, RunState
from edgefl.simulation.drivers import play
from edgefl.simulation.loop_memory import LoopMemory, arrays, by_device
from edgefl.system import store
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own
from edgefl.vector import State

ABOUT = "simulated.json"
LOOP = "loop-"
OURS = ("metrics.jsonl", "checkpoint-*", "state-*", f"{LOOP}*", checkpoint.BEST)  # what a new run does not inherit
SECONDS = 20.0  # between checkpoints: a run that is killed loses no more than that


def folder_of(run: RunFile) -> Path:
    """Where a simulated run is kept; the folder of the same name without the ending is a fleet's."""
    return run.run.folder / f"{run.run.name}-simulated"


class RunFolder:
    """The folder of one simulated run; whoever opens it owns it."""

    def __init__(self, folder: Path, run: RunFile, root: Path | None, *, fresh: bool, seconds: float = SECONDS) -> None:
        self.disk, self.run, self.seconds = FolderDisk(folder), run, seconds
        self.saved, self.last = time.monotonic(), list[RunState]()
        about = json.loads(self.disk.read(ABOUT) or b"{}")
        known = digest(run, root)
        self.resumes = not fresh and about.get("digest") == known and not about.get("done")
        if not self.resumes:
            for name in sorted(name for pattern in OURS for name in self.disk.names(pattern)):
                self.disk.remove(name)
            about = {"digest": known, "run_id": uuid.uuid4().hex[:12], "done": False}
            self._write(about)
        self.about = about
        self.metrics = MetricsFile(self.disk)

    def recall(self, job: Job) -> LoopMemory | None:
        """The newest moment that can be gone on from; None: there is none."""
        if not self.resumes or job.run.buffered:
            return None
        saved = checkpoint.latest(self.disk, job)
        if saved is None:
            return None
        table, about = self._loop(saved.run_state.round)
        if "plain" not in about:
            return None
        return LoopMemory(saved.run_state, by_device(table), about["plain"])

    def offer(self, job: Job, moment: Callable[[], LoopMemory]) -> None:
        """A moment between two rounds of the plain loop: it is kept if the last one is old enough."""
        if not job.run.buffered and time.monotonic() - self.saved >= self.seconds:
            memory = moment()
            round = memory.run_state.round
            self.disk.write(_loop_name(round), store.sealed(arrays(memory.states), {"plain": dict(memory.plain)}))
            total = memory.plain["total"]
            self._save(job, Saved(memory.run_state, (), total["up"], total["down"]))

    def watch(self, run_state: RunState) -> None:
        """A new model: the best one since the last checkpoint may be needed with the next."""
        self.last = [*(one for one in self.last if one.round == run_state.best_round), run_state]

    def end(self, job: Job, run_state: RunState) -> None:
        """The last model is kept in any case."""
        self._save(job, Saved(run_state, (), 0, 0))
        for name in self.disk.names(f"{LOOP}*"):
            self.disk.remove(name)
        self._write({**self.about, "done": True})

    def _save(self, job: Job, saved: Saved) -> None:
        checkpoint.save(self.disk, job, saved, self.last)
        kept = {_loop_name(int(name[-18:-12])) for name in checkpoint.generations(self.disk)}
        for name in self.disk.names(f"{LOOP}*"):
            if name not in kept:
                self.disk.remove(name)
        self.saved = time.monotonic()

    def _loop(self, round: int) -> tuple[State, dict[str, Any]]:
        raw = self.disk.read(_loop_name(round))
        try:
            return store.opened(raw, self.disk.where(_loop_name(round))) if raw else ({}, {})
        except StoreError:  # the power was cut: the run is short of a checkpoint, and begins anew
            return {}, {}

    def _write(self, about: dict[str, Any]) -> None:
        self.disk.write(ABOUT, json.dumps(about).encode())


def play_kept(
    run: RunFile,
    root: Path | None,
    tell: Tell,
    *,
    folder: Path,
    fresh: bool = False,
    seconds: float = SECONDS,
    **how: Any,
) -> RunState:
    """Play the run in a folder of its own, or go on with it there; `how` is what `drivers.play` takes besides."""
    with own(folder, private=False):
        kept = RunFolder(folder, run, root, fresh=fresh, seconds=seconds)
        with telling(kept, tell) as everybody:
            return play(run, root, everybody, keeper=kept, **how)


@contextmanager
def telling(kept: RunFolder, tell: Tell) -> Iterator[Tell]:
    """Tell also metrics.jsonl and the exporters that the run file asks for (`[export]`)."""
    run, folder = kept.run, Path(kept.disk.where())
    settings = flattened(run.model_dump(mode="json", exclude={"export", "devices"}))
    elsewhere = Exporters(run.export, folder, settings, partial(reports, kept.disk))
    name, rounds = str(run.algorithm["name"]), run.run.rounds
    elsewhere(Started(run.run.name, str(kept.about["run_id"]), algorithm=name, rounds=rounds, at=time.time()))

    def everybody(fact: Fact) -> None:
        kept.metrics(fact)
        elsewhere(fact)
        tell(fact)

    try:
        yield everybody
    finally:
        elsewhere.close()


def _loop_name(round: int) -> str:
    return f"{LOOP}{round:06d}.safetensors"
