"""The journal: everything of one write is there after a crash, or nothing; what was promised can be read again."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from draws import seeds

from coordinator.decide.rounds import (
    DeviceAnswered,
    DeviceBusy,
    DeviceDeclined,
    DeviceJoined,
    DeviceLost,
    Event,
    RoundMerged,
    Rounds,
    Rules,
    RunResumed,
    TimerExpired,
    step,
)
from coordinator.durable import journal, segments
from coordinator.durable.journal import KEPT, AnswerFrame, Journal
from edgefl.base import events
from edgefl.base.errors import StoreError
from edgefl.base.events import Fact
from edgefl.learn.selection.base import Candidate
from edgefl.system import faults
from edgefl.system.disk import FolderDisk
from tools.failing_disk import FailingDisk, PowerCut

RULES = Rules(rounds=9, seed=1, cohort=2, quorum=2, deadline=5.0)


@pytest.fixture(autouse=True, params=[1, 3])
def filled_by(request, monkeypatch) -> int:
    """So many rounds fill a segment: large ones alone, small ones together."""
    monkeypatch.setattr(segments, "ROUNDS", request.param)
    return request.param


@pytest.fixture
def book(tmp_path: Path):
    return Journal(FolderDisk(tmp_path))


def kept(device: str, round: int) -> AnswerFrame:
    return AnswerFrame(round, device, bytes([round]) * 32, f"{device} in {round}".encode())


def play(book: Journal, s: Rounds, *happened: Event) -> Rounds:
    """Feed and write, as the coordinator does."""
    for event in happened:
        after, _ = step(s, event)
        closes = after.phase == "merging" and s.phase != "merging"
        answer = kept(event.device, event.round) if isinstance(event, DeviceAnswered) else None
        book.write((event,), after, answer, 2 if closes else None, told(event))
        s = after
    return s


def told(event: Event) -> list[Fact]:
    """What a coordinator would tell of it."""
    match event:
        case DeviceJoined(device):
            return [events.Joined(device)]
        case DeviceAnswered(device, round):
            return [events.Answered(device, round, 100)]
        case RoundMerged(round):
            return [events.Round(round)]
        case _:
            return []


def test_so_many_records_fill_a_segment_as_well(book: Journal, monkeypatch) -> None:
    monkeypatch.setattr(segments, "ROUNDS", 9)
    s = play(
        book,
        Rounds(RULES),
        DeviceJoined("a", 0),
        DeviceJoined("b", 0),
        DeviceAnswered("a", 1, 1),
        DeviceAnswered("b", 1, 2),
    )
    assert not book.full
    monkeypatch.setattr(segments, "NOTES", 4)
    assert book.full
    play(book, s, RoundMerged(1, 3))
    assert not book.full


def a_round(number: int) -> list[Event]:
    return [DeviceAnswered("a", number, 0), DeviceAnswered("b", number, 0), RoundMerged(number, 0)]


def test_a_new_journal_knows_of_no_rounds(book):
    assert book.rounds(RULES) is None
    assert book.get("run_id") is None
    assert book.devices() == frozenset()


def test_the_rounds_come_back_as_they_were(book):
    s = play(book, Rounds(RULES), DeviceJoined("b", 0), DeviceJoined("a", 0), DeviceAnswered("a", 1, 0))
    assert book.rounds(RULES) == s
    assert book.devices() == {"a", "b"}


def test_every_state_of_a_run_survives_being_written(book):
    s = Rounds(RULES)
    for event in [DeviceJoined("b", 0), DeviceJoined("a", 0), *a_round(1), *a_round(2)]:
        s = play(book, s, event)
        assert book.rounds(RULES) == s


def test_an_answer_waits_until_its_round_closes(book):
    s = play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0), DeviceAnswered("b", 1, 0))
    assert book.answers() == (kept("b", 1),)
    assert book.merge(1) is None
    play(book, s, DeviceAnswered("a", 1, 0))
    assert book.answers() == ()
    assert book.answers(1) == (kept("a", 1), kept("b", 1))
    assert book.merge(1) == (frozenset("ab"), 2)


def test_an_answer_that_comes_while_a_round_is_merged_waits_for_the_next_one(book):
    s = play(
        book,
        Rounds(RULES),
        DeviceJoined("a", 0),
        DeviceJoined("b", 0),
        DeviceAnswered("a", 1, 0),
        DeviceAnswered("b", 1, 0),
    )
    book.write((DeviceAnswered("c", 1, 0),), replace(s, owed={}), kept("c", 1))
    assert book.answers() == (kept("c", 1),)
    s = play(book, s, RoundMerged(1, 0), *a_round(2))
    assert [a.device for a in book.answers(2)] == ["c", "a", "b"]


def test_the_answers_of_the_last_merges_are_kept_and_no_more(book, filled_by):
    rules = replace(RULES, rounds=99)
    s, last = play(book, Rounds(rules), DeviceJoined("a", 0), DeviceJoined("b", 0)), 6 * filled_by
    for number in range(1, last + 1):
        s = play(book, s, *a_round(number))
    kept = list(range(3 * filled_by + 1, last + 1))
    assert [number for number in range(1, last + 1) if book.answers(number)] == kept
    assert [number for number in range(1, last + 1) if book.merge(number)] == kept
    assert KEPT == 3


def test_a_round_that_is_large_fills_a_segment_alone(book, filled_by, monkeypatch):
    monkeypatch.setattr(segments, "BYTES", 10)
    play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0), *a_round(1)[:2])
    assert book.full
    book.note(events.Resumed(1))
    assert not book.full
    assert book.disk.names("journal-*.log") == ["journal-000001.log", "journal-000002.log"]


def test_a_segment_is_full_when_a_round_closes_and_not_before(book, filled_by):
    s, full = Rounds(RULES), list[bool]()
    for event in [DeviceJoined("b", 0), DeviceJoined("a", 0), *a_round(1), *a_round(2), *a_round(3), *a_round(4)]:
        s = play(book, s, event)
        full.append(book.full)
    closings = [False, True, False]
    some = [False] * 3
    assert full == [False, False, *(closings * 4 if filled_by == 1 else [*some, *some, *closings, *some])]


def test_nothing_of_a_write_that_failed_is_there(book, monkeypatch):
    s = play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0))
    monkeypatch.setattr(faults, "_kind", "full")
    monkeypatch.setattr(faults, "_number", "1")
    monkeypatch.setattr(faults, "_writes", 0)
    with pytest.raises(StoreError, match="No space left"):
        play(book, s, DeviceAnswered("a", 1, 0))
    assert book.rounds(RULES) == s
    assert book.answers() == ()
    monkeypatch.setattr(faults, "_kind", "")
    play(book, s, DeviceAnswered("a", 1, 0))
    assert book.answers() == (kept("a", 1),)


def test_what_is_known_of_devices_is_remembered(book, tmp_path):
    rules = replace(RULES, selection={"name": "fresh"}, cohort_rounds=2)
    s = play(
        book,
        Rounds(rules),
        DeviceJoined("a", 0, 5),
        DeviceJoined("b", 0, 7),
        DeviceAnswered("a", 1, 0, 0.25),
        DeviceAnswered("b", 1, 0),
    )
    assert s.known["a"] == Candidate("a", 5, 0.25, counted=1)
    again = Journal(FolderDisk(tmp_path)).rounds(rules)
    assert again == s
    assert again.knew == {"a": Candidate("a", 5), "b": Candidate("b", 7)}


def test_the_story_can_be_told_of_one_device_or_one_round(book):
    play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0), *a_round(1), DeviceAnswered("a", 2, 0))
    first, second = events.Answered("a", 1, 100), events.Answered("a", 2, 100)
    assert list(book.story(device="a")) == [events.Joined("a"), first, second]
    assert [type(fact) for fact in book.story(round=1)] == [events.Answered, events.Answered, events.Round]


def test_whoever_was_asked_or_missed_finds_himself_in_the_story(book):
    asked, closed = events.Asked(1, 1, ("a", "b"), 100), events.Closed(1, ("a",), ("b",))
    book.note(asked, closed)
    assert list(book.story(device="b")) == [asked, closed]
    assert list(book.story(device="c")) == []


def test_a_second_reader_sees_what_was_written(book):
    s = play(book, Rounds(RULES), DeviceJoined("a", 0))
    book.set(run_id="x")
    again = Journal(book.disk, reading=True)
    assert (again.rounds(RULES), again.get("run_id")) == (s, "x")


def test_a_file_that_is_no_journal_is_named(book):
    play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0), *a_round(1))
    book.disk.write("journal-000001.log", b"not a journal, not at all" * 100)
    with pytest.raises(StoreError, match=r"journal-000001\.log: damaged at byte 0, .*--fresh"):
        Journal(book.disk)
    book.disk.remove("journal-000001.log")
    book.disk.remove("journal-000002.log")
    book.disk.write("journal.log", b"not a journal, not at all" * 100)
    with pytest.raises(StoreError, match=r"journal\.log: damaged at byte 0, .*--fresh"):
        Journal(book.disk)


def test_a_file_that_is_gone_is_named(book, filled_by):
    rounds = [event for number in range(1, 2 * filled_by + 1) for event in a_round(number)]
    play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0), *rounds)
    book.disk.remove("journal-000002.log")
    with pytest.raises(StoreError, match=r"journal-000002\.log: is missing; .*--fresh"):
        Journal(book.disk)


def test_a_journal_of_a_version_to_come_is_not_guessed_at(book):
    from edgefl.system.record_log import Record, RecordLog

    RecordLog(book.disk, "journal.log").append(Record({"version": 2}))
    with pytest.raises(StoreError, match="written by another version of edgefl"):
        Journal(book.disk)


# ── the whole truth is the events ────────────────────────────────────────────────────────────────────────────


def a_life() -> list[Event]:
    """Some of everything that can happen."""
    return [
        DeviceJoined("a", 0),
        DeviceJoined("b", 0),
        DeviceJoined("c", 0),
        DeviceBusy("a", 1, 0, "of another run"),
        DeviceAnswered("b", 1, 0),
        DeviceDeclined("c", 1, 0, "no data"),
        DeviceLost("a", 0),
        TimerExpired(1, 1, 0),
        DeviceJoined("a", 0),
        RunResumed(0),
        *(DeviceAnswered(device, 1, 0) for device in "abc"),
        RoundMerged(1, 0),
        *(DeviceAnswered(device, 2, 0) for device in "abc"),
        RoundMerged(2, 0),
    ]


def test_a_state_is_written_down_only_where_a_file_begins_and_comes_back_from_the_events():
    book, s = Journal(FailingDisk()), Rounds(RULES)
    for event in a_life():
        s = play(book, s, event)
        assert Journal(book.disk, reading=True).rounds(RULES) == s
    first, *later = book._segments
    stated = [[bool(placed.note.get("state")) for placed in segment.notes] for segment in later]
    assert [bool(placed.note.get("state")) for placed in first.notes][:3] == [False, True, False], (
        "a new run has none yet"
    )
    assert all(begins and not any(rest) for begins, *rest in stated)


def test_what_happened_under_other_rules_is_played_by_them():
    book = Journal(FailingDisk())
    s = play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0), DeviceAnswered("a", 1, 0))
    alone = replace(RULES, cohort=1, quorum=1)
    assert Journal(book.disk).rounds(alone) == replace(s, rules=alone)


def test_only_events_of_the_machine_are_read_back(monkeypatch):
    book = Journal(FailingDisk())
    play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0))
    monkeypatch.setattr(journal, "EVENTS", {"Lost": DeviceLost})
    with pytest.raises(KeyError, match="Joined"):
        Journal(book.disk).rounds(RULES)


def test_an_answer_costs_its_own_bytes_and_hardly_more():
    disk = FailingDisk()
    book, s = Journal(disk), Rounds(replace(RULES, cohort=100, quorum=100))
    for number in range(100):
        s = play(book, s, DeviceJoined(f"device-{number:03d}", 0))
    for number in range(99):
        before = disk.written
        device = f"device-{number:03d}"
        s, _ = step(s, DeviceAnswered(device, 1, 0))
        book.write((DeviceAnswered(device, 1, 0),), s, AnswerFrame(1, device, bytes(32), bytes(10_000)))
        assert disk.written - before < 10_000 + 400


def test_the_story_is_whole_long_after_the_answers_are_gone(filled_by):
    rules, last = replace(RULES, rounds=99), 8 * filled_by
    book, s = Journal(FailingDisk()), Rounds(rules)
    s = play(book, s, DeviceJoined("a", 0), DeviceJoined("b", 0))
    for number in range(1, last + 1):
        s = play(book, s, *a_round(number))
    for one in (book, Journal(book.disk), Journal(book.disk, reading=True)):
        assert merged(one) == list(range(1, last + 1))
        assert [type(fact) for fact in one.story(round=2)] == [events.Answered, events.Answered, events.Round]
        assert one.devices() == {"a", "b"}
    assert len(book.disk.names("journal-*.log")) == KEPT + 1


def test_a_reader_keeps_its_story_while_files_go():
    book, s = Journal(FailingDisk()), Rounds(RULES)
    s = play(book, s, DeviceJoined("a", 0), DeviceJoined("b", 0), *a_round(1), *a_round(2))
    reader = Journal(book.disk, reading=True)
    for number in range(3, 9):
        s = play(book, s, *a_round(number))
    seen = merged(reader)
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 2


def test_a_reader_of_the_story_skips_the_answers(tmp_path):
    disk, size = CountingDisk(tmp_path), 1 << 20
    book, s = Journal(disk), Rounds(replace(RULES, cohort=20, quorum=20))
    for number in range(20):
        s = play(book, s, DeviceJoined(f"device-{number:02d}", 0))
    for number in range(19):
        device = f"device-{number:02d}"
        s, _ = step(s, DeviceAnswered(device, 1, 0))
        answered = events.Answered(device, 1, size)
        book.write(
            (DeviceAnswered(device, 1, 0),), s, AnswerFrame(1, device, bytes(32), bytes(size)), facts=(answered,)
        )
    disk.bytes_read = 0
    reader = Journal(disk, reading=True)
    assert len(list(reader.story())) == 20 + 19
    assert reader.rounds() == s
    assert disk.bytes_read < 2 * size, "the last answer, which may be torn, and notes"


# ── a reader that follows ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", seeds(8))
def test_a_reader_that_follows_tells_each_fact_once_and_knows_where_the_rounds_stand(seed):
    """However many files came and went between two of its looks."""
    rng, disk = Random(seed), FailingDisk()
    book, s = Journal(disk), Rounds(replace(RULES, rounds=99))
    reader, told = Journal(disk, reading=True), []
    rounds = [event for number in range(1, 30) for event in a_round(number)]
    for event in [DeviceJoined("a", 0), DeviceJoined("b", 0), *rounds]:
        s = play(book, s, event)
        if rng.random() < 0.1:
            book = Journal(disk)  # another life of the coordinator
        if rng.random() < rng.choice([0.02, 0.5]):
            told += reader.read_on()
            assert reader.rounds() == s
    told += reader.read_on()
    assert told == list(book.story())
    assert reader.read_on() == []
    assert reader.devices() == {"a", "b"}


def test_what_is_torn_is_not_told_and_what_is_written_in_its_place_is():
    disk = FailingDisk()
    book = Journal(disk)
    book.set(run_id="x")
    reader = Journal(disk, reading=True)
    before = disk.size("journal-000001.log")
    book.write((), Rounds(RULES), AnswerFrame(1, "a", bytes(32), bytes(999)), facts=[events.Answered("a", 1, 999)])
    disk.truncate("journal-000001.log", disk.size("journal-000001.log") - 1)
    assert reader.read_on() == []
    assert reader.read_on() == []
    again, mended = Journal(disk), [events.Answered("b", 1, 9), events.Answered("c", 1, 9)]
    assert disk.size("journal-000001.log") == before
    again.note(mended[0])
    assert reader.read_on() == mended[:1]
    again.note(mended[1])
    assert reader.read_on() == mended[1:]


@pytest.mark.parametrize("longer", [False, True])
def test_a_reader_that_follows_notices_another_run(longer, filled_by):
    disk = FailingDisk()
    book = Journal(disk)
    play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0), *a_round(1))
    reader = Journal(disk, reading=True)
    for name in disk.names("journal*"):
        disk.remove(name)
    other = Journal(disk)
    for number in range(30 if longer else 1):
        other.note(events.Joined(f"device-{number}"))
    with pytest.raises(StoreError):
        reader.read_on()


def test_a_reader_that_follows_reads_what_is_new(tmp_path):
    disk = CountingDisk(tmp_path)
    book = Journal(disk)
    for number in range(200):
        book.note(events.Joined(f"device-{number}", host="x" * 1000))
    reader = Journal(disk, reading=True)
    for number in range(10):
        book.note(events.Joined(f"another-{number}"))
        disk.bytes_read = 0
        assert [fact.device for fact in reader.read_on()] == [f"another-{number}"]
        assert disk.bytes_read < 1000


class CountingDisk(FolderDisk):
    """Counts the bytes that are read."""

    bytes_read = 0

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        data = super().read(name, start, size)
        self.bytes_read += len(data or b"")
        return data


def test_a_copy_for_another_thread_stays_as_it_was_made(book):
    s = play(book, Rounds(RULES), DeviceJoined("a", 0), DeviceJoined("b", 0), DeviceAnswered("a", 1, 0))
    copied = book.copied()
    s = play(book, s, DeviceAnswered("b", 1, 0))
    assert [kept.device for kept in copied.answers()] == ["a"]
    assert len(book.answers(merged=1)) == 2
    assert (len(list(copied.story())), copied.merge(1)) == (3, None)
    assert copied.rounds().answered == {"a"}


def merged(book: Journal) -> list[int]:
    return [fact.round for fact in book.story() if isinstance(fact, events.Round)]


def test_what_is_abandoned_is_told():
    book = Journal(FailingDisk())
    abandoned = events.Abandoned(1, "nobody came", at=7.0)
    book.write((TimerExpired(1, 1, 0),), Rounds(RULES), facts=[abandoned])
    assert list(book.story()) == [abandoned]


def test_events_of_one_write_are_played_in_their_order():
    book, s = Journal(FailingDisk()), Rounds(RULES)
    joined = DeviceJoined("a", 0), DeviceJoined("b", 0), DeviceLost("a", 0)
    for event in joined:
        s, _ = step(s, event)
    book.write(joined, s)
    book.write((), s)
    assert Journal(book.disk).rounds(RULES) == s


# ── power cuts ───────────────────────────────────────────────────────────────────────────────────────────────


def everything(book: Journal) -> tuple[Any, ...]:
    """All that a coordinator would find."""
    rounds = range(1, 9)
    return (
        book.rounds(RULES),
        book.get("run_id"),
        book.devices(),
        book.answers(),
        [book.answers(round) for round in rounds],
        [book.merge(round) for round in rounds],
        list(book.story()),
    )


def writes() -> list[Callable[[Journal, Rounds], Rounds]]:
    """What a coordinator writes in a run of some rounds, one by one; a frame has several sectors."""

    def played(event: Event) -> Callable[[Journal, Rounds], Rounds]:
        return lambda book, s: play(book, s, event)

    def named(book: Journal, s: Rounds) -> Rounds:
        book.set(run_id="x", run="{}")
        return s

    def noted(book: Journal, s: Rounds) -> Rounds:
        book.note(events.Resumed(s.round))
        return s

    rounds = [played(event) for number in range(1, 7) for event in a_round(number)]
    return [named, played(DeviceJoined("a", 0)), played(DeviceJoined("b", 0)), *rounds[:5], noted, *rounds[5:]]


def test_power_cuts_at_every_step_of_every_write_leave_what_was_promised():
    """The journal that is found is the one after the last write that returned, or after the one in hand."""
    todo, whole = writes(), FailingDisk()
    book, s = Journal(whole), Rounds(RULES)
    known = [everything(book)]
    for write in todo:
        s = write(book, s)
        known.append(everything(Journal(whole, reading=True)))
    cut, ahead = 0, set[int]()
    for steps in range(whole.steps):
        for seed in range(3):
            disk, promised = FailingDisk(), 0
            disk.power = steps
            s = Rounds(RULES)
            try:
                book = Journal(disk)
                for write in todo:
                    s = write(book, s)
                    promised += 1
            except PowerCut:
                cut += 1
            disk.crash(Random(steps * 100 + seed))
            book = Journal(disk)
            state = everything(book)
            assert state in known[promised : promised + 2], (steps, seed, promised)
            ahead.add(known.index(state, promised) - promised)
            s = book.rounds(RULES) or Rounds(RULES)
            disk.crash(Random(seed))  # and again, before anything was written: what was read must last
            assert everything(Journal(disk)) == state
            for write in todo[known.index(state, promised) :]:
                s = write(book, s)
            assert everything(Journal(disk)) == known[-1]
    assert ahead == {0, 1}
    assert cut == whole.steps * 3


def test_a_full_disk_at_every_write_loses_nothing_once_there_is_room():
    whole = FailingDisk()
    book, s = Journal(whole), Rounds(RULES)
    for write in writes():
        s = write(book, s)
    disk = FailingDisk()
    book, s = Journal(disk), Rounds(RULES)
    for write in writes():
        before = everything(book)
        for room in (0, 20, 200):
            disk.capacity = disk.used + room
            try:
                after = write(book, s)
            except StoreError:
                assert everything(book) == everything(Journal(disk, reading=True)) == before
            else:
                break
        else:
            disk.capacity = None
            after = write(book, s)
        s = after
    disk.capacity = None
    assert everything(Journal(disk)) == everything(Journal(whole))


def finished(book: Journal, rounds: int = 4) -> Rounds:
    """A run of some rounds, the last of which has a late answer behind it."""
    state = play(book, Rounds(replace(RULES, rounds=rounds)), DeviceJoined("a", 0.0), DeviceJoined("b", 0.0))
    for round in range(1, rounds + 1):
        state = play(
            book, state, DeviceAnswered("a", round, 1.0), DeviceAnswered("b", round, 1.0), RoundMerged(round, 1.0)
        )
    return state


def test_merged_answers_are_dropped_and_the_story_stays(book: Journal) -> None:
    state, story = finished(book), list(book.story())
    before = sum(book.disk.size(name) or 0 for name in book.disk.names())
    book.drop_merged()
    assert list(book.story()) == story
    after = Journal(book.disk)
    assert (list(after.story()), after.rounds(), after.devices()) == (story, state, frozenset("ab"))
    assert after.merge(4) == (frozenset("ab"), 2)
    assert after.answers(4) == ()
    assert b"a in 4" not in b"".join(book.disk.read(name) or b"" for name in book.disk.names())
    assert sum(book.disk.size(name) or 0 for name in book.disk.names()) < before


def test_late_answers_are_kept_for_an_extension(book: Journal) -> None:
    state = finished(book)
    book.write((), state, kept("c", 4))
    book.drop_merged()
    assert [bytes(one.frame) for one in Journal(book.disk).answers()] == [b"c in 4"]


def test_what_is_dropped_twice_is_dropped_once(book: Journal) -> None:
    finished(book)
    book.drop_merged()
    files = book.disk.names()
    book.drop_merged()
    Journal(book.disk).drop_merged()
    assert book.disk.names() == files


@pytest.mark.parametrize("survived", range(12))
def test_a_power_cut_while_answers_are_dropped_loses_nothing_else(survived: int) -> None:
    disk = FailingDisk()
    book = Journal(disk)
    state, story = finished(book), list(book.story())
    disk.power = survived
    with suppress(PowerCut):
        book.drop_merged()
    disk.power = None
    disk.crash(Random(survived))
    after = Journal(disk)
    assert (list(after.story()), after.rounds(), after.merge(4)) == (story, state, (frozenset("ab"), 2))
    after.drop_merged()
    assert Journal(disk).answers(4) == ()
