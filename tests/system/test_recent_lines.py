"""The last lines of a log that others may be told: marked ones alone, each one line, and not many."""

import logging
from collections.abc import Iterator

import pytest

from edgefl.system.logs import KEPT, LONGEST, TOLD, RecentLines, tells

WORD = "mineshaft"  # stands for a value of the data
log = logging.getLogger("edgefl.tests.recent")


@pytest.fixture
def recent() -> Iterator[RecentLines]:
    handler, level = RecentLines(), log.level
    log.addHandler(handler)
    log.setLevel("INFO")
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


def test_a_record_without_a_mark_is_not_told_and_neither_is_that_there_was_one(recent: RecentLines) -> None:
    log.warning("column %s cannot be read", WORD)
    assert recent.lines() == ()


def test_a_marked_record_is_a_line_with_its_time_level_and_place(recent: RecentLines) -> None:
    log.warning("connected device=%s", "pi", extra=TOLD)
    (line,) = recent.lines()
    assert line.endswith("WARNING edgefl.tests.recent: connected device=pi")
    assert line[:2] == "20", "the year"


def test_others_are_told_the_other_text_where_there_is_one(recent: RecentLines) -> None:
    log.warning("declined why=%s", WORD, extra=tells("declined why=config.csv_table"))
    log.warning("complained of %s", WORD, extra=tells(""))
    (line,) = recent.lines()
    assert line.endswith("declined why=config.csv_table")


def test_a_traceback_is_never_told(recent: RecentLines) -> None:
    try:
        raise ValueError(WORD)
    except ValueError:
        log.exception("it failed", extra=TOLD)
    assert WORD not in "".join(recent.lines())


def test_what_a_line_quotes_begins_no_new_line_and_moves_no_cursor(recent: RecentLines) -> None:
    log.info("receipt %s", "accepted\n2026-01-01 INFO forged\x1b[2J\u202e", extra=TOLD)
    (line,) = recent.lines()
    assert line.isprintable()
    assert "accepted\\n2026" in line


def test_few_lines_are_kept_and_none_is_long(recent: RecentLines) -> None:
    for number in range(2 * KEPT):
        log.info("%d %s", number, "x" * 1000, extra=TOLD)
    lines = recent.lines()
    assert len(lines) == KEPT
    assert {len(line) for line in lines} == {LONGEST}
    assert f": {2 * KEPT - 1} x" in lines[-1]
