"""What rounds were measured to cost, and the constants that say it: sums of terms that are linear in the fleet.

    cost of a round = a + b * devices + c * answers + d * MB of the model + e * MB of all answers

`edgefl bench scale` measures and fits; `measured.json` beside this file keeps the curve, its constants and the machine.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import combinations
from typing import Any

import numpy as np

TERMS = ("round", "device", "answer", "MB of model", "MB of answers")  # what a constant is for
QUANTITIES = {  # by name in the file: what it is, and the term that each of its constants may have
    "wall": "s",
    "coordinator_cpu": "s",
    "broker_cpu": "s",
    "devices_cpu": "s",
    "coordinator_mb": "MB",
    "broker_mb": "MB",
    "broker_in": "MB",
    "broker_out": "MB",
}
NUMBER = 4e-6  # MB of a float32


@dataclass(frozen=True, slots=True)
class RoundSize:
    """What decides about the cost of a round: who is there, who answers, and how many MB one model or answer has."""

    devices: int
    cohort: int
    mb: float

    @property
    def terms(self) -> tuple[float, ...]:
        """How much of each there is."""
        return 1.0, float(self.devices), float(self.cohort), self.mb, self.cohort * self.mb


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """One point of the curve: medians and means of a few rounds."""

    devices: int
    cohort: int
    params: int
    wall: float  # seconds of the median round
    coordinator_cpu: float  # seconds a round
    broker_cpu: float
    devices_cpu: float  # of all together
    coordinator_mb: float  # at most
    broker_mb: float
    broker_in: float  # MB a round, as they came
    broker_out: float
    asked_again: int  # devices, in all rounds
    lost: int

    @property
    def size(self) -> RoundSize:
        return RoundSize(self.devices, self.cohort, NUMBER * self.params)


@dataclass(frozen=True, slots=True)
class Costs:
    """The constants of every quantity, one for each term, and how they were come by."""

    constants: Mapping[str, Sequence[float]]
    points: Sequence[MeasuredRound]
    machine: Mapping[str, Any]

    def of(self, quantity: str, size: RoundSize) -> float:
        """What a round of this size costs."""
        return float(np.dot(self.constants[quantity], size.terms))

    def departures(self, quantity: str) -> list[float]:
        """Measured divided by fitted, point by point."""
        return [getattr(point, quantity) / self.of(quantity, point.size) for point in self.points]

    def text(self) -> str:
        """As the file has it."""
        constants = {name: [_rounded(one) for one in values] for name, values in self.constants.items()}
        points = ({name: _rounded(value) for name, value in asdict(point).items()} for point in self.points)
        return "".join(
            [
                "{\n",
                f'"machine": {json.dumps(self.machine)},\n',
                f'"terms": {json.dumps(TERMS)},\n',
                '"constants": {\n',
                ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in constants.items()),
                '\n},\n"points": [\n',
                ",\n".join(f"  {json.dumps(point)}" for point in points),
                "\n]\n}\n",
            ]
        )


def _rounded(value: float) -> float:
    """Round to four digits: more were not measured."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


def load() -> Costs:
    """Those that come with the program."""
    table = json.loads(resources.files("edgefl.lab.planning").joinpath("measured.json").read_text(encoding="utf-8"))
    return Costs(table["constants"], [MeasuredRound(**point) for point in table["points"]], table["machine"])


def fitted(points: Sequence[MeasuredRound], machine: Mapping[str, Any]) -> Costs:
    """Constants that are nowhere below zero and meet the points best, each by its own measure: small ones count too."""
    sizes = [point.size for point in points]
    constants = {name: fit(sizes, [getattr(point, name) for point in points]) for name in QUANTITIES}
    return Costs(constants, points, machine)


def fit(sizes: Sequence[RoundSize], values: Sequence[float]) -> list[float]:
    """The constants of one quantity; every choice of terms is tried, as there are only 31."""
    rows, target = np.array([size.terms for size in sizes]), np.asarray(values, float)
    relative, ones = rows / target[:, None], np.ones(len(target))
    best, least = [0.0] * len(TERMS), float("inf")
    for chosen in _subsets(range(len(TERMS))):
        picked = relative[:, chosen]
        scale = np.abs(picked).max(axis=0)  # bytes and devices differ by orders of magnitude
        solved = np.linalg.lstsq(picked / scale, ones, rcond=None)[0] / scale
        error = float(((picked @ solved - 1) ** 2).sum())
        if (solved >= 0).all() and error < least - 1e-12:
            best, least = [0.0] * len(TERMS), error
            for term, constant in zip(chosen, solved, strict=True):
                best[term] = float(constant)
    return best


def _subsets(terms: Iterable[int]) -> list[list[int]]:
    every = list(terms)
    return [list(chosen) for count in range(1, len(every) + 1) for chosen in combinations(every, count)]
