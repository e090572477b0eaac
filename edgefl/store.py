"""Named arrays on disk: safetensors, written whole or not at all, and trusted only when their hash agrees."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

from edgefl.errors import StoreError
from edgefl.faults import before_write
from edgefl.vector import Array, State

_ABOUT = "about"  # the one key of the metadata; arrays of words stand there too, because safetensors holds numbers


def write_atomically(path: Path, data: bytes) -> None:
    """After this returns, `path` holds exactly `data`, even if the power fails; before, what it held."""
    fresh = path.with_name(f".{path.name}.new")  # always the same: what a kill leaves behind is written over
    try:
        make_folder(path.parent)
        before_write()
        with fresh.open("wb") as file:
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


def make_folder(folder: Path) -> None:
    """After this returns, the folder is there, and so it is after a power cut."""
    fresh = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in fresh:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """After this returns, the names in the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save(path: Path, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
    """Write arrays and what is to be known about them."""
    write_atomically(path, sealed(arrays, about))


def load(path: Path) -> tuple[State, dict[str, Any]]:
    """The arrays of a file, and what was to be known about them."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from None
    return opened(raw, str(path))


def sealed(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> bytes:
    """Arrays and what is to be known about them as bytes, their hash in front."""
    numbers = {k: np.asarray(v, order="C") for k, v in arrays.items() if v.dtype.kind != "U"}
    words = {k: v.tolist() for k, v in arrays.items() if v.dtype.kind == "U"}
    data = pack(numbers, metadata={_ABOUT: json.dumps([dict(about), words])})
    return sha256(data).digest() + data


def opened(raw: bytes, origin: str) -> tuple[State, dict[str, Any]]:
    """What was sealed, if nothing has changed since; `origin` stands in the message if something has."""
    hashed, data = raw[:32], raw[32:]
    if sha256(data).digest() != hashed:
        raise StoreError(f"{origin}: damaged, its hash does not agree; delete it to begin anew")
    try:
        arrays: State = dict(unpack(data))
        size = int.from_bytes(data[:8], "little")
        about, words = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_ABOUT])
    except (SafetensorError, ValueError, KeyError) as error:
        raise StoreError(f"{origin}: not one of our files ({type(error).__name__})") from None
    for name, values in words.items():
        arrays[name] = np.zeros(0, "U1") if values == [] else np.array(values, dtype=str)
    return arrays, about
