"""Finished runs on disk, one line each: a comparison that is interrupted, or asked again, plays nothing twice.

results.jsonl   the finished ones
unfinished/     for each run in hand that is long enough, what it needs to go on (edgefl/sim/run_folder.py)
"""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

from edgefl.base.errors import StoreError
from edgefl.base.events import Done, Round, from_json
from edgefl.job.config.schema import RunFile
from edgefl.job.run.fingerprint import digest
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.system.json_text import parse_json

log = logging.getLogger(__name__)

NAME = "results.jsonl"
UNFINISHED = "unfinished"


class ResultCache:
    """The finished runs of a folder."""

    def __init__(self, folder: Path, root: Path | None, *, fresh: bool = False) -> None:
        self.path, self.unfinished, self.root = folder / NAME, folder / UNFINISHED, root
        self.known: dict[str, PlayedRun] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            raw = self.path.read_bytes() if self.path.exists() else b""
            whole = raw[: raw.rfind(b"\n") + 1]  # a power cut may have torn the last line
            if len(whole) < len(raw):
                os.truncate(self.path, len(whole))
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be used ({error.strerror}); choose another --out") from None
        if fresh:
            rmtree(self.unfinished, ignore_errors=True)
        else:
            self.known = dict(_read(whole, self.path))

    def find(self, run: RunFile) -> PlayedRun | None:
        """The run, if it was played before."""
        return self.known.get(digest(run, self.root))

    def add(self, run: RunFile, played: PlayedRun) -> None:
        """After this returns, the run is on disk."""
        line = json.dumps({"key": digest(run, self.root), **played.as_json()}).encode() + b"\n"
        try:
            with self.path.open("ab", buffering=0) as file:
                file.write(line)
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({error.strerror}); free some space") from None
        rmtree(place(self.unfinished, run, self.root), ignore_errors=True)


def place(unfinished: Path, run: RunFile, root: Path | None) -> Path:
    """Where a run is kept until it has ended."""
    return unfinished / digest(run, root)[:16]


def _played(told: dict[str, Any]) -> PlayedRun:
    """The run behind a line."""
    first, done = from_json(told["first"]) if told["first"] else None, from_json(told["done"])
    if not isinstance(done, Done) or not isinstance(first, Round | None):
        raise TypeError(f"a run ends with {type(done).__name__}")
    rounds = tuple(fact for report in told["rounds"] if isinstance(fact := from_json(report), Round))
    return PlayedRun(told["label"], told["seed"], rounds, done, told["split"], first, told.get("bounded_beside", 0))


def _read(lines: bytes, path: Path) -> Iterator[tuple[str, PlayedRun]]:
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            told: dict[str, Any] = parse_json(line)
            yield told["key"], _played(told)
        except (ValueError, KeyError, TypeError):  # noqa: PERF203 - each line stands for itself
            log.warning("passed over a line that is damaged file=%s line=%d", path, number)
