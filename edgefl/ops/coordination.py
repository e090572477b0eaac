"""Whether a coordinator is at work on a run's folder, as a fact: nothing in the folder says that one was killed."""

from pathlib import Path

from coordinator.shell.known_runs import lock_of
from edgefl.base.events import Fact, Interrupted, Waiting
from edgefl.system.locks import owner
from edgefl.watch.overview.rows import RunRow


def coordination(run: RunRow, at: float, folder: Path) -> tuple[Fact, ...]:
    """Return what an overview of the folder's facts, the last of them told `at`, has to be told besides."""
    at_work = owner(lock_of(folder.resolve())) is not None
    if at_work and run.state == "interrupted":
        return (Waiting(run.waiting, at=at),)
    if not at_work and run.state not in ("finished", "interrupted"):
        return (Interrupted(at=at),)
    return ()
