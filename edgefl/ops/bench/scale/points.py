"""Which fleets and models are measured, and for how many rounds."""

from collections.abc import Iterable
from dataclasses import dataclass

from edgefl.lab.planning.costs import NUMBER

SMALL = 10_000  # parameters, where the number of devices grows
FEW = 10  # devices, where the model grows
MOST_MB = 450.0  # of answers in a round, as wire.limit_mb has 512; larger models are given to fewer devices


@dataclass(frozen=True, slots=True)
class Point:
    """A fleet, how many of it a round asks, and the size of the model."""

    devices: int
    cohort: int
    params: int

    @property
    def mb(self) -> float:
        """Of all answers of a round."""
        return self.cohort * self.params * NUMBER

    @property
    def rounds(self) -> int:
        """That count: fewer where a round takes seconds."""
        return 3 if self.mb > 100 or self.cohort > 300 else 6 if self.cohort > 30 else 12


def sweep(devices: Iterable[int], params: Iterable[int], named: Iterable[Point]) -> list[Point]:
    """All devices of small fleets to large ones with a small model, a few devices with every model, and the named."""
    by_devices = {Point(count, count, SMALL) for count in devices}
    by_params = {Point(count, count, size) for size in params if (count := min(FEW, int(MOST_MB / (size * NUMBER))))}
    return in_order(by_devices | by_params | set(named))


def in_order(points: Iterable[Point]) -> list[Point]:
    """Fleet by fleet, and more and more MB: a broker's most memory is that of the point in hand."""
    return sorted(points, key=lambda point: (point.devices, point.mb, point.params))


DEVICES = (10, 30, 100, 300, 1000, 2000)
PARAMS = (10_000, 100_000, 1_000_000, 10_000_000, 50_000_000)
NAMED = (Point(1000, 100, SMALL), Point(1000, 100, 1_000_000))
