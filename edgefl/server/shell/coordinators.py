"""Coordinators as child processes of the server: one for each run that works.

Each is `edgefl coordinator start`, so a run is what it is without a server. The kernel ends them with the server,
however that ends; a run that was at work then is queued again, and goes on where its journal says.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Protocol

from edgefl.base.errors import EdgeflError
from edgefl.server.decide.vocabulary import Submission
from edgefl.system import user_files
from edgefl.system.processes import Child, python
from edgefl.system.store import make_private, write_atomically

log = logging.getLogger(__name__)

LOGS = "logs"
FILES = "files"
LOG_LIMIT = 10 << 20  # bytes of a run's log that a new start still adds to
BY_SERVER = "EDGEFL_BY_SERVER"  # tells a coordinator that a server started it


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The process of a run has ended."""

    name: str
    code: int
    reason: str


class Coordinators(Protocol):
    """What starts and stops the processes of runs; `ProcessEnded` comes as an event."""

    def start(self, name: str, submission: Submission) -> None:
        """Start the coordinator of this run."""
        ...

    def stop(self, name: str) -> None:
        """Ask it to end."""
        ...

    def close(self) -> None:
        """End all of them, and wait for it."""
        ...


class CoordinatorProcesses:
    """The real ones. Run files and logs are in the server's folder."""

    def __init__(self, folder: Path, put: Callable[[ProcessEnded], None]) -> None:
        self.folder, self.put = folder, put
        self._children: dict[str, Child] = {}
        for inside in (LOGS, FILES):
            make_private(folder / inside)

    def start(self, name: str, submission: Submission) -> None:
        file, output = self.folder / FILES / f"{name}.toml", self.log(name)
        try:
            write_atomically(file, submission.text.encode())
            if output.exists() and output.stat().st_size > LOG_LIMIT:
                output.replace(output.with_suffix(".log.1"))
            sets = [word for key in submission.sets for word in ("--set", key)]
            command = python("edgefl", "coordinator", "start", str(file), *sets, "--here", "--no-page", "--log", "info")
            beside = os.pathsep.join(filter(None, (submission.beside, os.environ.get(user_files.FOLDERS, ""))))
            home = Path(submission.beside) if submission.beside else self.folder
            environment = {user_files.FOLDERS: beside, BY_SERVER: str(os.getpid())}
            child = Child(command, output, environment=environment, home=home)
        except (EdgeflError, OSError) as error:
            self.put(ProcessEnded(name, 1, f"cannot be started: {error}"))
            return
        self._children[name] = child
        Thread(target=self._wait, args=(name, child), name=f"run-{name}", daemon=True).start()

    def stop(self, name: str) -> None:
        if child := self._children.get(name):
            child.ask_to_stop()

    def close(self) -> None:
        children = list(self._children.values())
        for child in children:
            child.ask_to_stop()
        for child in children:
            child.stop()

    def log(self, name: str) -> Path:
        """Where a run's coordinator writes its log."""
        return self.folder / LOGS / f"{name}.log"

    def _wait(self, name: str, child: Child) -> None:
        child.gone.wait()
        code = child.exit_code or 0
        child.stop()  # it has ended: this closes its standard input
        reason = "" if code == 0 else child.last_words()
        self.put(ProcessEnded(name, code, reason[-500:]))
