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

_TEXT = "text:"  # safetensors holds numbers; arrays of words travel as JSON beside them


def write_atomically(path: Path, data: bytes) -> None:
    """After this returns, `path` holds exactly `data`, even if the power fails; before, what it held."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before_write()
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise StoreError(
            f"{path}: cannot be written ({error.strerror}); free some space or choose another folder"
        ) from None


def save(path: Path, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
    """Write arrays and what is to be known about them."""
    numbers = {k: np.asarray(v, order="C") for k, v in arrays.items() if v.dtype.kind != "U"}
    words = {_TEXT + k: json.dumps(v.tolist()) for k, v in arrays.items() if v.dtype.kind == "U"}
    data = pack(numbers, metadata={"about": json.dumps(dict(about)), **words})
    write_atomically(path, sha256(data).digest() + data)


def load(path: Path) -> tuple[State, dict[str, Any]]:
    """The arrays of a file, and what was to be known about them."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from None
    hashed, data = raw[:32], raw[32:]
    if sha256(data).digest() != hashed:
        raise StoreError(f"{path}: damaged, its hash does not agree; delete it to begin anew")
    try:
        arrays: State = dict(unpack(data))
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size])["__metadata__"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise StoreError(f"{path}: not one of our files ({type(error).__name__})") from None
    for key, text in metadata.items():
        if key.startswith(_TEXT):
            words = json.loads(text)
            arrays[key.removeprefix(_TEXT)] = np.zeros(0, "U1") if words == [] else np.array(words, dtype=str)
    return arrays, json.loads(metadata["about"])
