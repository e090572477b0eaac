"""What a simulated run leaves in its folder, and how it goes on there after it was killed.

    metrics.jsonl                   a line for each round and the end, as a coordinator writes it
    checkpoint-000012.safetensors   the model, and beside it what only the run needs: the same files as of a fleet
    loop-000012.safetensors         what the plain loop remembers besides, written before its checkpoint
    answers.log                     what devices of an emulated fleet have trained (answer_journal.py), until the end
    own/DEVICE.safetensors          the device's own model at the end of a personalised run (own_models.py)
    simulated.json                  which run this is; another one, or one that has ended, is begun anew

A checkpoint is written at the end, and whenever the last one is older than `SECONDS`. A run that is killed goes on from
it with the same bits. An emulated fleet has no such moment between two rounds: it is played again from the beginning,
with the training results of `answers.log`. story.py decides which facts are emitted a second time.
"""

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from coordinator.durable import checkpoint
from coordinator.durable.checkpoint import Checkpoint
from edgefl.base.errors import StoreError
from edgefl.base.events import DIVERGED, Done, Fact, Started, Tell
from edgefl.base.report_numbers import Report
from edgefl.job.config.schema import RunFile
from edgefl.job.run import fingerprint
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.sim import own_models
from edgefl.sim.answer_journal import ANSWERS, journalled
from edgefl.sim.drivers import Prepare, on_virtual_clock, play
from edgefl.sim.engines import Engine
from edgefl.sim.loop_memory import LoopMemory, remembered, written
from edgefl.sim.story import Story
from edgefl.system import store
from edgefl.system.disk import FolderDisk
from edgefl.system.json_text import parse_json
from edgefl.system.locks import own
from edgefl.watch.exporters.opening import Exporters, flattened
from edgefl.watch.metrics_file import MetricsFile, reports

log = logging.getLogger(__name__)

ABOUT = "simulated.json"
LOOP = "loop-"
OURS = ("metrics.jsonl", "checkpoint-*", "state-*", f"{LOOP}*", ANSWERS, checkpoint.BEST)  # a new run inherits none
SECONDS = 20.0  # between checkpoints: a run that is killed loses no more than that


def folder_of(run: RunFile) -> Path:
    """Where a simulated run is kept; the folder of the same name without the ending is a fleet's."""
    return run.run.folder / f"{run.run.name}-simulated"


class RunFolder:
    """The folder of one simulated run; the process that opens it owns it. `job` is what it is made of.

    Of a run that is not `lasting` only what it needs to go on is written, and not before the first checkpoint.
    """

    def __init__(
        self,
        folder: Path,
        job: Job,
        root: Path | None,
        *,
        fresh: bool = False,
        emulated: bool = False,
        seconds: float = SECONDS,
        lasting: bool = True,
    ) -> None:
        self.disk, self.run, self.seconds, self.lasting = FolderDisk(folder), job.run, seconds, lasting
        self.saved, self.last = time.monotonic(), list[RunState]()
        about = parse_json(self.disk.read(ABOUT) or b"{}")
        words = _words(job, root, emulated=emulated)
        self.resumes = not fresh and about.get("words") == words and not about.get("done")
        if not self.resumes:
            if not fresh and about.get("words") == words and (diverged := about.get("diverged")):
                log.warning("the run in %s diverged, is played again and will end as it did: %s", folder, diverged)
            if not fresh and not about.get("done", True):
                why = fingerprint.difference(about["words"], words) if "words" in about else fingerprint.OURS
                log.warning("the unfinished run in %s is begun anew, for this is another one: %s", folder, why)
            for name in sorted(name for pattern in OURS for name in self.disk.names(pattern)):
                self.disk.remove(name)
            own_models.write(folder, {})
            about = {"words": words, "run_id": uuid.uuid4().hex[:12], "done": False}
            if lasting:
                self._write(about)
        self.about = about
        self.metrics = MetricsFile(self.disk)
        self.diverged = ""  # why, once it has
        self.unwritten: list[Fact] = []  # facts that go to metrics.jsonl with the next checkpoint
        told = reports(self.disk) if self.resumes else []
        self.story = Story(told, again=self.resumes and on_virtual_clock(job.run, emulated=emulated))

    def note(self, fact: Fact) -> None:
        """Write a fact to metrics.jsonl if it belongs there."""
        if isinstance(fact, Done) and fact.stopped == DIVERGED:
            self.diverged = fact.why
        if self.lasting:
            self.metrics(fact)
        elif isinstance(fact, Report):
            self.unwritten.append(fact)

    def recall(self, job: Job) -> LoopMemory | None:
        """Return the newest state that the run can go on from, if there is one."""
        if not self.resumes or self.story.again:
            return None
        while (saved := checkpoint.latest(self.disk, job)) is not None:
            name = _loop_name(saved.run_state.round)
            try:
                memory = remembered(saved.run_state, *store.opened(self.disk.read(name) or b"", self.disk.where(name)))
                self.story.recall(memory.plain["story"])
            except StoreError:  # torn by a power cut, or the last model of a run that was killed over its end
                last = checkpoint.generations(self.disk)[-1]
                self.disk.remove(last)
                self.disk.remove(checkpoint.state_of(last))
            else:
                return memory
        return None

    def offer(self, job: Job, moment: Callable[[], LoopMemory]) -> None:
        """Write a checkpoint between two rounds of the plain loop if the last one is older than `seconds`."""
        if time.monotonic() - self.saved >= self.seconds:
            memory = moment()
            memory = replace(memory, plain={**memory.plain, "story": self.story.memory()})
            if not self.lasting:
                self._write(self.about)
                self.metrics(*self.unwritten)
                self.unwritten.clear()
            self.disk.write(_loop_name(memory.run_state.round), store.sealed(*written(memory)))
            total = memory.plain["total"]
            self._save(job, Checkpoint(memory.run_state, (), total["up"], total["down"]))

    def journalled(self, engine: Engine) -> AbstractContextManager[Engine]:
        """Wrap the engine of an emulated fleet so that it trains nothing twice."""
        if not self.lasting:
            self._write(self.about)
        return journalled(engine, self.disk, self.seconds)

    def watch(self, run_state: RunState) -> None:
        """Keep the newest model, and the best one, for the next checkpoint."""
        self.last = [*(one for one in self.last if one.round == run_state.best_round), run_state]

    def end(self, job: Job, run_state: RunState) -> None:
        """Write the last checkpoint of a lasting run, and delete what only an unfinished run needs."""
        if not self.lasting:
            return
        self._save(job, Checkpoint(run_state, (), 0, 0))
        self._write({**self.about, "done": True, "diverged": self.diverged})
        for name in (*self.disk.names(f"{LOOP}*"), ANSWERS):
            self.disk.remove(name)

    def _save(self, job: Job, saved: Checkpoint) -> None:
        checkpoint.save(self.disk, job, saved, self.last)
        kept = {_loop_name(int(name[-18:-12])) for name in checkpoint.generations(self.disk)}
        for name in self.disk.names(f"{LOOP}*"):
            if name not in kept:
                self.disk.remove(name)
        self.saved = time.monotonic()

    def _write(self, about: dict[str, Any]) -> None:
        self.disk.write(ABOUT, json.dumps(about).encode())


def play_kept(
    run: RunFile,
    root: Path | None,
    tell: Tell,
    *,
    folder: Path,
    fresh: bool = False,
    emulated: bool = False,
    seconds: float = SECONDS,
    prepare: Prepare = jobs.prepare,
    again: Tell | None = None,
    **how: Any,
) -> RunState:
    """Play the run in a folder of its own, or go on with it there; `how` is what `drivers.play` takes besides.

    With `again` all facts are emitted from the beginning, however often the run was interrupted (story.py).
    """
    job, held = prepare(run, root)
    with own(folder, private=False):
        kept = RunFolder(folder, job, root, fresh=fresh, emulated=emulated, seconds=seconds)
        with telling(kept, tell, again) as to_all:
            how |= {"storage": kept, "emulated": emulated, "prepare": lambda *_: (job, held)}
            how |= {"keep_own": partial(own_models.write, folder)}
            return play(run, root, to_all, **how)


def play_on(
    run: RunFile, root: Path | None, tell: Tell, *, folder: Path, seconds: float = SECONDS, prepare: Prepare
) -> RunState:
    """Play a run of which nothing is kept, or resume it where it was interrupted; all its facts are emitted.

    When the caller has written down its outcome, the folder can be deleted.
    """
    job, held = prepare(run, root)
    kept = RunFolder(folder, job, root, seconds=seconds, lasting=False)

    def to_all(fact: Fact) -> None:
        kept.note(fact)
        kept.story.hear(fact, tell, tell)

    return play(run, root, to_all, storage=kept, prepare=lambda *_: (job, held))


@contextmanager
def telling(kept: RunFolder, tell: Tell, again: Tell | None = None) -> Iterator[Tell]:
    """Send facts also to metrics.jsonl and to the exporters of the run file (`[export]`)."""
    run, folder = kept.run, Path(kept.disk.where())
    settings = flattened(run.model_dump(mode="json", exclude={"export", "devices"}))
    elsewhere = Exporters(run.export, folder, settings, partial(reports, kept.disk))
    name, rounds = str(run.algorithm["name"]), run.run.rounds
    elsewhere(Started(run.run.name, str(kept.about["run_id"]), algorithm=name, rounds=rounds, at=time.time()))

    def to_all(fact: Fact) -> None:
        kept.note(fact)
        elsewhere(fact)
        kept.story.hear(fact, tell, again)

    try:
        yield to_all
    finally:
        elsewhere.close()


def _words(job: Job, root: Path | None, *, emulated: bool) -> dict[str, Any]:
    """Return the fingerprint of the run in the form that JSON gives back, with its network included."""
    network = sha256(job.start.tobytes() + (job.graphs or b"")).hexdigest()
    words = {**fingerprint.words(job.run, root), "the network": network, "--emulate": emulated}
    known: dict[str, Any] = json.loads(json.dumps(words))
    return known


def _loop_name(round: int) -> str:
    return f"{LOOP}{round:06d}.safetensors"
