"""What a run will ask of its fleet: found out by playing its first rounds with two devices that are not there."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from edgefl.base.errors import ConfigError, nearest
from edgefl.base.events import Fact, Round
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.job.run.simulated_fleet import objections
from edgefl.learn.contract import Batched
from edgefl.learn.data.split import Split
from edgefl.learn.training.local import LocalTraining
from edgefl.sim import availability_trace
from edgefl.sim.loop import simulate
from edgefl.sim.rehearsal import shortened, trainees
from edgefl.system.hardware.profiles import PROFILES, Profile, reference_seconds

PLAYED, STEPS = 4, 2  # rounds, enough for algorithms that ask in every second one only, and steps of training in each


@dataclass(frozen=True, slots=True)
class Demand:
    """A run in numbers."""

    name: str
    rounds: int
    cohort: int
    asked: int  # with over-selection
    deadline: float
    parameters: int
    asking: float  # share of the rounds that ask devices at all
    down: float  # bytes to a device that is asked
    up: float  # and from it
    enclosed: bool  # whether the model comes with the task
    steps: int
    reference: float  # seconds of a step on a Raspberry Pi 4
    fleet: Mapping[str, int]  # how many of each kind
    profiles: Mapping[str, Profile]

    @property
    def devices(self) -> int:
        return sum(self.fleet.values())


def demand(run: RunFile, fleet: Mapping[str, int], samples: int | None, root: Path | None = None) -> Demand:
    """That of a run file; `fleet` and `samples` (of a device) where the file does not say them."""
    if run.rounds.mode == "buffered":
        raise ConfigError(
            "rounds.mode = 'buffered': only rounds are predicted; `edgefl simulate` with [fleet] plays it"
        )
    job, held = jobs.prepare(run, root)
    availability_trace.of_run(run)  # absences are not predicted; a file that cannot be read is told now
    if run.fleet is not None and held.devices:
        sizes = map(len, held.devices)
        objections(job, dict(zip(jobs.device_names(len(held.devices)), sizes, strict=True)))
    rounds = _played(job, held)
    asking = [fact for fact in rounds if fact.devices]
    answers = sum(fact.devices for fact in asking) or 1
    down = sum(fact.bytes_down for fact in asking) / answers
    algorithm, emulated = job.algorithm, run.fleet
    batched = algorithm if isinstance(algorithm, Batched) else LocalTraining()
    profiles = emulated.registry if emulated else PROFILES
    kinds = dict(fleet) or dict(emulated.profiles if emulated else {}) or {"ideal": max(run.cohort, len(held.devices))}
    for kind in kinds:
        if kind not in profiles:
            raise ConfigError(f"--fleet {kind}: not known; {nearest(kind, profiles)}")
    if sum(kinds.values()) < run.cohort:
        raise ConfigError(
            f"rounds.cohort = {run.cohort}, but the fleet has {sum(kinds.values())} devices; --fleet pi4=20"
        )
    size = job.model.layout
    return Demand(
        name=run.run.name,
        rounds=run.run.rounds,
        cohort=run.cohort,
        asked=min(sum(kinds.values()), ceil(run.cohort * run.rounds.over_select)),
        deadline=run.rounds.deadline,
        parameters=size.size,
        asking=len(asking) / len(rounds),
        down=down,
        up=sum(fact.bytes_up for fact in asking) / answers,
        enclosed=down <= run.wire.enclose_kb * 1024,
        steps=batched.batches or ceil(batched.epochs * _samples(held, samples) / batched.batch),
        reference=reference_seconds(size.trainable, batched.batch, emulated.ms_per_step if emulated else None),
        fleet=kinds,
        profiles=profiles,
    )


def _samples(held: Split, told: int | None) -> int:
    """Of a typical device."""
    if told is not None:
        return told
    if not held.devices:
        raise ConfigError("--samples: say how many a device has; the run file divides no data among devices")
    return ceil(sum(map(len, held.devices)) / len(held.devices))


def _played(job: Job, held: Split) -> list[Round]:
    """The first rounds of two devices, which tell how many bytes go each way."""
    devices, facts = dict(trainees(job, held)), list[Round]()

    def tell(fact: Fact) -> None:
        if isinstance(fact, Round):
            facts.append(fact)

    short = shortened(job.run, STEPS)
    unbounded = {"cohort": len(devices), "quorum": len(devices), "start_with": None, "where": None}
    rules = short.rounds.model_copy(update=unbounded)
    few = short.model_copy(
        update={"rounds": rules, "fleet": None, "run": short.run.model_copy(update={"rounds": PLAYED})}
    )
    simulate(replace(job, run=few, algorithm=few.make_algorithm(), stages=few.make_stages()), devices, tell)
    return facts
