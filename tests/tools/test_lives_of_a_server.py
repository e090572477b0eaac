"""Lives of a server in which everything goes wrong; `make dst` plays more of them."""

import logging

import pytest

from tools.chaos_server.command import search
from tools.chaos_server.planted import BUGS
from tools.chaos_server.play import play


@pytest.fixture(autouse=True)
def nothing_is_logged():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_goes_wrong_no_rule_is_broken(seed):
    outcome = play(seed)
    assert not outcome.violation, "\n".join(outcome.story[-30:])


@pytest.mark.night
@pytest.mark.parametrize("seed", range(4, 60))
def test_nor_in_more_lives(seed):
    test_whatever_goes_wrong_no_rule_is_broken(seed)


def test_a_life_is_the_same_when_it_is_played_again():
    assert play(3) == play(3)


QUICK = ["rows-not-synced", "pause-is-forgotten", "one-too-many", "numbers-used-again", "restart-forgets-what-worked"]


@pytest.mark.parametrize("bug", [pytest.param(bug, marks=() if bug in QUICK else pytest.mark.night) for bug in BUGS])
def test_a_planted_bug_is_found(bug):
    assert search(bug, 20)[0] is not None
