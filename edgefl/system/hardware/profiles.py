"""Emulated hardware: how long a step, a download and an upload take on a device of this kind.

The numbers of the table are assumptions, not measurements: nominal ratios in the manner of a data sheet, good for
asking what a mixed fleet does to a run. Give `ms_per_step`, measured on one of your own devices (`speed` is relative
to it), or a profile of your own under [fleet.custom], where the answer matters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from edgefl.base import seeds
from edgefl.base.device_labels import check_labels
from edgefl.system.hardware.line import Line

PI4_FLOPS = 4e9  # what a Raspberry Pi 4 is assumed to sustain in small training steps
PI4_OVERHEAD = 2e-3  # seconds a step costs there whatever its size
BYTES = 125_000  # per second, for each Mbit/s
FLOPS = 6  # for one sample and one weight of a dense network: 2 forward, 4 backward


class Availability(BaseModel):
    """A device is online for `on` seconds, then offline for `off`, and so on, each from its own moment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: Annotated[float, Field(gt=0)]  # seconds
    off: Annotated[float, Field(gt=0)]  # seconds


class Profile(BaseModel):
    """One kind of device."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    speed: Annotated[float, Field(gt=0)] = 1.0  # training speed; a Raspberry Pi 4 is 1
    up: Annotated[float, Field(gt=0)] = 20.0  # Mbit/s
    down: Annotated[float, Field(gt=0)] = 40.0  # Mbit/s
    latency: Annotated[float, Field(ge=0)] = 0.02  # seconds, one way
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.05  # spread of the pace from round to round (log-normal)
    watts: Annotated[float, Field(ge=0)] = 6.0  # of the whole machine while it trains; idle time is not counted
    radio_watts: Annotated[float, Field(ge=0)] = 1.0  # besides, while it sends or receives
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None  # instead of the fleet's
    availability: Availability | None = None  # instead of the fleet's
    arch: str = ""  # the processor that such a device says it has, for `rounds.where`
    memory_mb: Annotated[int, Field(ge=1)] | None = None  # MiB that it says it has
    labels: dict[str, str] = {}  # of every device of this kind

    @field_validator("labels")
    @classmethod
    def _are_labels(cls, labels: dict[str, str]) -> dict[str, str]:
        check_labels(labels)
        return labels


IDEAL = Profile(speed=inf, up=inf, down=inf, latency=0, jitter=0, watts=0, radio_watts=0)

# Assumed, see above. Speeds: cores x clock x generation of the CPU, and a modest gain from the Jetsons' GPUs in small
# batches. Networks: Wi-Fi of the board's generation in a house, not the number on the box. Watts: what such a board is
# commonly said to draw under load, or its power mode; measure yours where energy matters. Memory: of the smallest board
# that is common (1, 4, 8, 4 and 8 GB), without what the system keeps.
PROFILES: Mapping[str, Profile] = {
    "ideal": IDEAL,
    "pi3": Profile(speed=0.4, up=10, down=20, watts=4, arch="aarch64", memory_mb=900),
    "pi4": Profile(speed=1.0, up=25, down=50, watts=6, arch="aarch64", memory_mb=3700),
    "pi5": Profile(speed=2.5, up=50, down=100, watts=8, arch="aarch64", memory_mb=7800),
    "jetson-nano": Profile(speed=2.0, up=50, down=100, latency=0.01, watts=10, arch="aarch64", memory_mb=3800),
    "jetson-orin": Profile(speed=10.0, up=100, down=200, latency=0.01, watts=15, arch="aarch64", memory_mb=7400),
}


@dataclass(frozen=True, slots=True)
class Hardware:
    """One emulated device: its profile, and what one step costs on the reference."""

    profile: Profile
    reference: float  # seconds per step of a Raspberry Pi 4

    def pace(self, seed: int, round: int, device: str) -> float:
        """Seconds per step in this round."""
        if not self.profile.jitter:
            return self.reference / self.profile.speed
        noise = seeds.stream(seed, round, device, "pace").lognormal(0, self.profile.jitter)
        return float(self.reference / self.profile.speed * noise)

    @property
    def line(self) -> Line:
        """Its line to the broker."""
        return Line(self.profile.latency, up=self.profile.up * BYTES, down=self.profile.down * BYTES)

    def training_joules(self, seconds: float) -> float:
        """Return the joules of this number of seconds of work."""
        return self.profile.watts * seconds

    def radio_joules(self, *, up: float = 0.0, down: float = 0.0) -> float:
        """Return the joules of sending and receiving this number of bytes."""
        return self.profile.radio_watts * (up / self.line.up + down / self.line.down)


def reference_seconds(parameters: int, batch: int, ms_per_step: float | None = None) -> float:
    """Seconds per step of a Raspberry Pi 4: as given, else estimated as if every weight were used once per sample.

    A convolution uses its weights many times, so for such networks the estimate is far too low: give `ms_per_step`.
    """
    if ms_per_step is not None:
        return ms_per_step / 1000
    return PI4_OVERHEAD + FLOPS * parameters * batch / PI4_FLOPS


def assign(counts: Mapping[str, int], devices: tuple[str, ...], seed: int) -> dict[str, str]:
    """Which profile each device has: dealt at random, because a partition may give neighbours similar data."""
    names = [name for name, count in counts.items() for _ in range(count)]
    order = seeds.stream(seed, "profiles").permutation(len(names))
    return {device: names[i] for device, i in zip(devices, order, strict=True)}
