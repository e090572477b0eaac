"""Reading a run file or an agent file.

Precedence, from strongest to weakest: `--set section.key=value`, the environment (`EDGEFL_ROUNDS__COHORT=4`),
the file, the defaults. An unknown key is an error that names the nearest known one.
"""

import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from edgefl.base.errors import CodeRefused, ConfigError
from edgefl.base.validation_errors import explain
from edgefl.job.config.section import Section
from edgefl.system import user_code, user_files
from edgefl.system.json_text import DEEPEST, nested
from edgefl.wire.address import has_password, on_the_command_line, without_password

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

log = logging.getLogger(__name__)

ENVIRONMENT = "EDGEFL_"
LARGEST = 1 << 20  # characters of a file
LONG_KEY = re.compile(rf"""(?:[ \t]*\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')){{{DEEPEST}}}""")

F = TypeVar("F", bound=Section)  # RunFile or AgentFile


class Override(NamedTuple):
    """A key that something stronger than the file sets, and what that is: a variable's name, or `--set`."""

    origin: str
    key: str
    value: Any  # whatever TOML can say


def load(kind: type[F], path: Path, sets: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> F:
    """The file behind `path`, with what the environment and `--set` override; what stands beside it is found too."""
    table = read_own(path, kind.missing)
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
    """The configuration in `table`, checked; `origin` stands in messages.

    Code that the table names must be allowed, as `read_own` does; what stands in `sets` and `environment` is.
    """
    table = deepcopy(table)  # overrides are ours, the caller keeps what it gave
    for override in overrides(kind, sets, environment):
        _put(table, override.key, override.value, origin)
        user_code.allow_in({override.key.partition(".")[0]: override.value})
    try:
        return kind.model_validate(table)
    except CodeRefused as error:
        raise CodeRefused(f"{origin}: {error}") from None
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


def read_own(path: Path, missing: str = Section.missing) -> dict[str, Any]:
    """The tables of a file that the operator named: it may name code, and what stands beside it is found."""
    table = read_toml(path, missing)
    user_files.remember(path)
    user_code.allow_in(table)
    return table


def read_toml(path: Path, missing: str = Section.missing) -> dict[str, Any]:
    """The tables of any TOML file, which may name no code; `missing` says where one comes from that is not there."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise ConfigError(f"{path}: longer than {LARGEST} characters, so it is no configuration")
        return tables(text)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {missing}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def tables(text: str) -> dict[str, Any]:
    """Return the tables of a text; raise `ValueError` if it is no TOML, or is nested too deep.

    Python's reader goes a call deeper with each bracket, and needs the square of the time for a key of many parts.
    """
    if LONG_KEY.search(text):
        raise ValueError(f"a key has more than {DEEPEST} parts")
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST}") from None
    if nested(tables):
        raise ValueError(f"nested deeper than {DEEPEST}")
    return tables


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
        return tables(f"v = {text}")["v"]
    except ValueError:
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
