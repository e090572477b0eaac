"""Many seeds over all cores, and the proof that they find bugs: what `make dst` plays and writes down."""

import os
import platform
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from time import perf_counter

from edgefl.base.errors import EdgeflError
from tools.chaos.planted import BUGS, planted
from tools.chaos.play import PlayOutcome, play

BATCH = 10  # seeds that a process is given at a time


@dataclass(slots=True)
class CampaignSummary:
    """What came of a campaign so far."""

    seeds: int = 0
    events: int = 0
    virtual_seconds: float = 0.0
    cpu_seconds: float = 0.0
    compared: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, 0)  # seconds of CPU, and the seed
    failed: list[PlayOutcome] = field(default_factory=list)
    began: float = field(default_factory=perf_counter)
    took: float = 0.0  # seconds until the last seed

    def add(self, outcome: PlayOutcome) -> None:
        """One more seed."""
        self.seeds += 1
        self.took = perf_counter() - self.began
        self.events += outcome.events
        self.virtual_seconds += outcome.virtual_seconds
        self.cpu_seconds += outcome.cpu_seconds
        self.compared += outcome.compared
        self.faults.update(outcome.faults)
        self.slowest = max(self.slowest, (outcome.cpu_seconds, outcome.seed))
        if outcome.violation:
            self.failed.append(outcome)

    def lines(self) -> list[str]:
        """In words."""
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        each, (longest, slowest) = self.cpu_seconds / max(1, self.seeds), self.slowest
        return [
            f"{self.seeds} seeds in {self.took:.0f} s, {each:.3f} s of CPU each; slowest {slowest} ({longest:.2f} s)",
            f"{self.virtual_seconds / 3600:.1f} virtual hours, {self.events} events: every rule after each of them",
            f"{sum(self.faults.values())} faults: {faults}",
            f"{self.compared} runs in which every device counted in every round ended with the plain loop's model",
            f"{len(self.failed)} violations" + "".join(f"\n  seed {one.seed}: {one.violation}" for one in self.failed),
        ]


def played(first: int, count: int, workers: int = 1, bug: str | None = None) -> Iterator[PlayOutcome]:
    """Yield the outcomes of `count` seeds, in order."""
    batches = [(start, min(BATCH, first + count - start)) for start in range(first, first + count, BATCH)]
    if workers == 1:
        for start, size in batches:
            yield from _batch(start, size, bug)
        return
    with _pool(workers) as pool:
        for outcomes in pool.map(partial(_batch, bug=bug), *zip(*batches, strict=True)):
            yield from outcomes


def proofs(most: int, workers: int = 1) -> Iterator[tuple[str, int | None, str]]:
    """Every planted bug: how many seeds it took to find it, and what was said of it then."""
    names = list(BUGS)
    if workers == 1:
        for name in names:
            yield name, *search(name, most)
        return
    with _pool(workers) as pool:
        for name, result in zip(names, pool.map(partial(search, most=most), names), strict=True):
            yield name, *result


def search(bug: str, most: int) -> tuple[int | None, str]:
    """How many seeds it takes to find a planted bug, and what is said of it; None: more than `most`."""
    with planted(bug):
        for seed in range(most):
            if violation := play(seed).violation:
                if "(planted.py" in violation:
                    raise EdgeflError(f"the planted bug '{bug}' does not fit the program any more: {violation}")
                return seed + 1, violation
    return None, ""


def report(summary: CampaignSummary, proven: list[tuple[str, int | None, str]], day: str) -> str:
    """The page that `make dst` writes."""
    rows = (
        f"| {name} | {BUGS[name][0]} | {'not found' if seeds is None else seeds} | {violation.partition(':')[0]} |"
        for name, seeds, violation in proven
    )
    lines = summary.lines()
    return "\n".join([
        "# Simulated fleets, measured",
        "",
        f"Written by `make dst` on {day}: Python {platform.python_version()}, {os.cpu_count()} cores.",
        "Every seed is a fleet with its coordinators, disks and network in virtual time, and all that goes wrong with",
        "them; `python -m tools.chaos --seed N` plays one again, to the bit.",
        "",
        *(f"* {line}" for line in lines),
        "",
        "## Bugs that were planted",
        "",
        "Each was put into the running program, and seeds were played from 0 until a rule was broken.",
        "",
        "| bug | what it does | seeds until found | rule |",
        "|---|---|---|---|",
        *rows,
        "",
    ])  # fmt: skip


def _batch(first: int, count: int, bug: str | None = None) -> list[PlayOutcome]:
    with planted(bug) if bug else nullcontext():
        return [play(seed, story=count == 1) for seed in range(first, first + count)]


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, get_context("spawn"))
