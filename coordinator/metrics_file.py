"""metrics.jsonl: a line for each round and one for the end, each once, whatever was interrupted."""

import json
import logging

from edgefl.errors import StoreError
from edgefl.events import Done, Fact, Round, as_json, from_json
from edgefl.system.disk import Disk

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"


class MetricsFile:
    """Is told every fact, and writes down those that belong there and are not there yet."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._written, self._size = _lines(disk.read(METRICS) or b"")
        self._unwritten: list[bytes] = []

    def __call__(self, fact: Fact) -> None:
        if isinstance(fact, Round | Done) and _number(fact) not in self._written:
            self._written.add(_number(fact))
            self._unwritten.append(json.dumps(as_json(fact)).encode() + b"\n")
        if self._unwritten:
            self._write(b"".join(self._unwritten))

    def _write(self, lines: bytes) -> None:
        """All of it, or nothing: on a full disk it is tried again with the next fact.

        It is durable at once: after a power cut only the rounds of the newest checkpoint are told again.
        """
        try:
            if (self._disk.size(METRICS) or 0) > self._size:
                self._disk.truncate(METRICS, self._size)
            self._disk.append(METRICS, lines)
        except StoreError as error:
            log.warning("metrics wait why=%s", error)
        else:
            self._size += len(lines)
            self._unwritten.clear()


def _lines(known: bytes) -> tuple[set[int | None], int]:
    """Which lines are there, and how many bytes they take: up to the first that a power cut spoiled."""
    written: set[int | None] = set()
    size = 0
    for line in known.splitlines(keepends=True):
        try:
            fact = from_json(json.loads(line.decode()))
        except (ValueError, TypeError, KeyError):
            break
        if not line.endswith(b"\n"):
            break
        written.add(_number(fact))
        size += len(line)
    return written, size


def _number(fact: Fact) -> int | None:
    """Which line this is: a round's, or the last one."""
    return fact.round if isinstance(fact, Round) else None
