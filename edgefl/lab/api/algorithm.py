"""From any form of an algorithm to the table that a run file has for it."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic_core import PydanticSerializationError

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import toml_value
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Algorithm
from edgefl.learn.session_objects import Hold, place
from edgefl.system import user_code

# A name, perhaps with hyper-parameters ("fedprox:mu=0.1"); a table; an algorithm, or its class.
AlgorithmLike: TypeAlias = str | Mapping[str, Any] | Algorithm | type[Algorithm]


def algorithm_table(algorithm: Any, hold: Hold) -> dict[str, Any]:
    """The `[algorithm]` that stands for it (Any: from outside); a Python program may name code."""
    table = _table(algorithm, hold)
    user_code.allow(table)
    return table


def _table(algorithm: Any, hold: Hold) -> dict[str, Any]:
    if isinstance(algorithm, str):
        return _words(algorithm)
    if isinstance(algorithm, Mapping):
        return dict(algorithm)
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    if "name" not in getattr(kind, "__dataclass_fields__", {}):
        raise ConfigError(
            f"algorithm = {kind.__name__}: give a name, a table, or a frozen dataclass with a field `name`"
            " (docs/algorithms.md)"
        )
    if isinstance(algorithm, type):
        return {"name": _name(kind, hold)}
    try:
        table = registry.describe(algorithm)
    except PydanticSerializationError as error:
        raise ConfigError(f"algorithm {kind.__name__}: a hyper-parameter cannot be written down: {error}") from None
    return {**table, "name": _name(kind, hold)}


def _words(text: str) -> dict[str, Any]:
    """`fedprox:mu=0.1:lr=0.05`, as `edgefl compare` writes it; `package.module:Class` stays whole."""
    name, *rest = text.split(":")
    if rest and "=" not in rest[0]:
        name = f"{name}:{rest.pop(0)}"
    table: dict[str, Any] = {"name": name}
    for pair in rest:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"algorithm = '{text}': write '{pair}' as key=value, e.g. fedprox:mu=0.1")
        table[key] = toml_value(value)
    return table


def _name(kind: type[Any], hold: Hold) -> str:
    known, own = registry.algorithm_registry(), str(kind.__dataclass_fields__["name"].default)
    if own in known and known[own] is kind:
        return own
    return place(kind) or hold(kind.__name__, kind)
