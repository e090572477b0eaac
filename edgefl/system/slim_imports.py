"""What packages of ours import and an agent never runs: left out, because a process that stays keeps all of it.

Together with what these modules import in their turn (HTTP, mail, archives) that is a megabyte of each of an agent's
three processes.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any


def slim() -> None:
    """To be called before the first import of numpy, paho and pydantic."""
    _methods_when_called()
    _when_used("urllib.request")  # paho looks for proxies there, if a package for proxies is installed
    _no_plugins()
    _no_descriptions()


class _Later(ModuleType):
    """Stands for a module until an attribute of it is used. (The standard library's lazy loader does not wait
    that long before Python 3.12: the next import of the module is enough for it.)
    """

    def __getattr__(self, word: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), word)


def _when_used(name: str) -> None:
    """The module is there, and is really imported when it is used."""
    package, _, word = name.rpartition(".")
    if name not in sys.modules:
        sys.modules[name] = later = _Later(name)
        setattr(import_module(package), word, later)  # as an import would


class _Method:
    """One that is compiled when it is first wanted; `compiled` is told what to compile."""

    __slots__ = ("__name__", "_about", "_compiled", "_method")

    def __init__(self, compiled: Callable[..., Any], name: str, *about: Any) -> None:
        self.__name__, self._compiled, self._about, self._method = name, compiled, about, None

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self._wanted().__get__(instance, owner)

    def __call__(self, *arguments: object) -> Any:
        return self._wanted()(*arguments)

    def _wanted(self) -> Any:
        if self._method is None:
            arguments, body, globals, locals = self._about
            self._method = self._compiled(self.__name__, arguments, body, globals=globals, locals=locals)
            self._about = ()
        return self._method


def _methods_when_called() -> None:
    """Of the six methods that `dataclass` writes for each class as text and compiles, an agent calls one or two.

    There are 170 such classes. All but `__init__` are compiled when they are wanted. Where a version of Python makes
    them in another way (from 3.13 on), it goes on doing so.
    """
    compiled: Any = vars(dataclasses).get("_create_fn")  # Any: what it gives back is a method of any class
    if compiled is None:
        return

    def later(name: str, arguments: Any, body: Any, *, globals: Any = None, locals: Any = None, **more: Any) -> Any:
        if name == "__init__" or more:
            return compiled(name, arguments, body, globals=globals, locals=locals, **more)
        return _Method(compiled, name, arguments, body, globals, locals)

    vars(dataclasses)["_create_fn"] = later


def _no_plugins() -> None:
    """Pydantic looks through all installed packages for plugins, which takes 12 ms; a device uses none."""

    def get_plugins() -> Iterable[object]:
        return ()

    module = ModuleType("pydantic.plugin._loader")
    vars(module)["get_plugins"] = get_plugins
    sys.modules.setdefault(module.__name__, module)


def _no_descriptions() -> None:
    """Numpy describes what it has in C in modules of their own, which do nothing else; `help` is not asked here."""
    for name in ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars"):
        sys.modules.setdefault(name, ModuleType(name))
