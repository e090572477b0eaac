"""Networks that several processes share: the first that needs one makes it, the others read it, without torch.

Where they are is in the environment, so that every process that plays runs of the same comparison finds them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import network as networks
from edgefl.job.run.job import Job
from edgefl.job.run.network import Network
from edgefl.learn.data.split import Split
from edgefl.system.environment import environment
from edgefl.system.portable import lock
from edgefl.system.scratch import Scratch
from edgefl.system.store import write_atomically

FOLDER = "EDGEFL_NETWORKS"


@contextmanager
def shared() -> Iterator[None]:
    """While the block runs, networks are shared with all processes that are started in it."""
    with Scratch("edgefl-networks-") as scratch, environment(**{FOLDER: str(scratch.path)}):
        yield


def prepare(run: RunFile, root: Path | None, needs: str, held: Split | None = None) -> tuple[Job, Split]:
    """The job of a run, on data that may be there, and a network that may have been made from the same `needs`."""
    folder = os.environ.get(FOLDER)
    if folder is None or run.task.backend == "torch":
        return jobs.prepare(run, root, held=held)
    file = Path(folder) / sha256(needs.encode()).hexdigest()
    with _alone(file.with_suffix(".lock")):
        if not file.exists():
            job, held = jobs.prepare(run, root, held=held)
            write_atomically(file, networks.pack(networks.of(job.start, job.graphs, job.model)))
            return job, held
    return jobs.prepare(run, root, _read(file), held)


def _read(file: Path) -> Network:
    return networks.unpack(file.read_bytes(), str(file))


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time: what two would make is made once."""
    with path.open("w") as file:
        lock(file.fileno())
        yield
