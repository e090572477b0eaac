"""Named arrays on disk: safetensors, written whole or not at all, and trusted only when their hash agrees.

The hash is that of the whole file and stands in its metadata, so that any reader of safetensors opens it. What is
written here is for its owner alone, unless the caller makes it readable for all users.
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE
from tempfile import mkstemp
from typing import Any, BinaryIO

import numpy as np

from edgefl.base.errors import StoreError
from edgefl.base.vector import Array, State
from edgefl.system.faults import before_write
from edgefl.system.json_text import parse_json
from edgefl.system.portable import BINARY, OURS, close_to_others, sync_folder

log = logging.getLogger(__name__)

_UNSEALED = "0" * 64  # stands where the hash will, while it is computed
_METADATA = "__metadata__"  # the key of a header that is not an array's
MOST_HEADER = 64 << 20  # bytes of JSON in front of the numbers
MOST_WORDS = 64 << 20  # bytes of one array of words, each of which takes as much as the longest
LARGEST_MODEL = 4 << 30  # bytes of a file with a model from outside
_ABOUT = "edgefl"  # the one key of the metadata; arrays of words stand there too, because safetensors holds numbers
_START = b'{"__metadata__":{"edgefl":"{\\"sha256\\": \\"'  # how the header of our files begins, the hash next
_HASH = slice(8 + len(_START), 8 + len(_START) + len(_UNSEALED))


def write_atomically(path: Path, data: bytes | bytearray | memoryview, *, private: bool = True) -> None:
    """After this returns, `path` holds exactly `data`, even if the power fails; before, what it held.

    What is not private is as readable as the umask makes it.
    """
    fresh = path.with_name(f".{path.name}.new")  # always the same: what a kill leaves behind is written over
    try:
        make_folder(path.parent, private=private)
        before_write()
        fresh.unlink(missing_ok=True)
        with new_file(fresh, private=private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise StoreError(
            f"{path}: cannot be written ({error.strerror}); free some space or choose another folder"
        ) from None


def new_file(path: Path, *, private: bool) -> BinaryIO:
    """Make a new file, never the target of a link of this name; it is private from the beginning."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, OURS if private else 0o666)
    if private:
        close_to_others(handle)
    return os.fdopen(handle, "wb")


def create_atomically(path: Path, data: bytes | bytearray | memoryview) -> bool:
    """Whether `path` holds exactly `data` because there was nothing before; OSError if it cannot be written."""
    make_folder(path.parent)
    before_write()
    handle, fresh = mkstemp(dir=path.parent, prefix=f".{path.name}.")  # which no other user can read
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        Path(fresh).unlink()
        sync_folder(path.parent)
    return True


def make_folder(folder: Path, *, private: bool = True) -> None:
    """After this returns, the folder is there, and so it is after a power cut; one that was there stays as it was."""
    if folder.is_dir():
        return
    fresh = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in fresh:
        if private:
            path.chmod(0o700)
        sync_folder(path.parent)


def make_private(folder: Path) -> None:
    """The folder, and the files in it, are there for their owner alone; what an older version left open is closed."""
    make_folder(folder)
    if not (loose := [path for path in (folder, *folder.iterdir()) if _open_to_others(path)]):
        return
    try:
        for path in loose:
            path.chmod(S_IMODE(path.stat().st_mode) & 0o700)
    except PermissionError:  # not ours: only its owner or root may
        log.warning("can be read by others and belongs to another user, chmod -R go-rwx folder=%s", folder)
    else:
        log.info("could be read by others, closed folder=%s files=%d", folder, len(loose))


def _open_to_others(path: Path) -> bool:
    return not path.is_symlink() and path.exists() and bool(path.stat().st_mode & 0o077)


def save(path: Path, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
    """Write arrays and what is to be known about them."""
    write_atomically(path, sealed(arrays, about))


def load(path: Path) -> tuple[State, dict[str, Any]]:
    """The arrays of a file, and what was to be known about them."""
    return opened(read(path, LARGEST_MODEL), str(path))


def read(path: Path, most: int) -> bytes:
    """Return the bytes of a file; raise `StoreError` if there are more than `most`."""
    try:
        if path.stat().st_size > most:
            raise StoreError(f"{path}: larger than {most >> 20} MB, which no file of ours of its kind is")
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from None


def sealed(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> bytes:
    """Arrays and what is to be known about them as a safetensors file with its hash in the metadata."""
    numbers = {k: np.asarray(v, order="C") for k, v in arrays.items() if v.dtype.kind != "U"}
    words = {k: v.tolist() for k, v in arrays.items() if v.dtype.kind == "U"}
    if large := [name for name, array in arrays.items() if array.dtype.kind == "U" and array.nbytes > MOST_WORDS]:
        raise StoreError(f"the words '{large[0]}' take more than {MOST_WORDS >> 20} MB; shorten the longest")
    told = json.dumps({"sha256": _UNSEALED, "about": dict(about), "words": words})
    if len(told) > MOST_HEADER // 2:  # twice as long at most where it stands as a text in JSON
        raise StoreError(f"what is to be kept beside the arrays takes more than {MOST_HEADER >> 21} MB")
    data = bytearray(_packed(numbers, {_ABOUT: told}))  # one key: of several the order would be random
    if not data.startswith(_START, 8):
        raise StoreError("this version of safetensors writes its metadata elsewhere: install the one edgefl asks for")
    data[_HASH] = _hashed(data).encode()
    return bytes(data)


def seal(raw: bytes) -> str:
    """The hash that stands in a sealed file."""
    return raw[_HASH].decode("ascii", "replace")


def opened(raw: bytes, origin: str) -> tuple[State, dict[str, Any]]:
    """What was sealed, if nothing has changed since; `origin` stands in the message if something has."""
    if not is_sealed(raw) or _hashed(raw) != seal(raw):
        raise StoreError(f"{origin}: damaged, its hash does not agree; delete it to begin anew")
    arrays, metadata = _unpacked(raw, origin)
    try:
        told = parse_json(metadata[_ABOUT])
        return _with_words(arrays, told["words"]), told["about"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # another program made it, with the right hash
        raise StoreError(f"{origin}: not one of our files ({type(error).__name__})") from None


def is_sealed(raw: bytes) -> bool:
    """Whether it was sealed here, by this version or a later one."""
    return raw.startswith(_START, 8)


def plain(raw: bytes, origin: str) -> State:
    """Return the arrays of a safetensors file that another program wrote."""
    from safetensors import SafetensorError  # noqa: PLC0415 - as in `_packed`
    from safetensors.numpy import load as unpack  # noqa: PLC0415

    try:
        return dict(unpack(raw))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:  # numpy has no bfloat16
        words = " ".join(str(error).split())[:100]
        raise StoreError(f"{origin}: cannot be read as safetensors of float32 or float16 ({words})") from None


def _hashed(data: bytes | bytearray) -> str:
    """The hash of a file, as if there were none in it."""
    view, whole = memoryview(data), sha256()
    for part in (view[: _HASH.start], _UNSEALED.encode(), view[_HASH.stop :]):
        whole.update(part)
    return whole.hexdigest()


def _packed(numbers: Mapping[str, Array], metadata: dict[str, str]) -> bytes:
    """A safetensors file.

    Most devices keep no arrays from round to round. Without any, a file is its header, and an agent does without the
    library: a megabyte.
    """
    if numbers:
        from safetensors.numpy import save as pack  # noqa: PLC0415

        return pack(dict(numbers), metadata=metadata)
    header = json.dumps({_METADATA: metadata}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def _unpacked(data: bytes, origin: str) -> tuple[State, dict[str, str]]:
    try:
        end = 8 + int.from_bytes(data[:8], "little")
        if end > MOST_HEADER:
            raise ValueError(end)
        header = parse_json(data[8:end])
        alone = set(header) == {_METADATA} and end == len(data)
        return {} if alone else _arrays(data), header[_METADATA]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{origin}: not one of our files ({type(error).__name__})") from None


def _arrays(data: bytes) -> State:
    from safetensors import SafetensorError  # noqa: PLC0415 - as in `_packed`
    from safetensors.numpy import load as unpack  # noqa: PLC0415

    try:
        return dict(unpack(data))
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def _size_of(values: Any) -> int:  # Any: lists of words, or of such lists, as JSON has them
    """Return how many bytes an array of these words takes."""
    while isinstance(values, list) and any(isinstance(value, list) for value in values):
        values = [word for value in values for word in (value if isinstance(value, list) else [value])]
    return 4 * len(values) * max(map(len, values), default=0)


def _with_words(arrays: State, words: Mapping[str, Any]) -> State:
    for name, values in words.items():
        if _size_of(values) > MOST_WORDS:
            raise ValueError(f"the words '{name}' take too much")
        arrays[name] = np.zeros(0, "U1") if values == [] else np.array(values, dtype=str)
    return arrays
