"""Finished runs on disk, one line each: a comparison that is interrupted, or asked again, plays nothing twice.

A run is known by a digest of what its result depends on: the run file with algorithm and seed, where its data are, our
own code, and the files of the user's that it names. What those import is not looked at.
"""

import json
import logging
import os
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import edgefl
from edgefl.comparison.outcomes import Played
from edgefl.config.schema import RunFile
from edgefl.data.catalog import FOLDERS, data_root
from edgefl.errors import StoreError
from edgefl.events import Done, Round, from_json
from edgefl.run import first_model
from edgefl.system import user_files

log = logging.getLogger(__name__)

NAME = "results.jsonl"
ELSEWHERE = {"broker", "page", "export", "devices"}  # what no result depends on
HEEDED = ("trust", "weight_cap", "norm_cap", "extra_cap")  # the guards of a simulation


class ResultCache:
    """The finished runs of a folder."""

    def __init__(self, folder: Path, root: Path | None, *, fresh: bool = False) -> None:
        self.path, self.root = folder / NAME, root
        self.known: dict[str, Played] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            raw = self.path.read_bytes() if self.path.exists() else b""
            whole = raw[: raw.rfind(b"\n") + 1]  # a power cut may have torn the last line
            if len(whole) < len(raw):
                os.truncate(self.path, len(whole))
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be used ({error.strerror}); choose another --out") from None
        if not fresh:
            self.known = dict(_read(whole, self.path))

    def find(self, run: RunFile) -> Played | None:
        """The run, if it was played before."""
        return self.known.get(digest(run, self.root))

    def add(self, run: RunFile, played: Played) -> None:
        """After this returns, the run is on disk."""
        line = json.dumps({"key": digest(run, self.root), **played.as_json()}).encode() + b"\n"
        try:
            with self.path.open("ab", buffering=0) as file:
                file.write(line)
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({error.strerror}); free some space") from None


def digest(run: RunFile, root: Path | None = None) -> str:
    """What two runs must share to be the same run."""
    table = run.model_dump(mode="json", exclude=ELSEWHERE)
    del table["run"]["folder"]
    table["guards"] = {key: table["guards"][key] for key in HEEDED}
    folder = str(data_root(root).resolve()) if run.task.data in FOLDERS else None
    words = {"run": table, "data": folder, "ours": _ours(), "theirs": [_version(file) for file in _theirs(run)]}
    return sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


@cache
def _ours() -> str:
    """Our own code: a result belongs to what made it."""
    digest, home = sha256(), Path(edgefl.__file__).parent
    for file in sorted([*home.rglob("*.py"), *(home.parent / "coordinator").glob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _theirs(run: RunFile) -> Iterator[Path]:
    """Files from outside that the run names: of its data, model, algorithm and stages."""
    for word in (run.task.data, run.task.model):
        kind, colon, rest = (word or "").partition(":")
        if kind in {"npz", "csv"}:
            yield user_files.located(Path(rest))
        elif colon:
            yield from _source(kind)
    if run.run.from_ is not None:
        yield first_model.locate(run)
    for part in (run.make_algorithm(), *run.make_stages()):
        if type(part).__module__.split(".")[0] != "edgefl":
            yield from _source(type(part).__module__)


def _source(module: str) -> Iterator[Path]:
    """The file of a module, on the path or beside the run; none if it cannot be found."""
    user_files.reach()
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    yield Path(spec.origin) if spec and spec.origin else Path(module.replace(".", "/") + ".py")


def _version(file: Path) -> str:
    """Which version of a file this is; data may be too large to be read for it."""
    if not file.is_file():
        return ""
    about = file.stat()
    return sha256(file.read_bytes()).hexdigest() if file.suffix == ".py" else f"{about.st_size} {about.st_mtime_ns}"


def _played(told: dict[str, Any]) -> Played:
    """The run behind a line."""
    first, done = from_json(told["first"]) if told["first"] else None, from_json(told["done"])
    if not isinstance(done, Done) or not isinstance(first, Round | None):
        raise TypeError(f"a run ends with {type(done).__name__}")
    rounds = tuple(fact for report in told["rounds"] if isinstance(fact := from_json(report), Round))
    return Played(told["label"], told["seed"], rounds, done, told["split"], first)


def _read(lines: bytes, path: Path) -> Iterator[tuple[str, Played]]:
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            told: dict[str, Any] = json.loads(line)
            yield told["key"], _played(told)
        except (ValueError, KeyError, TypeError):  # noqa: PERF203 - each line stands for itself
            log.warning("passed over a line that is damaged file=%s line=%d", path, number)
