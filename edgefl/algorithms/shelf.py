"""The shelf: every algorithm and every stage by its name, ours and those that other packages bring.

A package adds its own through the entry points `edgefl.algorithms` and `edgefl.stages`, one class each.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from pydantic import TypeAdapter, ValidationError

from edgefl.algorithms.base import Algorithm, Stage
from edgefl.errors import ConfigError, nearest

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
}
STAGES = {
    "mean": "edgefl.aggregation:Mean",
    "scale": "edgefl.aggregation:Scale",
    "clip": "edgefl.aggregation:Clip",
    "momentum": "edgefl.aggregation:Momentum",
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
}


class Shelf(MutableMapping[str, type[Any]]):
    """Classes by their names, each imported when it is first taken."""

    def __init__(self, places: Mapping[str, str | type[Any]]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> type[Any]:
        place = self._places[name]
        if isinstance(place, str):
            module, _, word = place.partition(":")
            place = self._places[name] = getattr(import_module(module), word)
        return place

    def __setitem__(self, name: str, cls: type[Any]) -> None:
        self._places[name] = cls

    def __delitem__(self, name: str) -> None:
        del self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places  # the mapping's own would import to find out


@cache
def algorithm_shelf() -> Shelf:
    """Every algorithm that can be named in a run file."""
    return _shelf("edgefl.algorithms", ALGORITHMS)


@cache
def stage_shelf() -> Shelf:
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


def _shelf(group: str, ours: Mapping[str, str]) -> Shelf:
    theirs = [entry.load() for entry in entry_points(group=group)]
    return Shelf({**{cls.__dataclass_fields__["name"].default: cls for cls in theirs}, **ours})


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
