"""When devices come back: soon, never all at once, and never more slowly than promised."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.wire.reconnect import FIRST_DELAY, LONGEST_DELAY, LONGEST_SPREAD, PER_SECOND, Reconnect, spread

names = st.text("abcdef0123456789-", min_size=1, max_size=40)


def busiest(moments: list[float], window: float = 1.0) -> int:
    """The most moments that fall into one window, wherever it begins."""
    moments = sorted(moments)
    return max(sum(begin <= m < begin + window for m in moments) for begin in moments)


@given(names, st.lists(st.booleans(), min_size=1, max_size=40), st.floats(0, 60))
def test_no_wait_is_longer_than_the_cap_and_the_spread(who: str, connections: list[bool], seconds: float) -> None:
    pace = Reconnect(who, seconds)
    for was_made in connections:
        wait = pace.lost(1.0) if was_made else pace.failed()
        assert FIRST_DELAY / 2 <= wait <= LONGEST_DELAY + (seconds if was_made else 0.0)


@given(names)
def test_attempts_that_fail_come_ever_more_slowly_up_to_the_cap(who: str) -> None:
    pace = Reconnect(who)
    waits = [pace.failed() for _ in range(20)]
    assert waits[0] <= FIRST_DELAY
    assert all(later >= earlier / 2 for earlier, later in pairwise(waits))
    assert all(LONGEST_DELAY / 2 <= wait <= LONGEST_DELAY for wait in waits[7:])


@given(names)
def test_a_connection_that_held_is_come_back_to_quickly(who: str) -> None:
    pace = Reconnect(who)
    for _ in range(10):
        pace.failed()
    assert pace.lost(LONGEST_DELAY + 1) <= FIRST_DELAY


@settings(max_examples=20, deadline=None)
@given(st.integers(100, 3000), st.integers(0, 2**32))
def test_a_fleet_that_is_lost_at_once_comes_back_at_the_pace_of_a_small_server(devices: int, seed: int) -> None:
    back = [Reconnect(f"device-{n}-{seed:08x}", spread(devices)).lost(100.0) for n in range(devices)]
    assert max(back) <= spread(devices) + FIRST_DELAY
    counts = Counter(int(moment) for moment in back)
    assert max(counts.values()) <= 1.6 * PER_SECOND


def test_a_broker_that_is_away_for_a_while_finds_them_out_of_step() -> None:
    away, devices = 40.0, 1000
    back = []
    for n in range(devices):
        pace = Reconnect(f"device-{n}-5f3a", spread(devices))
        moment = pace.lost(100.0)
        while moment < away:
            moment += pace.failed()
        back.append(moment - away)
    assert max(back) <= LONGEST_DELAY
    assert busiest(back) <= 2.5 * devices / LONGEST_DELAY


def test_without_a_word_from_the_coordinator_they_would_all_come_at_once() -> None:
    back = [Reconnect(f"device-{n}-5f3a").lost(100.0) for n in range(1000)]
    assert busiest(back) == 1000


@pytest.mark.parametrize(("devices", "seconds"), [(0, 0.0), (8, 0.08), (1000, 10.0), (100_000, LONGEST_SPREAD)])
def test_the_spread_grows_with_the_fleet_and_a_small_one_does_not_feel_it(devices: int, seconds: float) -> None:
    assert spread(devices) == seconds


def test_every_time_the_places_are_others() -> None:
    first = Reconnect("device-1", 10.0)
    assert len({round(first.lost(100.0), 3) for _ in range(10)}) == 10
