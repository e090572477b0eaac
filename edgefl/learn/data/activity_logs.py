"""What a phone at the waist measures while its owner walks, climbs stairs, sits, stands or lies: logs for the tutorial.

The logs are of real people (UCI HAR) where that set is in the data root, otherwise of made-up people. Each of these
carries the phone a little differently, and has an own gait. In both cases a model of one person predicts poorly for
another.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.source import arrays

TITLE = "seconds,ax,ay,az,gx,gy,gz,activity\n"
RATE = 50.0  # readings per second
WINDOW = 128  # readings
PAUSE = 5.0  # seconds between two recordings of a log
ACTIVITIES = ("walking", "upstairs", "downstairs", "sitting", "standing", "lying")  # in the order of UCI HAR's labels
GAIT = ((1.8, 0.25), (1.5, 0.20), (2.2, 0.40))  # of the first three: steps per second, and how hard they are (g)


@dataclass(frozen=True, slots=True)
class Recording:
    """One activity without a break: acceleration in g and turning in rad/s, (readings, 6)."""

    readings: Array
    activity: int


@dataclass(frozen=True, slots=True)
class Carrier:
    """An invented person."""

    turned: Array  # how the phone sits: a rotation
    tempo: float  # times the usual steps per second
    strength: float  # times the usual force of a step


def uci_har(folder: Path, person: int) -> list[Recording]:
    """All that this person of UCI HAR did."""
    try:
        d = arrays(folder / "uci_har.npz", DataLimit("UCI HAR"))
    except FileNotFoundError:
        raise ConfigError(f"UCI HAR is not in {folder.absolute()}") from None
    columns = np.r_[6:9, 3:6]  # total acceleration, turning
    recordings = []
    for number in np.unique(d["segment"][d["subject"] == person]):
        windows = d["segment"] == number
        begin, end = d["start"][windows].min(), d["start"][windows].max() + WINDOW
        recordings.append(Recording(d["stream"][begin:end, columns], int(d["y"][windows][0])))
    return recordings


def made_up(person: int, minutes: float = 0.6) -> list[Recording]:
    """Return this number of minutes of each activity, of an invented person."""
    rng = seeds.stream(0, person, "gait")
    carrier = Carrier(_turned(rng.normal(0, 0.1, 3)), rng.uniform(0.9, 1.1), rng.uniform(0.75, 1.25))
    n, parts = int(minutes * 60 * RATE), 2
    return [
        Recording(_readings(activity, n // parts, carrier, rng), activity)
        for activity in range(len(ACTIVITIES))
        for _ in range(parts)
    ]


def write(recordings: Sequence[Recording], file: TextIO) -> None:
    """A log, one reading a line."""
    file.write(TITLE)
    file.writelines(_lines(recordings))


def _lines(recordings: Sequence[Recording]) -> Iterator[str]:
    begin = 0.0
    for recording in recordings:
        name = ACTIVITIES[recording.activity]
        for i, reading in enumerate(recording.readings):
            yield f"{begin + i / RATE:.2f},{','.join(f'{value:.4f}' for value in reading)},{name}\n"
        begin += len(recording.readings) / RATE + PAUSE


def _readings(activity: int, n: int, carrier: Carrier, rng: np.random.Generator) -> Array:
    """What the phone measures: gravity, the steps on top of it, and noise, all as the phone is turned."""
    t = np.arange(n) / RATE
    upright = np.array({3: [0.8, 0.0, 0.6], 5: [0.0, 1.0, 0.1]}.get(activity, [1.0, 0.0, 0.1]))
    acceleration = np.tile(upright, (n, 1))
    turning = np.zeros((n, 3))
    if activity < len(GAIT):
        pace, force = GAIT[activity]
        phase = 2 * np.pi * pace * carrier.tempo * t + rng.uniform(0, 2 * np.pi)
        lean = (0.0, 0.25, -0.25)[activity]
        acceleration += (
            force * carrier.strength * np.stack([np.sin(phase), 0.4 * np.cos(phase / 2), lean + np.cos(phase)], 1)
        )
        turning += carrier.strength * np.stack(
            [0.5 * np.cos(phase / 2), 0.8 * np.sin(phase), 0.3 * np.sin(phase / 2)], 1
        )
    acceleration += rng.normal(0, 0.06, (n, 3))
    turning += rng.normal(0, 0.1, (n, 3))
    return np.concatenate([acceleration @ carrier.turned.T, turning @ carrier.turned.T], 1).astype(np.float32)


def _turned(angles: Array) -> Array:
    """The rotation by these angles around x, y and z."""
    around = np.eye(3)
    for axis, angle in enumerate(angles):
        i, j = (k for k in range(3) if k != axis)
        once = np.eye(3)
        once[[i, i, j, j], [i, j, i, j]] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
        around = once @ around
    return around
