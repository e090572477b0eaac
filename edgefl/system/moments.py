"""Moments as people say them: `tuesday`, `2026-11-17`, `3h`; and as they are shown, always with their time zone."""

import re
from datetime import datetime, timedelta

from edgefl.base.errors import ConfigError

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SPAN = r"(\d{1,6}(?:\.\d+)?) ?(s|min|m|h|d)"
KNOWN = "today, yesterday, a weekday, 2026-11-17, 2026-11-17T14:30, or 30s, 10m, 1h30m, 2d ago"


def shown(at: float | None) -> str:
    """Day, time and zone, as this machine has them."""
    return "-" if at is None else f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def date(at: float) -> str:
    """The day, as this machine has it."""
    day = datetime.fromtimestamp(at).astimezone()
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def ago(seconds: float) -> str:
    """How long that is, in one unit."""
    for most, unit, count in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if seconds < most:
            return f"{max(0.0, seconds) / count:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"


def moment(text: str, now: datetime, option: str) -> datetime:
    """When that was: a day is its beginning. `now` has a time zone, which is meant where none is said."""
    if (day := _day(text, now)) is not None:
        return day
    try:
        if re.fullmatch(rf"(?:{SPAN} ?)+", words := text.strip().lower()):
            return now - timedelta(seconds=sum(float(count) * UNITS[unit] for count, unit in re.findall(SPAN, words)))
        at = datetime.fromisoformat(text.strip())
        return at.astimezone() if at.tzinfo else at.replace(tzinfo=now.tzinfo)
    except (ValueError, OverflowError):
        raise ConfigError(f"{option} {text}: say {KNOWN}") from None


def day(text: str, now: datetime, option: str) -> tuple[datetime, datetime]:
    """The beginning of that day, and of the next one."""
    start = _day(text, now)
    if start is None:
        start = _midnight(moment(text, now, option))
    return start, _midnight(start + timedelta(days=1))


def _day(text: str, now: datetime) -> datetime | None:
    """A day by its name: of weekdays the last one, today included."""
    word, today = text.strip().lower(), _midnight(now)
    if word in ("today", "yesterday"):
        return today if word == "today" else _midnight(today - timedelta(days=1))
    names = [number for number, name in enumerate(DAYS) if len(word) >= 3 and name.startswith(word)]
    if len(names) != 1:
        return None
    return _midnight(today - timedelta(days=(today.weekday() - names[0]) % 7))


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
