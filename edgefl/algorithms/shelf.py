"""The shelf: every algorithm and every stage by its name, ours and those that other packages bring.

A package adds its own through the entry points `edgefl.algorithms` and `edgefl.stages`, one class each.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pydantic import TypeAdapter, ValidationError

from edgefl.aggregation import Clip, Mean, Momentum, Scale
from edgefl.algorithms.base import Algorithm, Stage
from edgefl.algorithms.fedavg import FedAvg
from edgefl.algorithms.fedavgm import FedAvgM
from edgefl.algorithms.fedcurv import Curvature, FedCurv
from edgefl.algorithms.feddf import Ensemble, FedDF
from edgefl.algorithms.feddyn import Dynamic, FedDyn
from edgefl.algorithms.fedgc import FedGC, Sgc
from edgefl.algorithms.fedmlb import FedMLB
from edgefl.algorithms.fedntd import FedNTD
from edgefl.algorithms.fedprox import FedProx
from edgefl.algorithms.fedreg import FedReg
from edgefl.algorithms.finetune import Finetune
from edgefl.algorithms.flashback import Distill, Flashback
from edgefl.algorithms.gradma import GradMA, Memory
from edgefl.algorithms.mifa import MIFA, MIFAM, Table
from edgefl.algorithms.mimelite import MimeLite, Statistics
from edgefl.algorithms.moon import Moon
from edgefl.algorithms.scaffold import Scaffold, Variates
from edgefl.algorithms.upcycled import Upcycle, Upcycled
from edgefl.errors import ConfigError, nearest

ALGORITHMS: tuple[type[Any], ...] = (
    FedAvg,
    FedProx,
    FedAvgM,
    FedGC,
    GradMA,
    MIFA,
    MIFAM,
    Upcycled,
    FedReg,
    Scaffold,
    FedCurv,
    FedDyn,
    MimeLite,
    Flashback,
    FedNTD,
    FedDF,
    Moon,
    FedMLB,
)
STAGES: tuple[type[Any], ...] = (
    Mean,
    Scale,
    Clip,
    Momentum,
    Sgc,
    Memory,
    Table,
    Upcycle,
    Variates,
    Curvature,
    Dynamic,
    Statistics,
    Distill,
    Ensemble,
    Finetune,
)


@cache
def algorithm_shelf() -> dict[str, type[Any]]:
    """Every algorithm that can be named in a run file."""
    return _shelf("edgefl.algorithms", ALGORITHMS)


@cache
def stage_shelf() -> dict[str, type[Any]]:
    """Every stage that can be named in a run file."""
    return _shelf("edgefl.stages", STAGES)


def algorithm(table: Mapping[str, Any]) -> Algorithm:
    """The algorithm described by a table of a run file or of a manifest."""
    made: Algorithm = _take(algorithm_shelf(), table, "algorithm")
    return made


def stage(table: Mapping[str, Any]) -> Stage:
    """The stage described by a table of a run file."""
    made: Stage = _take(stage_shelf(), table, "aggregation")
    return made


def describe(thing: Algorithm | Stage) -> dict[str, Any]:
    """The table again: what travels in a manifest and stands in a log."""
    table: dict[str, Any] = _adapter(type(thing)).dump_python(thing, mode="json")
    return table


def _adapter(cls: type[Any]) -> TypeAdapter[Any]:
    """Building one takes a millisecond, and every round of a device asks for it."""
    if cls not in _adapters:
        _adapters[cls] = TypeAdapter(cls)
    return _adapters[cls]


_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def _shelf(group: str, ours: tuple[type[Any], ...]) -> dict[str, type[Any]]:
    theirs = [entry.load() for entry in entry_points(group=group)]
    return {cls.__dataclass_fields__["name"].default: cls for cls in (*theirs, *ours)}


def _take(shelf: Mapping[str, type[Any]], table: Mapping[str, Any], section: str) -> Any:
    """An object of the class that `table` names (Any: the classes share a protocol, not a base)."""
    name = table.get("name")
    if not isinstance(name, str) or name not in shelf:
        raise ConfigError(f"{section}.name = {name!r} is not on the shelf; {nearest(str(name), shelf)}")
    try:
        return _adapter(shelf[name]).validate_python(dict(table))
    except ValidationError as error:
        raise ConfigError(f"{section} '{name}': {explain(error, [f.name for f in fields(shelf[name])])}") from None


def explain(error: ValidationError, known: Iterable[str]) -> str:
    """The first thing pydantic found, in one line of ours."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"] if isinstance(part, str)) or "?"
    if first["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
        return f"unknown key '{key}'; {nearest(key.rsplit('.', 1)[-1], known)}"
    return f"{key} = {first['input']!r}: {first['msg'].removeprefix('Value error, ')}"
