"""What a run file can name: ours, what other packages bring through entry points, and `package.module:name`.

    registered     a word, ours or from an entry point; who installed the package chose it
    elsewhere      `package.module:name`, from beside the run file or wherever Python looks; only if the operator named
                   it (edgefl/system/user_code.py), and never because another file or a message does

Of two with one name ours wins: installing a package never changes what a run does.
"""

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from edgefl.base.errors import ConfigError, nearest
from edgefl.base.validation_errors import explain
from edgefl.system import user_code, user_files

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

T = TypeVar("T")


class Theirs(NamedTuple):
    """What another package brings, not yet imported."""

    entry: "EntryPoint"


class Registry(MutableMapping[str, T], Generic[T]):
    """Things by their names, each imported when it is first taken: a device has the memory of what it runs."""

    unknown: ClassVar[str] = "is not known"

    def __init__(self, group: str, ours: Mapping[str, str | T]) -> None:
        self.group = group
        self._ours: dict[str, str | Theirs | T] = dict(ours)
        self._all: dict[str, str | Theirs | T] | None = None  # looked up at the first request

    def __getitem__(self, name: str) -> T:
        known = self._places(name)
        place = known[name]
        if isinstance(place, Theirs):
            place = known[name] = place.entry.load()
        elif isinstance(place, str):
            module, _, word = place.partition(":")
            place = known[name] = vars(import_module(module))[word]
        return place

    def __setitem__(self, name: str, thing: T) -> None:
        self._places()[name] = thing

    def __delitem__(self, name: str) -> None:
        del self._places()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places())

    def __len__(self) -> int:
        return len(self._places())

    def __contains__(self, name: object) -> bool:
        return name in self._places(name)  # the mapping's own would import to find out

    def find(self, name: object, where: str, allowed: Collection[str] | None = None) -> T:
        """What `name` means; `where` stands in messages. With `allowed`, nothing else is imported by its place."""
        if isinstance(name, str) and ":" in name:
            if allowed is not None and name not in allowed:
                raise ConfigError(
                    f"{where} = '{name}': this device does not run code because a message names it: if it is meant,"
                    " add it to compute.factories in the agent file",
                    free_of_data=True,
                )
            thing: T = elsewhere(name, where)
            return thing
        if not isinstance(name, str) or name not in self:
            raise ConfigError(f"{where} = {name!r} {self.unknown}; {nearest(str(name), self)}", free_of_data=True)
        return self[name]

    def _places(self, name: object = None) -> dict[str, str | Theirs | T]:
        """Where everything stands; for a name of ours, ours will do: to look through all packages takes time."""
        if self._all is None:
            if name in self._ours:
                return self._ours
            self._all = {**self._theirs(), **self._ours}
        return self._all

    def _theirs(self) -> dict[str, str | Theirs | T]:
        return {entry.name: Theirs(entry) for entry in _entry_points(self.group)}


class Kinds(Registry[type[Any]]):
    """Classes of hyper-parameters: pydantic dataclasses with a field `name`, made from tables of a file."""

    unknown = "is not in the registry"

    def __init__(self, group: str, ours: Mapping[str, str | type[Any]], *, does: Collection[str]) -> None:
        super().__init__(group, ours)
        self._does = does  # the methods that make a class one of these
        self._named: dict[int, str] = {}  # classes from elsewhere, as files name them

    def take(
        self, table: Mapping[str, Any], section: str, *, key: str = "name", allowed: Collection[str] | None = None
    ) -> Any:
        """An object of the class that `table` names (Any: the classes share a protocol, not a base)."""
        kind = self.find(table.get(key), f"{section}.{key}", allowed)
        if not (isinstance(kind, type) and "name" in getattr(kind, "__dataclass_fields__", {})):
            raise ConfigError(f"{section}.{key} = {table[key]!r} is no dataclass with a field `name`")
        if missing := [word for word in self._does if not callable(getattr(kind, word, None))]:
            raise ConfigError(
                f"{section}.{key} = {table[key]!r} has no method `{missing[0]}`: it is made for something else"
            )
        if ":" in (name := str(table[key])):
            self._named[id(kind)] = name
        given = {word: value for word, value in table.items() if word != key}
        try:
            return adapter(kind).validate_python(given)
        except ValidationError as error:
            known = [key if f.name == "name" else f.name for f in fields(kind)]
            raise ConfigError(f"{section} '{table[key]}': {explain(error, lambda _: known)}") from None

    def describe(self, thing: Any, key: str = "name") -> dict[str, Any]:
        """The table again: what travels in a manifest and stands in a log (Any: as above)."""
        table: dict[str, Any] = adapter(type(thing)).dump_python(thing, mode="json")
        return {key: self._name(type(thing), table.pop("name")), **table}

    def has(self, kind: type[Any]) -> bool:
        """Whether a file can name this class, or has named it by its place."""
        own = kind.__dataclass_fields__["name"].default
        return (own in self and self[own] is kind) or id(kind) in self._named

    def _name(self, kind: type[Any], own: str) -> str:
        """How a file names the class: by the word it calls itself, if it is registered under it, else by its place."""
        if own in self and self[own] is kind:
            return own
        return self._named.get(id(kind), f"{kind.__module__}:{kind.__qualname__}")

    def _theirs(self) -> dict[str, str | Theirs | type[Any]]:
        theirs = [entry.load() for entry in _entry_points(self.group)]
        return {kind.__dataclass_fields__["name"].default: kind for kind in theirs}


def _entry_points(group: str) -> "EntryPoints":
    """What other packages bring; a device that runs ours never looks, and does without the module for it."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - half a megabyte, and as much for what it imports

    return entry_points(group=group)


def elsewhere(name: str, where: str) -> Any:  # Any: whatever stands there
    """What stands at `package.module:name`."""
    module, _, word = name.partition(":")
    try:
        namespace = vars(user_code.import_module(name, where))
    except (ImportError, SyntaxError, ValueError) as error:  # ValueError: an empty or relative name
        looked = ", ".join(str(folder) for folder in user_files.folders())
        raise ConfigError(f"{where} = '{name}': {error}; looked in {looked} and on PYTHONPATH") from error
    if word not in namespace:
        offered = [known for known, thing in namespace.items() if callable(thing) and not known.startswith("_")]
        raise ConfigError(f"{where} = '{name}': {module} has no '{word}'; {nearest(word, offered)}")
    return namespace[word]


def adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Building one takes a millisecond, and every round of a device asks for it."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


_adapters: dict[type[Any], TypeAdapter[Any]] = {}
