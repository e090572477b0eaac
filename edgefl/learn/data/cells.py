"""What stands in one cell of a table: a number, nothing, a time, or a text."""

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from math import nan
from typing import TypeAlias

Cell: TypeAlias = str | float | int | bool | Decimal | date | datetime | bytes | None

NOTHING = frozenset({"", "na", "n/a", "nan", "null", "none", "-", "?"})  # what people and programs write for no value
UNLABELLED = frozenset({"", "nan", "null", "n/a"})  # the same of labels: "none" may well be a class

_CLOCK = r"(?:[T ]\s*(?P<h>\d{1,2}):(?P<min>\d\d)(?::(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?)?)?"
_ZONE = r"\s*(?P<zone>Z|[+-]\d\d:?\d\d)?"
_DATES = (
    re.compile(r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})" + _CLOCK + _ZONE),
    re.compile(r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})" + _CLOCK + _ZONE),
)
_SLASHES = re.compile(r"(?P<a>\d{1,2})/(?P<b>\d{1,2})/(?P<y>\d{4})" + _CLOCK + _ZONE)
_CLOCK_ALONE = re.compile(r"\d{1,2}:\d\d(:\d\d([.,]\d+)?)?")


def is_number(cell: Cell) -> bool:
    """Whether a cell can be read as a number as it stands."""
    try:
        float(cell)  # type: ignore[arg-type]  # whatever is no number raises
    except (TypeError, ValueError):
        return False
    return not isinstance(cell, bytes)


def number(cell: Cell) -> float:
    """The number in a cell; NaN if there is nothing in it; ValueError if it is something else."""
    if isinstance(cell, str):
        return nan if cell.strip().lower() in NOTHING else float(cell)
    if cell is None:
        return nan
    if isinstance(cell, int | float | Decimal):
        return float(cell)
    raise ValueError(f"{type(cell).__name__} is no number")


def label(cell: Cell) -> str:
    """The text of a label; empty if there is none."""
    text = "" if cell is None else str(cell).strip()
    return "" if text.lower() in UNLABELLED else text


def looks_like_time(cell: Cell) -> bool:
    """Whether a cell holds a date, or a time of day."""
    if not isinstance(cell, str):
        return isinstance(cell, date)
    return bool(_SLASHES.fullmatch(cell) or _CLOCK_ALONE.fullmatch(cell) or any(p.fullmatch(cell) for p in _DATES))


def seconds(cell: Cell, *, day_first: bool | None = None) -> float:
    """When that was: a number as it is, a date as seconds since 1970 (UTC unless it says otherwise).

    NaN if the cell is empty; ValueError, whose text says what to do, if it is no time.
    """
    if isinstance(cell, str) and not is_number(cell):
        return nan if cell.strip().lower() in NOTHING else _of_text(cell.strip(), day_first)
    if isinstance(cell, date):
        moment = cell if isinstance(cell, datetime) else datetime(cell.year, cell.month, cell.day)
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    try:
        return number(cell)
    except ValueError:
        raise ValueError("is no time; give dates such as 2026-11-01 10:00:00, or seconds") from None


def _of_text(text: str, day_first: bool | None) -> float:
    match = next((m for p in _DATES if (m := p.fullmatch(text))), None)
    if match is not None:
        return _moment(match, int(match["m"]), int(match["d"]))
    if match := _SLASHES.fullmatch(text):
        if day_first is None:
            raise ValueError("may have its day or its month first; set data.day_first = true or false")
        day, month = (match["a"], match["b"]) if day_first else (match["b"], match["a"])
        return _moment(match, int(month), int(day))
    if _CLOCK_ALONE.fullmatch(text):
        raise ValueError("is a time without its day; give both in one column, or seconds")
    raise ValueError("is no time; give dates such as 2026-11-01 10:00:00, or seconds")


def _moment(match: re.Match[str], month: int, day: int) -> float:
    clock = int(match["h"] or 0), int(match["min"] or 0), int(match["s"] or 0)
    moment = datetime(int(match["y"]), month, day, *clock, tzinfo=_zone(match["zone"]))  # ValueError: no such day
    return moment.timestamp() + float(f"0.{match['f'] or 0}")


def _zone(text: str | None) -> timezone:
    if text in {None, "", "Z"}:
        return timezone.utc
    digits = (text or "").replace(":", "")
    away = timedelta(hours=int(digits[1:3]), minutes=int(digits[3:5]))
    return timezone(-away if digits[0] == "-" else away)
