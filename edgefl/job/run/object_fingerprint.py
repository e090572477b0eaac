"""A hash of any object that a user hands over in Python: the same in every process that makes it of the same parts.

Arrays and tensors count by their numbers, a network by its structure and weights. Functions and classes count by their
instructions, their closures and the user's functions that they call. Of installed packages only the name counts. Line
numbers, comments and file names do not count.
"""

import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from hashlib import blake2b
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), PurePath, Enum, np.dtype, slice, range)
_known: "WeakKeyDictionary[Any, str]" = WeakKeyDictionary()  # each once: data may be large, and runs many


def fingerprint(thing: Any) -> str:
    """Return the hash of an object (Any: the user's), which must not change while it is in use."""
    try:
        if thing not in _known:
            _known[thing] = _fingerprint(thing)
        return _known[thing]
    except TypeError:  # cannot be a key
        return _fingerprint(thing)


def _fingerprint(thing: Any) -> str:
    whole = _Whole()
    whole.add(thing)
    return whole.hash.hexdigest()


class _Whole:
    """All of an object, piece by piece; what came before is only counted, so that circles end."""

    def __init__(self) -> None:
        self.hash = blake2b(digest_size=16)
        self.seen: dict[int, tuple[int, Any]] = {}  # by id, which belongs to the object as long as we hold it

    def add(self, thing: Any) -> None:
        if isinstance(thing, PLAIN):
            self._say(type(thing).__name__, repr(thing))
            return
        if id(thing) in self.seen:
            self._say("again", self.seen[id(thing)][0])
            return
        if not isinstance(thing, tuple | CodeType):  # whether equal ones are the same one is the compiler's business
            self.seen[id(thing)] = len(self.seen), thing
        self._say(type(thing).__module__, type(thing).__qualname__)
        parts = _numbers(thing)
        if parts is not None:
            kind, numbers = parts
            self._say(kind)
            self.hash.update(numbers)
            return
        for part in _parts(thing):
            self.add(part)
        self._say("end")

    def _say(self, *words: Any) -> None:
        self.hash.update(repr(words).encode())


def _numbers(thing: Any) -> tuple[str, Any] | None:
    """An array or tensor: what kind, and its bytes; None of anything else."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.Tensor) and thing.layout is torch.strided:
        flat = thing.detach().cpu().contiguous().reshape(-1)
        return f"{thing.dtype} {tuple(thing.shape)} {thing.requires_grad}", flat.view(torch.uint8).numpy().data
    if isinstance(thing, np.ndarray | np.generic) and thing.dtype.kind != "O":
        array = np.ascontiguousarray(thing)
        return f"{thing.dtype.str} {thing.shape}", array.reshape(-1).view(np.uint8).data
    return None


def _parts(thing: Any) -> Iterator[Any]:  # noqa: PLR0911, C901 - one kind of thing, one case
    """What a thing is made of."""
    match thing:
        case np.ndarray() | list() | tuple():
            return iter([len(thing), *thing])
        case set() | frozenset():
            return iter(sorted(map(fingerprint, thing)))
        case dict() | MappingProxyType():
            return (part for pair in thing.items() for part in pair)
        case FunctionType():
            return _function(thing)
        case CodeType():
            return iter([thing.co_code, thing.co_names, thing.co_varnames, thing.co_freevars, *thing.co_consts])
        case MethodType():
            return iter([thing.__func__, thing.__self__])
        case partial():
            return iter([thing.func, thing.args, thing.keywords])
        case staticmethod() | classmethod():
            return iter([thing.__func__])
        case property():
            return iter([thing.fget, thing.fset])
        case type():
            return _class(thing)
        case ModuleType() | BuiltinFunctionType():
            return iter([thing.__name__])
        case np.random.Generator():
            return iter([thing.bit_generator.state])
    return _instance(thing)


def _function(function: FunctionType) -> Iterator[Any]:
    yield from (function.__module__, function.__qualname__)
    for cell in function.__closure__ or ():
        yield _content(cell)
    if _installed(function.__module__):
        return
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__)
    yield from (function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


def _names(code: CodeType) -> list[str]:
    """The global names that a function may look up, also in the functions within it."""
    inner = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)]
    return sorted({*code.co_names, *inner})


def _class(kind: type[Any]) -> Iterator[Any]:
    yield from (kind.__module__, kind.__qualname__)
    if _installed(kind.__module__):
        return
    yield kind.__bases__
    for name, value in sorted(vars(kind).items()):
        is_code = isinstance(value, FunctionType | staticmethod | classmethod | property)
        if is_code or not (name.startswith("__") or _is_slot(value)):
            yield from (name, value)


def _is_slot(value: Any) -> bool:
    return type(value).__name__ in {"member_descriptor", "getset_descriptor", "_abc_data"}


def _instance(thing: Any) -> Iterator[Any]:
    """The class of an object, and what it holds."""
    yield type(thing)
    if is_dataclass(thing):
        yield from ((one.name, getattr(thing, one.name, None)) for one in fields(thing))
    elif (held := getattr(thing, "__dict__", None)) is not None:
        yield from (part for pair in sorted(held.items()) for part in pair)
    elif isinstance(thing, Mapping):
        yield from thing.items()
    elif " at 0x" not in (text := repr(thing)):  # a place in memory is another one next time
        yield text


@cache
def _installed(module: str | None) -> bool:
    """Whether it is of Python, of ours or of an installed package: by its name it is known well enough."""
    first = (module or "").partition(".")[0]
    if first == "__main__":  # a notebook, though its kernel is installed
        return False
    if first in {*sys.stdlib_module_names, "edgefl", "coordinator", "device_agent"}:
        return True
    file = getattr(sys.modules.get(first), "__file__", None)
    homes = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return file is not None and any(str(file).startswith(home) for home in homes)
