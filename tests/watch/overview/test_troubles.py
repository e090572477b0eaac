"""Which devices need a person: in the overview, and in every reader of it."""

import json

import pytest
from test_overview import STARTED, told

from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.watch.exporters.prometheus import standing_of, text
from edgefl.watch.overview.answer_times import AnswerTime, Pace, paces
from edgefl.watch.overview.rows import DeviceRow
from edgefl.watch.overview.snapshot import plain, read
from edgefl.watch.overview.troubles import NOT_IN_RUN, not_in_run, trouble_with

MARCH = 1772539200.0  # 3 March 2026, 12:00 UTC
NOW = MARCH + 86400.0


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def row(*facts: Fact) -> DeviceRow:
    return told(STARTED, *facts).devices["a"]


def words(*facts: Fact) -> str:
    trouble = trouble_with(row(*facts), NOW)
    return trouble.text if trouble else ""


def test_members_have_a_row_before_they_come() -> None:
    overview = told(STARTED, events.Joined("a", at=2.0), events.Enrolled(("a", "b", "c"), at=3.0))
    states = {name: (one.state, one.why) for name, one in overview.devices.items()}
    assert states == {"a": ("idle", ""), "b": ("offline", "not seen in this run"), "c": states["b"]}
    overview.tell(events.Joined("b", at=4.0))
    overview.tell(events.Enrolled(("a", "b", "c"), at=5.0))
    assert overview.devices["b"].state == "idle"


def test_a_device_without_usable_data_is_there_and_cannot_train() -> None:
    broken = events.DataBroken("a", "line 32", None, "0.2", "shed", at=MARCH)
    one = row(broken)
    assert (one.state, one.why, one.data_since, one.version, one.host) == ("no data", "line 32", MARCH, "0.2", "shed")
    assert words(broken) == "has no usable data: line 32"
    joined = events.Joined("a", at=MARCH + 1)
    assert (row(broken, joined).state, words(broken, joined)) == ("idle", "")


def test_stale_data_have_a_date_until_they_are_mended() -> None:
    joined = events.Joined("a", at=MARCH, stale=True)
    broken = events.DataBroken("a", "line 32", MARCH, at=MARCH + 9)
    assert words(joined, broken) == "trains on samples from 3 March 2026: line 32"
    again = events.DataBroken("a", "line 32", MARCH, at=MARCH + 99)
    assert row(joined, broken, joined, again).data_since == MARCH + 9, "the coordinator was restarted"
    other = events.DataBroken("a", "line 33", MARCH, at=MARCH + 99)
    assert (row(joined, broken, other).data_since, words(joined, broken, other)[-7:]) == (MARCH + 9, "line 33")
    assert words(joined, broken, events.DataMended("a", at=NOW)) == ""
    assert row(joined, broken).state == "idle"


def test_a_device_that_may_not_take_part_is_listed_with_its_version_and_since_when() -> None:
    why = "device 'a' speaks protocol 2, the coordinator 3"
    refused = events.Refused("a", "protocol.version", why, barred=True, version="0.0.9", host="shed", at=MARCH)
    one = row(refused)
    assert (one.state, one.version, one.host, one.since, one.strikes) == ("barred", "0.0.9", "shed", MARCH, 0)
    assert words(refused) == f"does not take part: {why}"
    there = row(events.Joined("a", at=1.0), refused)
    assert there.state == "idle", "another one with this name came"


def test_nothing_is_wrong_with_a_device_that_is_not_in_this_run() -> None:
    refused = events.Refused("a", "device.not_in_run", f"{NOT_IN_RUN}: others are", barred=True, at=MARCH)
    assert not_in_run(row(refused))
    assert words(refused) == ""


def test_a_certificate_that_has_ended_is_a_trouble_since_its_end() -> None:
    expired = events.Expired("a", MARCH, "do this", at=NOW)
    assert words(expired) == "cannot connect: its certificate expired on 3 March 2026: do this"
    assert row(expired).since == MARCH


def test_a_reader_elsewhere_gets_all_of_it() -> None:
    overview = told(STARTED, events.DataBroken("a", "line 32", None, at=MARCH), events.Expired("b", MARCH, at=NOW))
    shown = plain(overview.snapshot())
    again = read(json.dumps(shown).encode(), "test")
    assert [trouble_with(one, NOW) for one in again.devices] == [
        trouble_with(one, NOW) for one in overview.devices.values()
    ]


def test_prometheus_has_the_devices_whose_data_are_broken() -> None:
    overview = told(
        STARTED,
        events.Joined("a", at=1.0, stale=True),
        events.DataBroken("a", "line 32", MARCH, at=MARCH),
        events.DataBroken("b", "line 32", None, at=MARCH),
        events.Refused("c", "protocol.version", "old", barred=True, at=MARCH),
        events.Joined("d", at=1.0),
    )
    lines = text(standing_of(overview)).splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    broken = {name: figures[f'edgefl_device_data_broken{{run="sensors",device="{name}"}}'] for name in "abcd"}
    assert broken == {"a": "1.0", "b": "1.0", "c": "0.0", "d": "0.0"}
    up = {name: figures[f'edgefl_device_up{{run="sensors",device="{name}"}}'] for name in "abcd"}
    assert up == {"a": "1.0", "b": "1.0", "c": "0.0", "d": "1.0"}
    assert figures['edgefl_devices{run="sensors",state="no data"}'] == "1.0"


# ── who is slow now and then ─────────────────────────────────────────────────────────────────────────────────


def pace(slow_rounds: int, rounds: int, took: float = 6.0, cohort: int = 4) -> Pace:
    """Of a device that takes so long in its first rounds, and as long as the others in the rest."""
    usual = [
        AnswerTime(f"d{i}", number, 0.0, 0.5, None, late=False) for i in range(cohort - 1) for number in range(rounds)
    ]
    own = [AnswerTime("a", n, 0.0, took if n < slow_rounds else 0.5, None, late=False) for n in range(rounds)]
    return next(one for one in paces([*usual, *own], {}) if one.device == "a")


@pytest.mark.parametrize("rounds", [100, 1000])
def test_a_device_that_made_nine_rounds_wait_is_named_whatever_its_median(rounds: int) -> None:
    one = pace(9, rounds)
    assert (one.median_took, one.times_cohort, one.held_up, one.slow) == (0.5, 1.0, 9, True)
    others = [p for p in paces([AnswerTime("b", 1, 0.0, 0.5, None, late=False)], {}) if p.slow]
    assert not others


@pytest.mark.parametrize(("slow_rounds", "rounds", "took"), [(2, 100, 6.0), (8, 1000, 6.0), (9, 100, 1.2)])
def test_a_hiccup_is_no_slowness(slow_rounds: int, rounds: int, took: float) -> None:
    assert not pace(slow_rounds, rounds, took).slow


def test_in_a_cohort_of_two_a_slow_device_is_measured_by_the_other() -> None:
    assert pace(9, 100, cohort=2).held_up == 9
