"""The registry: every algorithm and every stage by its name, ours and those that other packages bring.

A package adds its own through the entry points `edgefl.algorithms` and `edgefl.stages`, one class each; a run file may
also name one `package.module:Class`.
"""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from edgefl.contract import Algorithm, Augmenting, Stage
from edgefl.data import augment
from edgefl.registry import Kinds

# Where each one stands: a device imports the one it is asked to run, and keeps the memory of all the others.
ALGORITHMS = {
    "fedavg": "edgefl.algorithms.fedavg:FedAvg",
    "fedprox": "edgefl.algorithms.fedprox:FedProx",
    "fedavgm": "edgefl.algorithms.fedavgm:FedAvgM",
    "fedgc": "edgefl.algorithms.fedgc:FedGC",
    "gradma": "edgefl.algorithms.gradma:GradMA",
    "mifa": "edgefl.algorithms.mifa:MIFA",
    "mifam": "edgefl.algorithms.mifa:MIFAM",
    "upcycled": "edgefl.algorithms.upcycled:Upcycled",
    "fedreg": "edgefl.algorithms.fedreg:FedReg",
    "scaffold": "edgefl.algorithms.scaffold:Scaffold",
    "fedcurv": "edgefl.algorithms.fedcurv:FedCurv",
    "feddyn": "edgefl.algorithms.feddyn:FedDyn",
    "mimelite": "edgefl.algorithms.mimelite:MimeLite",
    "flashback": "edgefl.algorithms.flashback:Flashback",
    "fedntd": "edgefl.algorithms.fedntd:FedNTD",
    "feddf": "edgefl.algorithms.feddf:FedDF",
    "moon": "edgefl.algorithms.moon:Moon",
    "fedmlb": "edgefl.algorithms.fedmlb:FedMLB",
    "fedadam": "edgefl.algorithms.fedadam:FedAdam",
    "fedyogi": "edgefl.algorithms.fedyogi:FedYogi",
    "fedadagrad": "edgefl.algorithms.fedadagrad:FedAdagrad",
    "fedasync": "edgefl.algorithms.fedasync:FedAsync",
    "fedper": "edgefl.algorithms.fedper:FedPer",
    "fedrep": "edgefl.algorithms.fedrep:FedRep",
    "fedbn": "edgefl.algorithms.fedbn:FedBN",
    "ditto": "edgefl.algorithms.ditto:Ditto",
    "pfedme": "edgefl.algorithms.pfedme:PFedMe",
}
STAGES = {
    "mean": "edgefl.aggregation:Mean",
    "scale": "edgefl.aggregation:Scale",
    "clip": "edgefl.aggregation:Clip",
    "momentum": "edgefl.aggregation:Momentum",
    "adam": "edgefl.algorithms.fedadam:Adam",
    "yogi": "edgefl.algorithms.fedyogi:Yogi",
    "adagrad": "edgefl.algorithms.fedadagrad:Adagrad",
    "mix": "edgefl.algorithms.fedasync:Mix",
    "sgc": "edgefl.algorithms.fedgc:Sgc",
    "memory": "edgefl.algorithms.gradma:Memory",
    "table": "edgefl.algorithms.mifa:Table",
    "upcycle": "edgefl.algorithms.upcycled:Upcycle",
    "variates": "edgefl.algorithms.scaffold:Variates",
    "curvature": "edgefl.algorithms.fedcurv:Curvature",
    "dynamic": "edgefl.algorithms.feddyn:Dynamic",
    "statistics": "edgefl.algorithms.mimelite:Statistics",
    "distill": "edgefl.algorithms.flashback:Distill",
    "ensemble": "edgefl.algorithms.feddf:Ensemble",
    "finetune": "edgefl.algorithms.finetune:Finetune",
    "median": "edgefl.robust.median:Median",
    "trimmed_mean": "edgefl.robust.trimmed_mean:TrimmedMean",
    "krum": "edgefl.robust.krum:Krum",
    "multi_krum": "edgefl.robust.multi_krum:MultiKrum",
    "geometric_median": "edgefl.robust.geometric_median:GeometricMedian",
    "norm_clip": "edgefl.robust.norm_clip:NormClip",
}


@cache
def algorithm_registry() -> Kinds:
    """Every algorithm that can be named in a run file."""
    return Kinds("edgefl.algorithms", ALGORITHMS)


@cache
def stage_registry() -> Kinds:
    """Every stage that can be named in a run file."""
    return Kinds("edgefl.stages", STAGES)


def algorithm(table: Mapping[str, Any], allowed: Collection[str] | None = None) -> Algorithm:
    """The algorithm described by a table of a run file; of a manifest, with the code that the device `allowed`."""
    algorithm: Algorithm = algorithm_registry().take(table, "algorithm", allowed=allowed)
    if isinstance(algorithm, Augmenting):
        augment.check(algorithm.augment, allowed)
    return algorithm


def stage(table: Mapping[str, Any]) -> Stage:
    """The stage described by a table of a run file."""
    stage: Stage = stage_registry().take(table, "aggregation")
    return stage


def describe(thing: Algorithm | Stage) -> dict[str, Any]:
    """The table again: what travels in a manifest and stands in a log."""
    known = algorithm_registry()
    return (known if known.has(type(thing)) else stage_registry()).describe(thing)
