"""Moments as people say them."""

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from edgefl.base.errors import ConfigError
from edgefl.system.moments import ago, day, moment, shown

ZONE = timezone(timedelta(hours=1))
NOW = datetime(2026, 11, 17, 15, 30, tzinfo=ZONE)  # a Tuesday


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("today", (2026, 11, 17)),
        ("yesterday", (2026, 11, 16)),
        ("tuesday", (2026, 11, 17)),
        ("Monday", (2026, 11, 16)),
        ("wed", (2026, 11, 11)),
        ("2026-11-01", (2026, 11, 1)),
        ("2026-11-17T14:30", (2026, 11, 17, 14, 30)),
        ("2026-11-17 14:30", (2026, 11, 17, 14, 30)),
        ("90min", (2026, 11, 17, 14, 0)),
        ("10m", (2026, 11, 17, 15, 20)),
        ("120s", (2026, 11, 17, 15, 28)),
        ("2 d", (2026, 11, 15, 15, 30)),
        ("1.5h", (2026, 11, 17, 14, 0)),
        ("1h30m", (2026, 11, 17, 14, 0)),
        ("1d 1h 30min", (2026, 11, 16, 14, 0)),
    ],
)
def test_a_moment_is_understood(text, at):
    assert moment(text, NOW, "--since") == datetime(*at, tzinfo=ZONE)


def test_a_zone_that_is_said_counts():
    assert moment("2026-11-17T14:30+00:00", NOW, "--since") == datetime(2026, 11, 17, 14, 30, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text", ["", "t", "soon", "2026-13-01", "-3h", "1e9d", "9999999d", "999999d", "1h30", "30m soon"]
)
def test_what_is_no_moment_is_said_to_be_none(text):
    with pytest.raises(ConfigError, match=rf"^--since {text}: say today, yesterday, a weekday"):
        moment(text, NOW, "--since")


def test_a_day_lasts_until_the_next_one_also_when_it_has_23_hours():
    start, end = day("2026-03-29", datetime(2026, 4, 2, tzinfo=ZoneInfo("Europe/Berlin")), "--on")
    assert (start.hour, end.hour, end.day) == (0, 0, 30)
    assert end.timestamp() - start.timestamp() == 23 * 3600
    start, end = day("2026-11-17T14:30", NOW, "--on")
    assert (start, end) == (datetime(2026, 11, 17, tzinfo=ZONE), datetime(2026, 11, 18, tzinfo=ZONE))


def test_a_moment_is_shown_with_its_zone(monkeypatch):
    assert shown(None) == "-"
    assert shown(0.0).split()[2]
    assert [ago(seconds) for seconds in (0, 90, 600, 7300, 86400 * 3)] == [
        "0 s ago",
        "90 s ago",
        "10 min ago",
        "2 h ago",
        "3 days ago",
    ]
