"""A run on disk: metrics.jsonl and its models, as a coordinator leaves them or as `History.save` writes them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgefl.base.errors import ConfigError
from edgefl.base.events import Fact, Tell, from_json
from edgefl.base.report_numbers import Report
from edgefl.base.vector import State
from edgefl.job.config.export import Export
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import Job, RunState
from edgefl.lab.api.history import History
from edgefl.lab.api.running import Running
from edgefl.sim import own_models
from edgefl.sim.engines import Engine
from edgefl.sim.loop_memory import LoopMemory, LoopStorage
from edgefl.system import store
from edgefl.system.json_text import parse_json
from edgefl.system.locks import own
from edgefl.watch.metrics_file import LARGEST, METRICS, as_line

MODEL, CHECKPOINTS = "model.safetensors", "checkpoint-*.safetensors"


def save(history: History, folder: Path) -> Path:
    """Write the run into this folder, which may be there; gives it back."""
    lines = [as_line(fact) for fact in history.facts if isinstance(fact, Report)]
    about = {
        "run": dict(history.run),
        "clients": dict(history.clients),
        "logged": {str(round): dict(values) for round, values in history.logged.items()},
    }
    store.write_atomically(folder / METRICS, b"".join(lines), private=False)
    store.write_atomically(folder / MODEL, store.sealed(history.weights, about), private=False)
    own_models.write(folder, history.own_models, private=False)
    return folder


def check(run: RunFile, folder: Path | None) -> None:
    """Refuse what needs a folder without one."""
    if folder is None and run.export != Export():
        raise ConfigError("settings: the loggers of `export` write into the run's folder; give folder too")


@contextmanager
def keeping(
    job: Job, root: Path | None, running: Running, folder: Path | None
) -> Iterator[tuple[LoopStorage | None, Tell]]:
    """Keep a simulated run in its folder, and yield what to tell; without a folder keep nothing."""
    if folder is None:
        yield None, running.tell
        return
    from edgefl.sim.run_folder import RunFolder, telling  # noqa: PLC0415 - the coordinator's files come with it

    with own(folder, private=False):
        kept = RunFolder(folder, job, root)
        with telling(kept, running.tell, running.tell_again) as everybody:
            yield NotingStorage(kept, running), everybody


@dataclass(frozen=True, slots=True)
class NotingStorage:
    """The storage of a run, which keeps what callbacks noted as well."""

    storage: LoopStorage
    running: Running

    def recall(self, job: Job) -> LoopMemory | None:
        memory = self.storage.recall(job)
        if memory is not None:
            self.running.remember(memory.plain["notes"])
        return memory

    def offer(self, job: Job, moment: Callable[[], LoopMemory]) -> None:
        def noted() -> LoopMemory:
            memory = moment()
            return replace(memory, plain={**memory.plain, "notes": self.running.notes()})

        self.storage.offer(job, noted)

    def journalled(self, engine: Engine) -> AbstractContextManager[Engine]:
        return self.storage.journalled(engine)

    def watch(self, run_state: RunState) -> None:
        self.storage.watch(run_state)

    def end(self, job: Job, run_state: RunState) -> None:
        self.storage.end(job, run_state)


def load(folder: str | Path) -> History:
    """A run from its folder, finished or not: that of a coordinator, or one that was saved.

    >>> import edgefl, tempfile
    >>> history = edgefl.simulate("softmax", "digits", fleet=4, rounds=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = edgefl.load(history.save(folder))
    >>> again.records() == history.records()
    True
    """
    folder = Path(folder)
    if not (folder / METRICS).is_file():
        raise ConfigError(f"{folder}: no {METRICS}; give the folder of a run (runs/NAME), or one that was saved")
    tensors, about = _model(folder)
    logged = {int(round): values for round, values in about.get("logged", {}).items()}
    facts = _facts(store.read(folder / METRICS, LARGEST), folder / METRICS)
    return History(about.get("run", {}), facts, tensors, about.get("clients", {}), logged, own_models.read(folder))


def _model(folder: Path) -> tuple[State, dict[str, Any]]:
    """The newest model there, and what is written about it; none, if no round was finished."""
    files = [*sorted(folder.glob(CHECKPOINTS)), *folder.glob(MODEL)]
    if not files:
        return {}, {}
    return store.load(files[-1])


def _facts(lines: bytes, path: Path) -> tuple[Fact, ...]:
    """What was told; the last line may be on its way."""
    facts = []
    for number, line in enumerate(lines[: lines.rfind(b"\n") + 1].splitlines(), 1):
        try:
            facts.append(from_json(parse_json(line)))
        except (ValueError, KeyError, TypeError):  # noqa: PERF203 - each line stands for itself
            raise ConfigError(f"{path}, line {number}: not a line of a run's metrics") from None
    return tuple(facts)
