"""When each device of a simulated fleet is there, from a file: the columns `device`, `from` and `to` of a csv.

    device,from,to                                             device,from,to
    device-00,0,3600                                           device-00,2026-11-17T22:00:00Z,2026-11-18T05:30:00Z
    device-00,7200,9000                                        device-01,2026-11-17T23:10:00Z,2026-11-18T04:00:00Z

Times are seconds since the run began, or all of them dates with a time (UTC unless they say otherwise), of which the
first in the file is second 0. Spans of a device that touch are one; a device without a line is never there.
"""

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from math import inf, isfinite
from pathlib import Path
from typing import NoReturn, TypeAlias

from edgefl.base.errors import ConfigError, nearest
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import device_names
from edgefl.system.user_files import located

COLUMNS = ("device", "from", "to")
LARGEST = 32 << 20  # bytes of a file that is read
LONGEST = 10_000  # characters of a line

Spans: TypeAlias = tuple[tuple[float, float], ...]  # from and to, in virtual seconds, one behind the other


@dataclass(frozen=True, slots=True)
class _TraceLine:
    """A line of the file: when a device is there."""

    number: int
    device: str
    begin: float
    end: float
    dated: bool  # its times are dates


def of_run(run: RunFile, devices: Collection[str] | None = None) -> dict[str, Spans] | None:
    """Return when each device of a simulated run is there; None if the run file names no trace."""
    if run.fleet is None or run.fleet.trace is None:
        return None
    if devices is None:
        devices = device_names(run.task.partition.devices) if run.task.partition else ()
    return read(located(run.fleet.trace), devices)


def read(path: Path, devices: Collection[str]) -> dict[str, Spans]:
    """Return when each of these devices is there; raise `ConfigError` with file and line where that is not said."""
    lines = list(_lines(path, devices))
    if not lines:
        raise ConfigError(f"{path}: no line below the heading says when a device is there")
    first = lines[0]
    if other := next((line for line in lines if line.dated is not first.dated), None):
        kinds = ("dates", "seconds") if other.dated else ("seconds", "dates")
        _wrong(path, other.number, f"times are {kinds[0]} here and {kinds[1]} in line {first.number}: write one kind")
    zero = min(line.begin for line in lines) if first.dated else 0.0
    by_device: dict[str, list[_TraceLine]] = {name: [] for name in devices}
    for line in lines:
        by_device[line.device].append(line)
    return {name: _joined(path, of_device, zero) for name, of_device in by_device.items()}


def _joined(path: Path, lines: list[_TraceLine], zero: float) -> Spans:
    """Return the spans of one device in their order; those that touch are one."""
    spans: list[tuple[float, float]] = []
    before: _TraceLine | None = None
    for line in sorted(lines, key=lambda one: (one.begin, one.end)):
        if before is not None and line.begin < before.end:
            _wrong(path, line.number, f"'{line.device}' is there already, as line {before.number} says: join the two")
        begin = line.begin - zero
        if spans and spans[-1][1] == begin:
            begin = spans.pop()[0]
        spans.append((begin, line.end - zero))
        before = line
    return tuple(spans)


def _lines(path: Path, devices: Collection[str]) -> Iterator[_TraceLine]:
    known, rows = frozenset(devices), _rows(path)
    places = _places(path, [cell.strip().lower() for cell in next(rows, (1, []))[1]])
    for number, row in rows:
        if any(cell.strip() for cell in row):
            yield _line(path, number, row, places, known)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Return the cells of each line with its number; no cell goes over the end of a line."""
    number = 0
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path}: larger than {LARGEST >> 20} MiB; a trace has a line for each span of a device")
        with path.open(encoding="utf-8-sig") as file:
            while line := file.readline(LONGEST + 1):
                number += 1
                if len(line) > LONGEST:
                    _wrong(path, number, f"longer than {LONGEST} characters")
                yield number, next(csv.reader([line], strict=True), [])
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); fleet.trace names a csv file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text in UTF-8; fleet.trace names a csv file") from None
    except csv.Error as error:
        raise ConfigError(f"{path}, line {number}: not csv ({error})") from None


def _places(path: Path, heading: list[str]) -> tuple[int, ...]:
    for name in COLUMNS:
        if heading.count(name) != 1:
            what = "no column" if name not in heading else "two columns"
            _wrong(path, 1, f"{what} '{name}': the heading is {','.join(COLUMNS)}, in any order")
    return tuple(heading.index(name) for name in COLUMNS)


def _line(path: Path, number: int, row: list[str], places: tuple[int, ...], known: frozenset[str]) -> _TraceLine:
    if len(row) <= max(places):
        _wrong(path, number, f"{len(row)} cells, of which one has to be '{COLUMNS[places.index(max(places))]}'")
    device, *times = (row[place].strip() for place in places)
    if device not in known:
        close = nearest(device, known) if len(known) <= 20 else f"they are called as '{min(known)}' is"
        _wrong(path, number, f"the run has no device '{device}'; {close}")
    (begin, dated), (end, end_dated) = (
        _time(path, number, name, text) for name, text in zip(COLUMNS[1:], times, strict=True)
    )
    if dated is not end_dated:
        _wrong(path, number, "one time is a date and the other a number of seconds: write one kind")
    if end <= begin:
        _wrong(path, number, f"to = {times[1]} is not later than from = {times[0]}")
    return _TraceLine(number, device, begin, end, dated)


def _time(path: Path, number: int, name: str, text: str) -> tuple[float, bool]:
    """Return seconds, and whether they were written as a date."""
    try:
        seconds = float(text)
    except ValueError:
        return _date(path, number, name, text), True
    if not isfinite(seconds) or seconds < 0:
        _wrong(path, number, f"{name} = {text}: give seconds since the run began, from 0 on")
    return seconds, False


def _date(path: Path, number: int, name: str, text: str) -> float:
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
    except ValueError:
        _wrong(path, number, f"{name} = '{text}': give seconds, or a date with a time as 2026-11-17T22:00:00Z")
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _wrong(path: Path, number: int, problem: str) -> NoReturn:
    raise ConfigError(f"{path}, line {number}: {problem}")


def until(spans: Spans, moment: float) -> float:
    """Return when a device that is away at this moment is there again; infinity if it does not come back."""
    return next((begin for begin, _ in spans if begin > moment), inf)
