"""Code of the user's own, and who may name it: the operator, and no file that came from elsewhere.

A run file names networks, data, losses, algorithms and the like by their place, `package.module:name`, and that is
imported and called. So such a name is imported only if the operator gave it: in a file on the command line, in an
option, in an environment variable, or as an object of a Python program (`allow`). What a checkpoint, a journal, a run
folder, a kit or a message names is never allowed by that alone. Everything of the user's own is imported here.

The places are kept in the environment, so that every process we start knows them as well.
"""

import importlib
import os
import re
from collections.abc import Mapping
from threading import Lock
from types import BuiltinFunctionType, ModuleType
from typing import Any

from edgefl.base.errors import CodeRefused
from edgefl.system import user_files

PLACES = "EDGEFL_CODE"
PLACE = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")  # within a word of the command line: mine.sgd:Twice:lr=0.1
# Where a file names code. Not all of it is looked through: addresses, say, may hold a password.
SECTIONS = ("task", "data", "algorithm", "aggregation", "selection", "wire", "compute")

_one_at_a_time = Lock()


def allow(named: Any) -> None:
    """Let every place be followed that stands in these words of the operator's: a text, or tables and lists of texts.

    Only what reads the operator's own files, flags and objects may call this; a test has the list.
    """
    places = set(_places(named))
    with _one_at_a_time:
        known = _allowed()
        if not places <= known:
            os.environ[PLACES] = "\n".join(sorted(known | places))


def allow_in(tables: Mapping[str, Any]) -> None:
    """Let every place be followed that the tables of a file of the operator's name."""
    allow([tables[section] for section in SECTIONS if section in tables])


def check_all(tables: Mapping[str, Any], where: str) -> None:
    """Raise `CodeRefused` if these tables name a place that the operator did not name."""
    for place in _places([value for section, value in tables.items() if section in (*SECTIONS, "sets")]):
        if PLACE.fullmatch(place):
            check(place, where)


def is_allowed(place: str) -> bool:
    """Whether the operator named this place."""
    return place in _allowed()


def allowed() -> tuple[str, ...]:
    """Return the places that the operator named, for a process of theirs that does not have our environment."""
    return tuple(sorted(_allowed()))


def check(place: str, where: str) -> None:
    """Raise `CodeRefused` if the operator did not name this place; `where` is the key that does."""
    if not is_allowed(place):
        raise CodeRefused(
            f"{where} = '{place}' is code: it is run if a run file or an option of yours names it, and not because"
            " another file does"
        )


def import_module(place: str, where: str) -> ModuleType:
    """Import the module of `package.module:name`, from beside the operator's file or wherever Python looks.

    Raise `CodeRefused` if the operator did not name this place; `where` is the key that does.
    """
    check(place, where)
    user_files.reach()
    return importlib.import_module(place.partition(":")[0])


def is_function(thing: object) -> bool:
    """Whether this can be what a key asks a function for: no class, and nothing of Python itself such as os.system."""
    return callable(thing) and not isinstance(thing, type | BuiltinFunctionType)


def _allowed() -> set[str]:
    return set(os.environ.get(PLACES, "").splitlines())


def _places(named: Any) -> list[str]:  # Any: whatever TOML, JSON or Python can say
    if isinstance(named, str):
        return [*PLACE.findall(named), *([named] if ":" in named and named.isprintable() else [])]
    if isinstance(named, Mapping):
        named = [*named.keys(), *named.values()]
    elif not isinstance(named, list | tuple | set | frozenset):
        return []
    return [place for one in named for place in _places(one)]
