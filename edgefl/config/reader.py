"""Reading a run file or an agent file.

Precedence, from strongest to weakest: `--set section.key=value`, the environment (`EDGEFL_ROUNDS__COHORT=4`),
the file, the defaults. An unknown key is an error that names the nearest known one.
"""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from edgefl.config.section import Section
from edgefl.errors import ConfigError
from edgefl.mistakes import explain
from edgefl.protocol.address import has_password, on_the_command_line, without_password
from edgefl.system import user_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

log = logging.getLogger(__name__)

ENVIRONMENT = "EDGEFL_"

F = TypeVar("F", bound=Section)  # RunFile or AgentFile


class Override(NamedTuple):
    """A key that something stronger than the file sets, and what that is: a variable's name, or `--set`."""

    origin: str
    key: str
    value: Any  # whatever TOML can say


def load(kind: type[F], path: Path, sets: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> F:
    """The file behind `path`, with what the environment and `--set` override; what stands beside it is found too."""
    table = read_toml(path, kind.missing)
    user_files.remember(path)
    if has_password(table) and path.stat().st_mode & 0o077:
        log.warning("holds a password and can be read by others, chmod 600 file=%s", path)
    return parse(kind, table, str(path), sets, environment)


def parse(
    kind: type[F],
    table: dict[str, Any],
    origin: str,
    sets: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> F:
    """The configuration in `table`, checked; `origin` stands in messages."""
    table = deepcopy(table)  # overrides are ours, the caller keeps what it gave
    for override in overrides(kind, sets, environment):
        _put(table, override.key, override.value, origin)
    try:
        return kind.model_validate(table)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    except ValidationError as error:
        explanation = explain(error, partial(_fields, kind), without_password, partial(_elsewhere, kind))
        raise ConfigError(f"{origin}: {explanation}") from None


def overrides(kind: type[BaseModel], sets: Sequence[str], environment: Mapping[str, str]) -> list[Override]:
    """What goes before the file, weakest first: the environment, then the flags as they were given."""
    overriding = _from_environment(kind, environment)
    for word in sets:
        key, equals, value = word.partition("=")
        if not equals or "." not in key:
            shown = without_password(word)
            raise ConfigError(f"--set {shown}: write it as section.key=value, e.g. --set algorithm.lr=0.05")
        overriding.append(Override("--set", key.strip(), toml_value(value.strip())))
        on_the_command_line(f"--set {key.strip()}", overriding[-1].value)
    return overriding


def read_toml(path: Path, missing: str = Section.missing) -> dict[str, Any]:
    """The tables of a TOML file; `missing` says where one comes from that is not there."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {missing}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _from_environment(kind: type[BaseModel], environment: Mapping[str, str]) -> list[Override]:
    """`EDGEFL_ALGORITHM__LR=0.05` is `algorithm.lr = 0.05`; other variables are not ours."""
    overriding = []
    for name, value in sorted(environment.items()):
        section, dots, _ = name.removeprefix(ENVIRONMENT).lower().partition("__")
        if name.startswith(ENVIRONMENT) and dots and section in kind.model_fields:
            key = name.removeprefix(ENVIRONMENT).lower().replace("__", ".")
            overriding.append(Override(name, key, toml_value(value)))
    return overriding


def toml_value(text: str) -> Any:  # Any: whatever TOML can say
    """What `text` means in a TOML file; a word without quotes is a string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _put(table: dict[str, Any], key: str, value: Any, origin: str) -> None:
    *sections, last = key.split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{origin}: '{key}' cannot be set, '{section}' is not a table")
    table[last] = value


def _fields(kind: type[BaseModel], loc: list[str]) -> list[str]:
    """The keys that are known at this place of the file."""
    for part in (part for part in loc if not part.isdigit()):  # a place in a list
        annotation = kind.model_fields[part].annotation if part in kind.model_fields else None
        inner = [t for t in (annotation, *getattr(annotation, "__args__", ())) if isinstance(t, type)]
        models = [t for t in inner if issubclass(t, BaseModel)]
        if not models:
            return []
        kind = models[0]
    return [field.alias or name for name, field in kind.model_fields.items()]


def _elsewhere(kind: type[BaseModel], word: str, *loc: str) -> list[str]:
    """Where the file has a key of this name; last, a table."""
    known = _fields(kind, [*loc])
    inside = [place for key in known for place in _elsewhere(kind, word, *loc, key)]
    if not loc:
        return [*inside, f"[{word}]"] if word in known else inside
    return [".".join((*loc, word)), *inside] if word in known else inside
