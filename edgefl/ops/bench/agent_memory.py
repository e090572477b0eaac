"""How much memory an agent takes: `edgefl agent start` itself, a member of a secured fleet, in rounds with LeNet-5.

It counts the agent, the fork server and its box, as if nothing else ran on the machine. Memory that the three share
counts once; memory that other programs happen to share with them counts in full. So the figure is that of a device,
whatever runs beside the bench.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil

from device_agent import enrol
from edgefl.base.errors import RunError
from edgefl.ops.bench.report import BenchComparison
from edgefl.ops.bench.secured import NAME, secured_fleet
from edgefl.system import user_files
from edgefl.system.processes import Child, python
from edgefl.system.store import write_atomically

LIMIT = 100.0  # MB that we allow ourselves
ROUNDS, SAMPLES = 12, 400
SETTLED = 3  # rounds: what only connecting and answering once needed is gone by then
PATIENCE, BETWEEN = 600.0, 0.02  # seconds
DEVICE = "pi-01"
PAGE = 4096
PRESENT, OF_A_FILE = np.uint64(1 << 63), np.uint64(1 << 61)  # what /proc/PID/pagemap tells every user about a page
RUN = """[run]
name = "memory"
rounds = {rounds}
folder = "{folder}/runs"
[task]
data = "none"
model = "lenet5"
sample = [1, 28, 28]
classes = 10
[algorithm]
name = "fedavg"
batches = 4
[rounds]
cohort = 1
quorum = 1
[broker]
url = "{url}"
fleet = "{fleet}"
"""


def measure(folder: Path) -> Iterator[BenchComparison]:
    """Settled, and at its most."""
    starting, settled, pss = agent(folder)
    what = "lenet5, `edgefl agent start` over TLS, alone on its device"
    yield BenchComparison(f"{what}, settled", "MB", [settled], [pss], limit=LIMIT)
    yield BenchComparison(f"{what}, most ever", "MB", [starting], [pss], limit=LIMIT)


def agent(folder: Path) -> tuple[float, float, float]:
    """The most memory of an agent in all of a run, behind its first rounds, and the latter as the kernel divides it."""
    with ExitStack() as until_done:
        fleet = until_done.enter_context(secured_fleet(folder / "fleet", [DEVICE]))
        rng, data = np.random.default_rng(0), folder / "data.npz"
        x = rng.normal(size=(SAMPLES, 1, 28, 28)).astype(np.float32)
        np.savez(data, x=x, y=rng.integers(0, 10, SAMPLES))
        path = enrol.install(fleet.kits[DEVICE], folder / "devices", data=f"npz:{data}")
        run, output = folder / "run.toml", folder / "coordinator.log"
        about = {"rounds": ROUNDS, "folder": folder, "url": fleet.fleet.folder.here, "fleet": NAME}
        write_atomically(run, RUN.format(**about).encode())
        user_files.remember(run)
        coordinator = Child(python("edgefl", "coordinator", "start", str(run), "--no-page", "--json"), output)
        until_done.callback(coordinator.stop)
        # As installed: bytecode is there, whatever this shell thinks of it.
        written = {"PYTHONDONTWRITEBYTECODE": ""}
        child = Child(python("edgefl", "agent", "start", str(path)), folder / "agent.log", environment=written)
        until_done.callback(child.stop)
        return _watched(coordinator, output, child)


def _watched(coordinator: Child, output: Path, agent: Child) -> tuple[float, float, float]:
    most = settled = pss = 0.0
    for _ in range(int(PATIENCE / BETWEEN)):
        ended, rounds = coordinator.gone.wait(BETWEEN), _rounds(output)
        if rounds < ROUNDS and (ended or agent.gone.is_set()):
            raise RunError(f"the run of the bench ended: {coordinator.last_words()} {agent.last_words()}")
        try:
            pids = family(agent.process.pid if agent.process else 0)
            now = alone_mb(pids)
            most = max(most, now)
            if rounds >= SETTLED:
                settled, pss = max(settled, now), max(pss, _rollup(pids, "Pss") / 1024)
        except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):  # a box that ended as we looked
            continue
        if ended:
            return most, settled, pss
    raise RunError(f"the run of the bench did not end: {coordinator.last_words()}")


def _rounds(output: Path) -> int:
    return sum(
        told.startswith("{") and json.loads(told)["event"] == "round" for told in output.read_text().splitlines()
    )


def family(pid: int) -> list[int]:
    """A process, and those that it and its children have forked."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def alone_mb(pids: list[int]) -> float:
    """What these processes would take where nothing else runs.

    What they wrote and inherited is theirs alone, so of that the kernel's own division is right. Pages of
    files are counted one by one.
    """
    pages = set[tuple[str, int]]()
    for pid in pids:
        pages |= _file_pages(pid)
    return (_rollup(pids, "Pss_Anon") + _rollup(pids, "Pss_Shmem")) / 1024 + len(pages) * PAGE / 2**20


def _file_pages(pid: int) -> set[tuple[str, int]]:
    """Which pages of which files the process has in memory."""
    pages = set[tuple[str, int]]()
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            where, _, offset, device, inode, *name = line.split(maxsplit=5)
            if inode == "0" or name[0].startswith("/memfd:"):
                continue
            start, end = (int(address, 16) // PAGE for address in where.split("-"))
            pagemap.seek(8 * start)
            entries = np.frombuffer(pagemap.read(8 * (end - start)), np.uint64)
            here = np.flatnonzero((entries & PRESENT).astype(bool) & (entries & OF_A_FILE).astype(bool))
            first = int(offset, 16) // PAGE
            pages.update((f"{device} {inode}", first + int(page)) for page in here)
    return pages


def _rollup(pids: list[int], name: str) -> int:
    """KB of this kind, of all of them."""
    lines = [line.split() for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()]
    return sum(int(words[1]) for words in lines if words[0] == f"{name}:")
