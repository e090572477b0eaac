"""Imported once by the server that all processes are forked from: what is slow the first time has been done there."""

from pathlib import Path

from coordinator.start import MODEL  # noqa: F401 - imported for its own sake, as all of these
from device_agent.start import open_agent  # noqa: F401
from edgefl.delivery import deploy  # noqa: F401
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs

run = parse(
    RunFile,
    {
        "run": {"name": "warm", "rounds": 1, "seed": 1, "folder": str(Path())},
        "task": {"data": "synthetic", "model": "softmax", "partition": {"kind": "iid", "devices": 1}},
    },
    "warm",
    environment={},
)
jobs.prepare(run)
