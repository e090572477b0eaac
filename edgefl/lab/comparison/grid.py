"""Grids: a word on the command line, with several values for a key, becomes a family of settings to choose from.

    fedprox:mu=0.01|0.1|1:lr=0.05|0.1        six settings of one algorithm
    fedavg                                   with --grid lr=0.05,0.1: two, as of every other entry

A key of --grid that some algorithm does not have is no part of its family; a key with a dot is any of the run file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.lab.comparison.variants import split_label, variant
from edgefl.learn.algorithms import registry

OR = "|"  # between values in an entry; in --grid a comma does as well


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a grid: the values that are its own, as they were written, and the run with them."""

    values: Mapping[str, str]
    run: RunFile

    @property
    def label(self) -> str:
        """Its own values in words."""
        return " ".join(f"{key}={value}" for key, value in self.values.items()) or "as in the file"


@dataclass(frozen=True, slots=True)
class Family:
    """The settings of one entry, of which one will be chosen."""

    label: str
    settings: tuple[Setting, ...]


def families(
    words: str, grids: Sequence[str], table: dict[str, Any], origin: str, sets: Sequence[str] = ()
) -> tuple[Family, ...]:
    """The families that a comma-separated list names, each with the axes of the grids that it knows."""
    base = parse(RunFile, table, origin, sets)
    entries = [word.strip() for word in words.split(",") if word.strip()]
    if not entries:
        raise ConfigError("--algorithms is empty; give at least one, e.g. --algorithms 'fedprox:mu=0.01|0.1'")
    axes = dict(map(_axis, grids))
    chosen = tuple(family(entry, axes, base, origin) for entry in entries)
    labels = [family.label for family in chosen]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise ConfigError(f"--algorithms: '{twice[0]}' stands there twice; give each a label: a={twice[0]}:...")
    for key in axes:
        if not any(has_key(entry, key) for entry in entries) and not tried(key, chosen):
            raise ConfigError(f"--grid {key}: no algorithm of --algorithms has such a key")
    return chosen


def has_key(entry: str, key: str) -> bool:
    """Whether the algorithm of this word has such a key and leaves its value open."""
    return key in _known(split_label(entry)[1].partition("+")[0], {key: ()})


def tried(key: str, families: Sequence[Family]) -> bool:
    """Whether any of them has several values of it."""
    return any(key in setting.values for family in families for setting in family.settings)


def _axis(word: str) -> tuple[str, tuple[str, ...]]:
    key, equals, text = word.partition("=")
    values = tuple(value.strip() for value in text.replace(OR, ",").split(",") if value.strip())
    if not equals or not values:
        raise ConfigError(f"--grid {word}: write it as key=value,value, e.g. --grid lr=0.01,0.1")
    return key.strip(), values


def family(entry: str, axes: Mapping[str, Sequence[str]], base: RunFile, origin: str) -> Family:
    """The settings that one word names, with the axes that its algorithm knows."""
    label, spec = split_label(entry)
    head, plus, stages = spec.partition("+")
    spec = "".join([head, *(f":{key}={OR.join(axes[key])}" for key in _known(head, axes)), plus, stages])
    settings = tuple(Setting(values, variant(text, base, origin).run) for values, text in _points(spec))
    return Family(label if label != entry else _plain(spec), settings)


def _known(head: str, axes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The axes that this algorithm has keys for, and does not already have values of its own for."""
    name, *pairs = head.split(":")
    own = {pair.partition("=")[0] for pair in pairs}
    if name not in registry.algorithm_registry() and pairs and pairs[0].isidentifier():
        name = f"{name}:{pairs[0]}"
    kind = registry.algorithm_registry().find(name, "algorithm.name")
    fields = getattr(kind, "__dataclass_fields__", {})
    yield from (key for key in axes if key not in own and ("." in key or key in fields))


def _points(spec: str) -> Iterator[tuple[dict[str, str], str]]:
    """Every combination of the values in a word: which they are, and the word with them."""
    pieces = [part.split(":") for part in spec.split("+")]
    axes = [
        [(part, place, value) for value in piece.partition("=")[2].split(OR)]
        for part, words in enumerate(pieces)
        for place, piece in enumerate(words)
        if OR in piece
    ]
    for point in product(*axes):
        words, values = [list(part) for part in pieces], {}
        for part, place, value in point:
            key = words[part][place].partition("=")[0]
            words[part][place], values[key] = f"{key}={value}", value
        yield values, "+".join(":".join(part) for part in words)


def _plain(spec: str) -> str:
    """The word without what is to be chosen."""
    return "+".join(":".join(piece for piece in part.split(":") if OR not in piece) for part in spec.split("+"))
