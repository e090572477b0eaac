"""metrics.jsonl: a line for each round, each evaluation by devices and the end, each once.

Lines of schema 2 say `"schema": 2` and have all figures of a model in `scores`. In schema 1, which had no such key, the
common figures were keys beside it. A file of schema 1 is read as well, and goes on in schema 2.

A run that was extended goes on behind its first end, and has another one: the last counts.
"""

import json
import logging
from collections.abc import Iterator

from edgefl.base.errors import StoreError
from edgefl.base.events import Fact, as_json, from_json
from edgefl.base.report_numbers import LastReports, Report
from edgefl.system.disk import Disk
from edgefl.system.json_text import parse_json

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
LARGEST = 512 << 20  # bytes of it that are read: of some 200,000 rounds
SCHEMA = 2


class MetricsFile:
    """Is told every fact, and writes down those that belong there and are not there yet."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        there = list(_lines(disk.read(METRICS) or b""))
        self._written, self._size = LastReports().add(*(fact for fact, _ in there)), sum(size for _, size in there)
        self._unwritten: list[bytes] = []

    def __call__(self, *facts: Fact) -> None:
        for fact in facts:
            if isinstance(fact, Report) and not self._written.has(fact):
                self._written.add(fact)
                self._unwritten.append(as_line(fact))
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


def as_line(fact: Report) -> bytes:
    """One line of the file."""
    return json.dumps({"schema": SCHEMA, **as_json(fact)}).encode() + b"\n"


class MetricsReader:
    """Reads a file that grows: each time what is new."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self._size = disk, 0

    def read_on(self) -> list[Report]:
        """The lines that have come since, as far as they are whole."""
        if (self._disk.size(METRICS) or 0) > LARGEST:
            where = self._disk.where(METRICS)
            raise StoreError(f"{where}: larger than {LARGEST >> 20} MB, which the metrics of no run are")
        lines = list(_lines(self._disk.read(METRICS, self._size) or b""))
        self._size += sum(size for _, size in lines)
        return [fact for fact, _ in lines]


def reports(disk: Disk) -> list[Report]:
    """What stands there, as far as it can be read."""
    return MetricsReader(disk).read_on()


def _lines(known: bytes) -> Iterator[tuple[Report, int]]:
    """Each line that is there, and how many bytes it takes: up to the first that a power cut spoiled."""
    for line in known.splitlines(keepends=True):
        try:
            fact = from_json(parse_json(line.decode()))
        except (ValueError, TypeError, KeyError):
            return
        if not line.endswith(b"\n") or not isinstance(fact, Report):
            return
        yield fact, len(line)
