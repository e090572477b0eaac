"""The registry: every algorithm and every stage by its name, ours and those that other packages bring.

A package adds its own through the entry points `edgefl.algorithms` and `edgefl.stages`, one class each; a run file may
also name one `package.module:Class`.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from edgefl.base.errors import ConfigError
from edgefl.learn.contract import Algorithm, Augmenting, Stage, Traits
from edgefl.learn.data import augment
from edgefl.learn.registry import Kinds

# Where each one stands: a device imports the one it is asked to run, and keeps the memory of all the others.
ALGORITHMS = {
    "fedavg": "edgefl.learn.algorithms.fedavg:FedAvg",
    "fedprox": "edgefl.learn.algorithms.fedprox:FedProx",
    "fedavgm": "edgefl.learn.algorithms.fedavgm:FedAvgM",
    "fedgc": "edgefl.learn.algorithms.fedgc:FedGC",
    "gradma": "edgefl.learn.algorithms.gradma:GradMA",
    "mifa": "edgefl.learn.algorithms.mifa:MIFA",
    "mifam": "edgefl.learn.algorithms.mifa:MIFAM",
    "upcycled": "edgefl.learn.algorithms.upcycled:Upcycled",
    "fedreg": "edgefl.learn.algorithms.fedreg:FedReg",
    "scaffold": "edgefl.learn.algorithms.scaffold:Scaffold",
    "fedcurv": "edgefl.learn.algorithms.fedcurv:FedCurv",
    "feddyn": "edgefl.learn.algorithms.feddyn:FedDyn",
    "mimelite": "edgefl.learn.algorithms.mimelite:MimeLite",
    "flashback": "edgefl.learn.algorithms.flashback:Flashback",
    "fedntd": "edgefl.learn.algorithms.fedntd:FedNTD",
    "feddf": "edgefl.learn.algorithms.feddf:FedDF",
    "moon": "edgefl.learn.algorithms.moon:Moon",
    "fedmlb": "edgefl.learn.algorithms.fedmlb:FedMLB",
    "fedadam": "edgefl.learn.algorithms.adaptive:FedAdam",
    "fedyogi": "edgefl.learn.algorithms.adaptive:FedYogi",
    "fedadagrad": "edgefl.learn.algorithms.adaptive:FedAdagrad",
    "fedasync": "edgefl.learn.algorithms.fedasync:FedAsync",
    "fedper": "edgefl.learn.algorithms.fedper:FedPer",
    "fedrep": "edgefl.learn.algorithms.fedrep:FedRep",
    "fedbn": "edgefl.learn.algorithms.fedbn:FedBN",
    "ditto": "edgefl.learn.algorithms.ditto:Ditto",
    "pfedme": "edgefl.learn.algorithms.pfedme:PFedMe",
}
STAGES = {
    "mean": "edgefl.learn.aggregation:Mean",
    "scale": "edgefl.learn.aggregation:Scale",
    "clip": "edgefl.learn.aggregation:Clip",
    "momentum": "edgefl.learn.aggregation:Momentum",
    "adam": "edgefl.learn.algorithms.adaptive:Adam",
    "yogi": "edgefl.learn.algorithms.adaptive:Yogi",
    "adagrad": "edgefl.learn.algorithms.adaptive:Adagrad",
    "mix": "edgefl.learn.algorithms.fedasync:Mix",
    "sgc": "edgefl.learn.algorithms.fedgc:Sgc",
    "memory": "edgefl.learn.algorithms.gradma:Memory",
    "table": "edgefl.learn.algorithms.mifa:UpdateTable",
    "upcycle": "edgefl.learn.algorithms.upcycled:Upcycle",
    "variates": "edgefl.learn.algorithms.scaffold:Variates",
    "curvature": "edgefl.learn.algorithms.fedcurv:Curvature",
    "dynamic": "edgefl.learn.algorithms.feddyn:Dynamic",
    "statistics": "edgefl.learn.algorithms.mimelite:Statistics",
    "distill": "edgefl.learn.algorithms.flashback:Distill",
    "ensemble": "edgefl.learn.algorithms.feddf:Ensemble",
    "finetune": "edgefl.learn.algorithms.finetune:Finetune",
    "median": "edgefl.learn.robust.median:Median",
    "trimmed_mean": "edgefl.learn.robust.trimmed_mean:TrimmedMean",
    "krum": "edgefl.learn.robust.krum:Krum",
    "multi_krum": "edgefl.learn.robust.krum:MultiKrum",
    "geometric_median": "edgefl.learn.robust.geometric_median:GeometricMedian",
    "norm_clip": "edgefl.learn.robust.norm_clip:NormClip",
}


@cache
def algorithm_registry() -> Kinds:
    """Every algorithm that can be named in a run file."""
    return Kinds("edgefl.algorithms", ALGORITHMS, does=("plan", "train", "stages"))


@cache
def stage_registry() -> Kinds:
    """Every stage that can be named in a run file."""
    return Kinds("edgefl.stages", STAGES, does=("apply",))


def algorithm(table: Mapping[str, Any], allowed: Collection[str] | None = None) -> Algorithm:
    """The algorithm described by a table of a run file; of a manifest, with the code that the device `allowed`."""
    algorithm: Algorithm = algorithm_registry().take(table, "algorithm", allowed=allowed)
    _check_traits(algorithm, "algorithm")
    if isinstance(algorithm, Augmenting):
        augment.check(algorithm.augment, allowed)
    return algorithm


def stage(table: Mapping[str, Any]) -> Stage:
    """The stage described by a table of a run file."""
    stage: Stage = stage_registry().take(table, "aggregation")
    _check_traits(stage, "aggregation")
    return stage


def _check_traits(thing: Any, section: str) -> None:
    """Refuse a class with a trait outside of `traits`, where nothing looks for it."""
    for trait in sorted({field.name for field in fields(Traits)} - {field.name for field in fields(thing)}):
        if hasattr(thing, trait):
            raise ConfigError(
                f"{section} '{thing.name}' has an attribute '{trait}', which nothing looks for; say it in its traits:"
                f" traits = Traits({trait}=...)"
            )


def describe(thing: Algorithm | Stage) -> dict[str, Any]:
    """The table again: what travels in a manifest and stands in a log."""
    known = algorithm_registry()
    return (known if known.has(type(thing)) else stage_registry()).describe(thing)
