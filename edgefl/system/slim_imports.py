"""What packages of ours import and an agent never runs: left out, because a process that stays keeps all of it.

Together with what these modules import in their turn (HTTP, mail, archives) that is a megabyte of each of an agent's
three processes.
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType


def slim() -> None:
    """To be called before the first import of paho and of pydantic."""
    _when_used("urllib.request")  # paho looks for proxies there, if a package for proxies is installed
    _no_plugins()


class _Later(ModuleType):
    """Stands for a module until somebody takes something from it. (The standard library's lazy loader does not wait
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


def _no_plugins() -> None:
    """Pydantic looks through all installed packages for plugins, which takes 12 ms; a device uses none."""

    def get_plugins() -> Iterable[object]:
        return ()

    module = ModuleType("pydantic.plugin._loader")
    vars(module)["get_plugins"] = get_plugins
    sys.modules.setdefault(module.__name__, module)
