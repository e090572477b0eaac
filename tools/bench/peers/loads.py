"""What every side is asked to do, turn after turn."""

from dataclasses import dataclass

SETTLING = 2  # rounds of a turn that are not counted: connections warm up, memory is mapped
SAMPLE, CLASSES = (1, 28, 28), 10  # of the perceptron
MLP = 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10  # its parameters
SAMPLES, BATCH, RATE = 600, 32, 0.05  # of a device, for one epoch a round


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of round: its model, and whether devices train or answer at once."""

    name: str
    params: int
    trains: bool
    rounds: int  # that count in a turn

    @property
    def title(self) -> str:
        work = f"one epoch of {SAMPLES} samples" if self.trains else "no training"
        return f"{self.name}: {self.params:,} parameters, {work}"


LOADS = (
    Load("J1", 1_000_000, trains=False, rounds=8),
    Load("J2", 10_000, trains=False, rounds=60),
    Load("J3", MLP, trains=True, rounds=12),
)
SIMULATOR = "simulator"
