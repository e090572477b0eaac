"""Emulated devices: what each one is, and what it has in hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgefl.algorithms.base import Batched, Update
from edgefl.config import EmulatedFleet
from edgefl.data.dataset import Dataset
from edgefl.job import Job
from edgefl.local import LocalTraining
from edgefl.simulation.profiles import Availability, Hardware, assign, reference_seconds
from edgefl.vector import State


@dataclass(frozen=True, slots=True)
class Work:
    """A device's answer, already known to us but not yet to the coordinator."""

    round: int
    opening: int
    frame: bytes
    update: Update
    kept: State
    pace: float
    trained: float  # when its training ends


@dataclass(slots=True)
class Device:
    """One emulated device."""

    name: str
    hardware: Hardware
    samples: int
    dropout: float
    availability: Availability | None
    state: State = field(default_factory=dict)
    pace: float | None = None  # seconds per step, as the coordinator last heard
    holds: int = -1  # the round whose model it has
    asked: int = 0  # how often; names the draw of a breakdown
    work: Work | None = None
    due: int = -1  # the arrival that counts; an older one was overtaken by events
    awake: bool = True  # within its hours
    broken: bool = False


def fleet(job: Job, devices: Mapping[str, Dataset]) -> dict[str, Device]:
    """The emulated devices of a run: ideal ones, unless its file says otherwise."""
    wanted = job.run.fleet or EmulatedFleet()
    counts = wanted.profiles or {"ideal": len(devices)}
    profiles = assign(counts, tuple(devices), job.run.run.seed)
    training = job.algorithm if isinstance(job.algorithm, Batched) else LocalTraining()
    reference = reference_seconds(job.model.layout.trainable, training.batch, wanted.ms_per_step)
    made = {}
    for name, data in devices.items():
        profile = wanted.shelf[profiles[name]]
        dropout = wanted.dropout if profile.dropout is None else profile.dropout
        hours = profile.availability or wanted.availability
        made[name] = Device(name, Hardware(profile, reference), len(data), dropout, hours)
    return made
