"""A reader drops the reports that it has, by the last number of each kind."""

import pytest

from edgefl.base.events import Described, Done, Evaluated, Fact, Joined, Round
from edgefl.base.report_numbers import LastReports, Report, number

DONE = Done("sensors", "fedgc", 2)
STORY: tuple[Report, ...] = Described(0), Evaluated(0), Round(1), Evaluated(1), Round(2), Evaluated(2), DONE


def new(known: LastReports, *facts: Fact) -> list[Fact]:
    """The facts that a reader takes in."""
    taken = []
    for fact in facts:
        if not known.has(fact):
            known.add(fact)
            taken.append(fact)
    return taken


def test_the_number_of_a_report_is_its_round():
    assert [number(fact) for fact in STORY[-3:]] == [("round", 2), ("evaluated", 2), ("done", 2)]
    assert len({number(fact) for fact in STORY}) == len(STORY)


@pytest.mark.parametrize("again", range(len(STORY)))
def test_a_reader_that_is_told_again_takes_each_report_once(again: int):
    known = LastReports()
    assert new(known, *STORY) == list(STORY)
    assert new(known, *STORY[again:]) == []


def test_a_reader_knows_from_the_reports_that_it_kept_what_is_new():
    known = LastReports().add(*STORY[:4])
    assert new(known, *STORY[2:]) == list(STORY[4:])


def test_a_report_below_the_last_number_is_dropped_although_it_was_never_seen():
    known = LastReports().add(Round(7), Round(3))
    assert (known, known.has(Round(5)), known.has(Round(8))) == ({"round": 7}, True, False)


def test_a_run_that_ended_early_and_was_extended_is_judged_after_its_first_end():
    assert new(LastReports(), Round(2), DONE, Evaluated(2), Round(3)) == [Round(2), DONE, Evaluated(2), Round(3)]


def test_other_facts_have_no_number():
    known = LastReports().add(Joined("a"))
    assert (known, known.has(Joined("a"))) == ({}, False)
