"""Objects of your own program, under names that a run file can have: `edgefl.learn.session_objects:Net`.

A run file names models, data, losses and algorithms by their place. What has none, because it was made in a notebook or
is no factory but an object, gets one in this module while the run lasts. Another process does not find it here.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

Hold: TypeAlias = Callable[[str, Any], str]  # a word for it, and the object (Any: whatever is yours); its name


@contextmanager
def holding() -> Iterator[Hold]:
    """A function that gives names to objects; the names end with the block, and keep no object alive."""
    names: list[str] = []

    def hold(word: str, thing: Any) -> str:
        word = word if word.isidentifier() else "thing"
        name = next(name for name in _numbered(word) if name not in globals())
        globals()[name] = thing
        names.append(name)
        return f"{__name__}:{name}"

    try:
        yield hold
    finally:
        for name in names:
            del globals()[name]


def place(thing: Any) -> str | None:
    """Return where any process finds it, `package.module:name`; None if only this one has it."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if module in {None, "__main__"} or not name or not str(name).isidentifier():
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(str(module)), name, None) is thing else None


def found(word: str) -> Any:
    """The object that has this name now."""
    return globals()[word.partition(":")[2]]


def is_yours(word: str) -> bool:
    """Whether it is the name of an object of a Python program, this one or another."""
    return word.startswith(f"{__name__}:")


def shown(word: str) -> str:
    """The name as messages have it: of what is only here, its own."""
    return word.removeprefix(f"{__name__}:")


def only_here(table: Mapping[str, Any]) -> list[str]:
    """The names in the tables of a run that only this process can follow."""
    words = [word for section in table.values() if isinstance(section, Mapping) for word in section.values()]
    return [word for word in words if isinstance(word, str) and is_yours(word)]


def _numbered(word: str) -> Iterator[str]:
    yield word
    number = 2
    while True:
        yield f"{word}_{number}"
        number += 1
