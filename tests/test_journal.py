"""The journal: everything of one write is there after a crash, or nothing; what was promised can be read again."""

from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.journal import KEPT, Journal, Kept
from coordinator.rounds import Answered, Event, Joined, Merged, Rounds, Rules, step
from edgefl import faults
from edgefl.errors import StoreError

RULES = Rules(rounds=9, seed=1, cohort=2, quorum=2, deadline=5.0)


@pytest.fixture
def book(tmp_path: Path):
    journal = Journal(tmp_path / "journal.sqlite")
    yield journal
    journal.close()


def kept(device: str, round: int) -> Kept:
    return Kept(round, device, bytes([round]) * 32, f"{device} in {round}".encode())


def play(book: Journal, s: Rounds, *events: Event) -> Rounds:
    """Feed and write, as the coordinator does."""
    for event in events:
        after, _ = step(s, event)
        closes = after.phase == "merging" and s.phase != "merging"
        answer = kept(event.device, event.round) if isinstance(event, Answered) else None
        book.write(event, after, answer, 2 if closes else None)
        s = after
    return s


def a_round(number: int) -> list[Event]:
    return [Answered("a", number, 0), Answered("b", number, 0), Merged(number, 0)]


def test_a_new_journal_knows_of_no_rounds(book):
    assert book.rounds(RULES) is None
    assert book.get("life") is None
    assert book.devices() == frozenset()


def test_the_rounds_come_back_as_they_were(book):
    s = play(book, Rounds(RULES), Joined("b", 0), Joined("a", 0), Answered("a", 1, 0))
    assert book.rounds(RULES) == s
    assert book.devices() == {"a", "b"}


def test_every_state_of_a_run_survives_being_written(book):
    s = Rounds(RULES)
    for event in [Joined("b", 0), Joined("a", 0), *a_round(1), *a_round(2)]:
        s = play(book, s, event)
        assert book.rounds(RULES) == s


def test_an_answer_waits_until_its_round_closes(book):
    s = play(book, Rounds(RULES), Joined("a", 0), Joined("b", 0), Answered("b", 1, 0))
    assert book.answers() == (kept("b", 1),)
    assert book.merge(1) is None
    play(book, s, Answered("a", 1, 0))
    assert book.answers() == ()
    assert book.answers(1) == (kept("a", 1), kept("b", 1))
    assert book.merge(1) == (frozenset("ab"), 2)


def test_an_answer_that_comes_while_a_round_is_merged_waits_for_the_next_one(book):
    s = play(book, Rounds(RULES), Joined("a", 0), Joined("b", 0), Answered("a", 1, 0), Answered("b", 1, 0))
    book.write(Answered("c", 1, 0), replace(s, owed={}), kept("c", 1))
    assert book.answers() == (kept("c", 1),)
    s = play(book, s, Merged(1, 0), *a_round(2))
    assert [a.device for a in book.answers(2)] == ["c", "a", "b"]


def test_the_answers_of_the_last_merges_are_kept_and_no_more(book):
    s = play(book, Rounds(RULES), Joined("a", 0), Joined("b", 0))
    for number in range(1, 7):
        s = play(book, s, *a_round(number))
    assert [number for number in range(1, 7) if book.answers(number)] == [4, 5, 6]
    assert [number for number in range(1, 7) if book.merge(number)] == [4, 5, 6]
    assert KEPT == 3


def test_nothing_of_a_write_that_failed_is_there(book, monkeypatch):
    s = play(book, Rounds(RULES), Joined("a", 0), Joined("b", 0))
    monkeypatch.setattr(faults, "_kind", "full")
    monkeypatch.setattr(faults, "_number", "1")
    monkeypatch.setattr(faults, "_writes", 0)
    with pytest.raises(StoreError, match="No space left"):
        play(book, s, Answered("a", 1, 0))
    assert book.rounds(RULES) == s
    assert book.answers() == ()
    monkeypatch.setattr(faults, "_kind", "")
    play(book, s, Answered("a", 1, 0))
    assert book.answers() == (kept("a", 1),)


def test_the_story_can_be_told_of_one_device_or_one_round(book):
    play(book, Rounds(RULES), Joined("a", 0), Joined("b", 0), *a_round(1), Answered("a", 2, 0))
    assert [(what, detail) for _, what, detail in book.story(device="a")] == [
        ("joined", {"device": "a"}),
        ("answered", {"device": "a", "round": 1}),
        ("answered", {"device": "a", "round": 2}),
    ]
    assert [what for _, what, _ in book.story(round=1)] == ["answered", "answered", "merged"]


def test_a_file_that_is_no_journal_is_named(tmp_path):
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(StoreError, match=r"journal\.sqlite"):
        Journal(path)


def test_a_second_connection_sees_what_was_written(book):
    s = play(book, Rounds(RULES), Joined("a", 0))
    book.set(life="x")
    again = Journal(book.path)
    assert (again.rounds(RULES), again.get("life")) == (s, "x")
    again.close()
