"""How much memory a coordinator takes: while it waits, while it works for ten devices, and for a round of many answers.

The first two are of `edgefl coordinator start` itself, with real agents at a broker of our own, beside a process that
has imported torch and nothing else. The third is what a round adds to the process that merges it, beside the answers.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from edgefl.base.errors import RunError
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.job.run.local_fleet import LocalFleet
from edgefl.ops.bench.report import BenchComparison
from edgefl.ops.bench.server import numbers_of
from edgefl.system import user_files
from edgefl.system.processes import Child, python
from edgefl.system.store import write_atomically
from edgefl.wire import broker

MB = 1e6
WAITING, WORKING, ROUND = 150.0, 250.0, 200.0  # MB that we allow ourselves
BETWEEN = 0.05  # seconds from one look to the next
PATIENCE = 600.0  # seconds for a whole run
WIDTH = 64 + 1 + 10  # parameters of a hidden unit between 64 pixels and ten classes, its bias included
NETWORK = """from torch import nn


def network(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, {hidden}), nn.ReLU(), nn.Linear({hidden}, classes))
"""
RUN = """[run]
name = "memory"
rounds = {rounds}
folder = "{folder}"
[task]
data = "digits"
model = "wide:network"
partition = {{ kind = "iid", devices = {devices} }}
[algorithm]
name = "fedavg"
batches = 1
[broker]
url = "{url}"
identity = "{folder}/identity.key"
"""


@dataclass(frozen=True, slots=True)
class MemoryBench:
    """What to measure."""

    params: int = 1_000_000
    devices: int = 10
    rounds: int = 5
    answers: int = 1_000


def measure(plan: MemoryBench, folder: Path) -> Iterator[BenchComparison]:
    """All of it, one after another."""
    torch = _peak([sys.executable, "-c", "import torch"], folder)
    waiting, working = coordinator(plan, folder)
    size = f"{plan.params:,} parameters"
    yield BenchComparison("a coordinator that waits, beside `import torch`", "MB", (waiting,), (torch,), limit=WAITING)
    what = f"with {plan.devices} devices, {size}, beside `import torch`"
    yield BenchComparison(what, "MB", (working,), (torch,), limit=WORKING)
    for kind, answers in (("sums", plan.answers), ("rows", max(1, plan.answers // 10))):
        extra = _merged(plan.params, answers, kind, folder)
        what = f"{answers:,} answers of {size}, {kind}, beside their bytes"
        yield BenchComparison(what, "MB", (extra,), (4 * plan.params * answers / MB,), limit=ROUND)


def coordinator(plan: MemoryBench, folder: Path) -> tuple[float, float]:
    """The most memory of a coordinator until its first device comes, and until its run has ended."""
    with ExitStack() as until_done:
        running = until_done.enter_context(broker.start())
        path, output = folder / "run.toml", folder / "coordinator.log"
        about = {"rounds": plan.rounds, "folder": folder, "devices": plan.devices, "url": running.address}
        write_atomically(path, RUN.format(**about).encode())
        write_atomically(folder / "wide.py", NETWORK.format(hidden=max(1, plan.params // WIDTH)).encode())
        user_files.remember(path)
        command = python("edgefl", "coordinator", "start", str(path), "--no-page", "--json")
        child = Child(command, output)
        until_done.callback(child.stop)
        waiting = _watched(child, output, "waiting")
        run = load(RunFile, path)
        until_done.enter_context(LocalFleet.of(run, str(running.address)))
        return waiting, _watched(child, output, "done")


def _watched(child: Child, output: Path, event: str) -> float:
    """The most that it took until it told of this."""
    most = 0.0
    for _ in range(int(PATIENCE / BETWEEN)):
        most = max(most, _resident(child))
        if any(told.startswith("{") and json.loads(told)["event"] == event for told in output.read_text().splitlines()):
            return most
        if child.gone.wait(BETWEEN):
            break
    raise RunError(f"the coordinator of the bench did not come to '{event}': {child.last_words()}")


def _peak(command: list[str], folder: Path) -> float:
    """The most that a process took until its end."""
    child, most = Child(command, folder / "peak.log"), 0.0
    while not child.gone.wait(BETWEEN):
        most = max(most, _resident(child))
    child.stop()
    if child.exit_code:
        raise RunError(f"{' '.join(command[:3])} failed: {child.last_words()}")
    return most


def _resident(child: Child) -> float:
    """MB of a process that are in memory now, shared ones included."""
    try:
        return float(psutil.Process(child.process.pid).memory_info().rss) / MB if child.process else 0.0
    except psutil.NoSuchProcess:
        return 0.0


def _merged(params: int, answers: int, kind: str, folder: Path) -> float:
    """What a process that merges says it took."""
    output = folder / f"merge-{kind}.log"
    command = python("edgefl.ops.bench.merge", str(params), str(answers), str(folder), kind)
    return float(numbers_of(command, output)["extra"])
