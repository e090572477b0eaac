"""What is compared or swept, as given in Python: labels, algorithms, and grids of settings."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.lab.api.algorithm import AlgorithmLike, algorithm_table
from edgefl.lab.api.description import ORIGIN
from edgefl.lab.comparison import grid as grids
from edgefl.lab.comparison.grid import Family, Setting
from edgefl.lab.comparison.variants import Variant, variant
from edgefl.learn.algorithms import registry
from edgefl.learn.session_objects import Hold
from edgefl.system import user_code

Algorithms: TypeAlias = str | Sequence[AlgorithmLike] | Mapping[str, AlgorithmLike]
Grid: TypeAlias = Mapping[str, Sequence[Any]]  # {key: values} for every algorithm that has the key


def labelled(algorithms: Algorithms) -> list[tuple[str | None, AlgorithmLike]]:
    """Each algorithm, with the label that was given to it; a Python program may name code."""
    user_code.allow(algorithms)
    if isinstance(algorithms, str):
        return [(None, word.strip()) for word in algorithms.split(",") if word.strip()]
    if isinstance(algorithms, Mapping):
        return list(algorithms.items())
    return [(None, one) for one in algorithms]


def changed(base: RunFile, table: Mapping[str, Any], label: str, sets: Sequence[str] = ()) -> RunFile:
    """The run with another `[algorithm]`, whose stages are its own, and with these keys set."""
    tables = {**base.model_dump(exclude_none=True), "algorithm": dict(table), "aggregation": ()}
    return parse(RunFile, tables, f"{ORIGIN}, {label}", sets, environment={})


def own_label(table: Mapping[str, Any]) -> str:
    """What an algorithm is called that was not given a label."""
    return str(table["name"]).rpartition(":")[2]


def variant_of(label: str | None, algorithm: AlgorithmLike, base: RunFile, hold: Hold) -> Variant:
    """One curve: a word as on the command line, or whatever else is an algorithm."""
    if isinstance(algorithm, str):
        chosen = variant(algorithm, base, ORIGIN)
        return chosen if label is None else Variant(label, chosen.run)
    table = algorithm_table(algorithm, hold)
    own = label or own_label(table)
    return Variant(own, changed(base, table, own))


def check_labels(labels: Sequence[str]) -> None:
    """Refuse labels that cannot be told apart."""
    if not labels:
        raise ConfigError('algorithms is empty; give at least one, e.g. ["fedavg", "fedprox:mu=0.1"]')
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise ConfigError(f"algorithms: '{twice[0]}' stands there twice; give labels: {{'a': ..., 'b': ...}}")


def check_seeds(seeds: Any) -> None:
    """Refuse what is no number of seeds (Any: from outside)."""
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise ConfigError(f"seeds = {seeds!r}: give how many, at least 1; they are seed, seed + 1, ...")


def has_grid(algorithms: Algorithms) -> bool:
    """Whether a word has values to choose from: "fedprox:mu=0.01|0.1"."""
    return any(isinstance(one, str) and grids.OR in one for _, one in labelled(algorithms))


def families_of(algorithms: Algorithms, grid: Grid, base: RunFile, hold: Hold) -> list[Family]:
    """The settings of every algorithm; raise `ConfigError` if no algorithm has some key of the grid."""
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
            raise ConfigError(f"grid: {key} = {values!r}: give a list of values, e.g. [0.1, 0.3]")
    families = [family_of(label, one, grid, base, hold) for label, one in labelled(algorithms)]
    check_labels([family.label for family in families])
    words = [one for _, one in labelled(algorithms) if isinstance(one, str)]
    for key in grid:
        if not grids.tried(key, families) and not any(grids.has_key(word, key) for word in words):
            raise ConfigError(f"grid: no algorithm has a key '{key}'")
    return families


def family_of(label: str | None, algorithm: AlgorithmLike, grid: Grid, base: RunFile, hold: Hold) -> Family:
    """The settings of one algorithm: a word as on the command line, or whatever else is one."""
    axes = {key: tuple(_text(value) for value in values) for key, values in grid.items()}
    if isinstance(algorithm, str):
        return grids.family(algorithm if label is None else f"{label}={algorithm}", axes, base, ORIGIN)
    table = algorithm_table(algorithm, hold)
    own, kind = label or own_label(table), registry.algorithm_registry().find(table["name"], "algorithm.name")
    known = {key: texts for key, texts in axes.items() if "." in key or key in kind.__dataclass_fields__}
    settings = []
    for point in product(*known.values()):
        values = dict(zip(known, point, strict=True))
        sets = [f"{key if '.' in key else f'algorithm.{key}'}={text}" for key, text in values.items()]
        settings.append(Setting(values, changed(base, table, own, sets)))
    return Family(own, tuple(settings))


def _text(value: Any) -> str:
    """A value as a run file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace("e+", "e") if isinstance(value, float) else str(value)  # behind a + a word has stages
