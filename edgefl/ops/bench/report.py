"""What a bench found: samples of ours beside samples of a reference, as a table for people or JSON for machines."""

import json as as_text
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any

import psutil


@dataclass(frozen=True, slots=True)
class BenchComparison:
    """One thing measured on both sides, several times.

    `bar` is the largest ratio we allow ourselves, `limit` the largest value of ours, `excess` the largest difference of
    the best samples (a time on the clock, which neighbours only make longer); each may be unknown.
    """

    what: str
    unit: str
    ours: Sequence[float]
    reference: Sequence[float]
    bar: float | None = None
    limit: float | None = None
    excess: float | None = None

    @property
    def ratio(self) -> float:
        """Of the medians: the sides take turns, so a busy moment hits both."""
        return median(self.ours) / median(self.reference)

    @property
    def best_ratio(self) -> float:
        """Of the smallest samples: what it would be with fewer neighbours."""
        return min(self.ours) / min(self.reference)

    @property
    def met(self) -> bool | None:
        """Whether the bar, the limit and the excess hold; None where there is none of them."""
        known = [
            (self.bar, self.ratio),
            (self.limit, median(self.ours)),
            (self.excess, min(self.ours) - min(self.reference)),
        ]
        verdicts = [value <= most for most, value in known if most is not None]
        return all(verdicts) if verdicts else None

    def record(self) -> dict[str, Any]:
        """All of it as one JSON object."""
        return {
            "what": self.what,
            "unit": self.unit,
            "ours": list(self.ours),
            "reference": list(self.reference),
            "ratio": self.ratio,
            "best_ratio": self.best_ratio,
            "bar": self.bar,
            "limit": self.limit,
            "excess": self.excess,
            "met": self.met,
        }


def machine() -> dict[str, Any]:
    """What the numbers were measured on, and how busy it was."""
    return {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": load_now(),
    }


def heading(facts: dict[str, Any]) -> str:
    """The machine in one line."""
    before, after = (" ".join(f"{load:.2f}" for load in facts.get(f"load_{when}", ())) for when in ("before", "after"))
    return (
        f"{facts['machine']}, {facts['cores']} cores, {facts['memory_gb']} GB, Python {facts['python']};"
        f" load before: {before}" + (f", after: {after}" if after else "")
    )


def load_now() -> list[float]:
    """Of one, five and fifteen minutes."""
    return [round(load, 2) for load in os.getloadavg()]


WIDTHS = (56, 26, 24, 14, 20, 7)  # fixed, so that a line can be shown as soon as it is known


def table(title: str, names: tuple[str, str], comparisons: Iterable[BenchComparison]) -> Iterator[str]:
    """Lines for a person: the medians with the best in brackets, the ratio and its bar."""
    yield _line((title, *(f"{name} median (best)" for name in names), "ratio (best)", "bar", ""))
    yield "-" * sum(WIDTHS)
    for one in comparisons:
        yield _line(_row(one))


def show(title: str, names: tuple[str, str], comparisons: Iterable[BenchComparison], *, json: bool) -> None:
    """Print the machine, then every comparison as soon as it is known."""
    facts = machine()
    lines: Iterable[str]
    if json:
        records = ({"bench": title, **one.record()} for one in comparisons)
        lines = (as_text.dumps(record) for record in chain([facts], records))
    else:
        lines = chain([heading(facts) + "\n"], table(title, names, comparisons))
    for line in lines:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _line(cells: tuple[str, ...]) -> str:
    first, *rest = (cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))
    return "".join([first.strip().ljust(WIDTHS[0]), *rest]).rstrip()


def _row(one: BenchComparison) -> tuple[str, ...]:
    bars = [] if one.bar is None else [f"<= {one.bar:g} x"]
    bars += [] if one.limit is None else [f"<= {one.limit:g} {one.unit}"]
    bars += [] if one.excess is None else [f"<= {one.excess:g} {one.unit} more"]
    return (
        one.what,
        *(f"{_number(median(side))} ({_number(min(side))}) {one.unit}" for side in (one.ours, one.reference)),
        f"{one.ratio:.2f} ({one.best_ratio:.2f})",
        ", ".join(bars) or "-",
        {True: "met", False: "MISSED", None: ""}[one.met],
    )


def _number(value: float) -> str:
    """Three figures, and never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.{1 if value >= 10 else 2 if value >= 1 else 3}f}"
