"""Which devices of a simulated fleet `rounds.where` means: by the labels of the run file and by what they say."""

from collections.abc import Mapping

from edgefl.base.device_labels import Properties, known_names, values_of
from edgefl.base.errors import ConfigError
from edgefl.base.version import __version__
from edgefl.job.config.schema import EmulatedFleet, RunFile
from edgefl.job.run.job import Job
from edgefl.system.hardware.profiles import Profile

REMEDY = "[fleet.labels] of the run file gives it to one"


def back_end(job: Job) -> str:
    """Return what simulated devices train with."""
    return "torch" if job.graphs is None else "onnx"


def labels_of(run: RunFile, devices: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """Return the labels of each of these devices."""
    return (run.fleet or EmulatedFleet()).labels_of(tuple(devices), run.run.seed)


def kinds_of(run: RunFile, devices: Mapping[str, int]) -> dict[str, Profile]:
    """Return the profile of each of these devices."""
    return (run.fleet or EmulatedFleet()).kinds_of(tuple(devices), run.run.seed)


def properties_of(job: Job, kind: Profile, samples: int) -> Properties:
    """Return what a simulated device says of itself."""
    return Properties(kind.arch, kind.memory_mb, __version__, back_end(job), samples)


def objections(job: Job, samples: Mapping[str, int]) -> dict[str, str]:
    """Return of each device that the run does not ask why not; `samples` are how many each device has.

    Raise `ConfigError` if too few are left for a round, or if `rounds.where` names a label that no device has.
    """
    run = job.run
    if run.where is None:
        return {}
    labels, kinds = labels_of(run, samples), kinds_of(run, samples)
    run.where.check_names(known_names(labels.values()), "rounds.where", REMEDY)
    why = {
        name: run.where.objection(values_of(name, labels[name], properties_of(job, kinds[name], samples[name])))
        for name in samples
    }
    left = {name: reason for name, reason in why.items() if reason}
    if len(samples) - len(left) < run.quorum:
        key = "buffer" if run.buffered else "quorum"
        name, reason = next(iter(left.items()), ("", ""))
        example = f"; of '{name}', for example, {reason}" if name else ""
        raise ConfigError(
            f"rounds.where means {len(samples) - len(left)} of {len(samples)} devices, and a round needs"
            f" rounds.{key} = {run.quorum}{example}"
        )
    return left
