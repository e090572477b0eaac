"""The tensors of a file that `torch.save(module.state_dict(), path)` wrote, read without unpickling anything.

Such a file is a zip: `data.pkl` says which tensors there are, `data/0`, `data/1`, ... hold their numbers. A pickle is
a program; this one is not run. Its few instructions are interpreted here with plain lists and dictionaries, and
nothing is imported or called. A name is only compared with those that a state dict needs; any other instruction or
name is an error. So a file from anywhere is safe to read, with or without PyTorch.

`torch.load(weights_only=True)` is no substitute. The coordinator, which reads such files, has no torch. And torch 2.13
imports only what is allowed, but it has no limits: it crashes on a deeply nested key, and takes 4 GB for a file of 60
MB that makes empty dictionaries. It inflates compressed parts of any size, and accepts a tensor of 10^12 numbers made
of four.

Tensors that share their numbers in the file share them here, and no part of the archive is read twice. So the tensors
take no more memory than the file is long; those of bfloat16 take three times theirs, because they become float32.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, State
from edgefl.system import store

SUFFIXES = {".pt", ".pth", ".bin"}
LARGEST = 4 << 20  # bytes of the program, some 30,000 tensors; numbers are not in it
DIMENSIONS = 64  # of a tensor, at most: as many as PyTorch allows
STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "|i1", "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}  # fmt: skip

Value: TypeAlias = Any  # what stands on the stack: numbers, words, lists, dictionaries, and the records below


@dataclass(frozen=True, slots=True)
class Name:
    """Something that would be imported, had this been unpickled."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Numbers of one type in a file of the archive."""

    dtype: str
    key: str
    count: int


class UnreadableFile(Exception):  # noqa: N818 - a word for the message
    """Why this is not a state dict."""


def read(path: Path) -> State:
    """The tensors by name; whatever else the file is, a ConfigError says in one line."""
    try:
        if path.stat().st_size > store.LARGEST_MODEL:
            raise UnreadableFile(f"it is larger than {store.LARGEST_MODEL >> 20} MB")
        with ZipFile(path) as archive:
            return _tensors(archive, path.stat().st_size)
    except BadZipFile:
        reason = "it is no zip archive: write it with a PyTorch of 2020 or later"
    except OSError as error:
        reason = error.strerror or str(error)
    except UnreadableFile as error:
        reason = str(error)
    except (ValueError, LookupError, ArithmeticError, TypeError, AttributeError, RuntimeError, MemoryError) as error:
        reason = f"it is damaged ({type(error).__name__})"
    raise ConfigError(
        f"{path}: cannot be read as a state dict: {reason}; torch.save(module.state_dict(), ...) writes one, or"
        " safetensors"
    )


def _tensors(archive: ZipFile, size: int) -> State:
    programs = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(programs) != 1:
        raise UnreadableFile("it has no data.pkl")
    folder = programs[0].removesuffix("data.pkl")
    if any(one.compress_type != ZIP_STORED for one in archive.infolist()):
        raise UnreadableFile("its parts are compressed, which PyTorch does not do")
    if sum(one.file_size for one in archive.infolist()) > size:
        raise UnreadableFile("its parts are larger than the file")
    if archive.getinfo(programs[0]).file_size > LARGEST:
        raise UnreadableFile("its data.pkl is too large")
    if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
        raise UnreadableFile("its numbers are big-endian")
    value = _walked(archive.read(programs[0]), _Parts(archive, folder).numbers)
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise UnreadableFile("it does not hold tensors by name")
    if other := [name for name, tensor in value.items() if not isinstance(tensor, np.ndarray)]:
        raise UnreadableFile(f"'{other[0]}' in it is no tensor")
    return value


def _walked(program: bytes, numbers: Callable[[StoredTensor], Array]) -> Value:  # noqa: C901, PLR0912, PLR0915 one instruction, one case
    """What the program would have made, with arrays for tensors."""
    stack: list[Value] = []
    marks: list[int] = []
    memo: dict[int, Value] = {}

    def since_mark() -> list[Value]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for opcode, given, _ in pickletools.genops(program):
        argument: Any = given  # a number or a word, by the instruction
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack.pop()
            case "MARK":
                marks.append(len(stack))
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode.name == "NEWTRUE")
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE" | "SHORT_BINUNICODE":
                stack.append(argument)
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(opcode.name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "TUPLE":
                stack.append(tuple(since_mark()))
            case "APPEND":
                item = stack.pop()
                stack[-1].append(item)
            case "APPENDS":
                items = since_mark()
                stack[-1].extend(items)
            case "SETITEM":
                item, key = stack.pop(), stack.pop()
                stack[-1][_word(key)] = item
            case "SETITEMS":
                items = since_mark()
                stack[-1].update(zip(map(_word, items[::2]), items[1::2], strict=True))
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                stack.append(Name(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                stack.append(Name(_word(module), _word(name)))
            case "BINPERSID":
                stack.append(_stored(stack.pop()))
            case "REDUCE":
                arguments = stack.pop()
                stack.append(_rebuilt(stack.pop(), arguments, numbers))
            case "BUILD":  # versions of modules, on the dictionary: not needed
                stack.pop()
            case other:
                raise UnreadableFile(f"it holds more than tensors, perhaps a whole module ({other})")
    raise UnreadableFile("its data.pkl has no end")


def _word(value: Value) -> str:
    """The value, if it is a word: what else is hashed may be nested deeper than Python can go."""
    if not isinstance(value, str):
        raise UnreadableFile("it does not hold tensors by name")
    return value


def _stored(persistent: Value) -> StoredTensor:
    kind, name, key, _device, count = persistent
    if kind != "storage" or not isinstance(name, Name) or name.module != "torch" or name.name not in STORAGES:
        raise UnreadableFile("it refers to numbers of a type that is not known")
    if not isinstance(count, int) or count < 0:
        raise UnreadableFile("a part of it has no proper length")
    return StoredTensor(STORAGES[name.name], _word(key), count)


def _rebuilt(function: Value, arguments: Value, numbers: Callable[[StoredTensor], Array]) -> Value:
    match function:
        case Name("collections", "OrderedDict") if arguments == ():
            return {}
        case Name("torch._utils", "_rebuild_tensor_v2"):
            stored, offset, shape, strides, *_ = arguments
            return _viewed(numbers(stored), offset, shape, strides)
        case Name("torch._utils", "_rebuild_parameter"):
            return arguments[0]
        case Name(module, name):
            raise UnreadableFile(f"it would call {module}.{name}, and only tensors are read")
    raise UnreadableFile("it would call something that is not named")


class _Parts:
    """The numbers of an archive, each part of which is read once: tensors may share one."""

    def __init__(self, archive: ZipFile, folder: str) -> None:
        self.archive, self.folder = archive, folder
        self.parts: dict[int, bytes] = {}
        self.widened: dict[int, Array] = {}  # of bfloat16, the upper halves of a float32

    def numbers(self, stored: StoredTensor) -> Array:
        key = int(stored.key)
        if key not in self.parts:
            self.parts[key] = self.archive.read(f"{self.folder}data/{key}")
        raw = self.parts[key]
        if stored.dtype != "bfloat16":
            return np.frombuffer(raw, stored.dtype, stored.count)
        if key not in self.widened:
            halves = np.frombuffer(raw, "<u2", len(raw) // 2)
            self.widened[key] = (halves.astype(np.uint32) << 16).view(np.float32)
        if stored.count > self.widened[key].size:
            raise UnreadableFile("a part of it is shorter than it says")
        return self.widened[key][: stored.count]


def _viewed(flat: Array, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The tensor that these numbers are seen as, which lies within them; it is no copy."""
    whole = all(isinstance(number, int) and number >= 0 for number in (offset, *shape, *strides))
    if not whole or len(shape) != len(strides) or len(shape) > DIMENSIONS:
        raise UnreadableFile("a tensor in it has no proper shape")
    count = 1
    for size in shape:
        count *= size
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if count > flat.size or (count and last >= flat.size):
        raise UnreadableFile("a tensor in it is larger than its numbers")
    if not count:
        return np.zeros(shape, flat.dtype)
    steps = tuple(stride * flat.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)
