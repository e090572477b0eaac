"""The journal: what happened, where the rounds stand, and every answer that was promised a receipt.

It is written ahead: everything is synced before anything is said to a device. After any crash the same command reads it
and goes on with the round in hand.

    journal-000007.log   a segment: what happened from one closing of a round to another, answers included
    journal.log          the story of the segments that are no longer there

What is written is the event, not what became of it: where the rounds stand is a state that was written down, and the
events since, played again through `modes.step`. A segment begins with everything that must be known, so an older one
is needed only for its answers, all of which were merged when it ended, and for its story. The last KEPT that are full
are kept; of one before them the story goes to journal.log first, then it is deleted. A round that fills
a segment has its model saved (checkpoint_writer.py), so what was merged after any of the last KEPT such models can be
merged again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from itertools import chain, pairwise
from math import inf
from typing import Any

from pydantic import TypeAdapter

from coordinator.decide.modes import step
from coordinator.decide.rounds import (
    DeviceAnswered,
    DeviceBusy,
    DeviceDeclined,
    DeviceJoined,
    DeviceLost,
    Event,
    Overtaken,
    RoundMerged,
    Rounds,
    Rules,
    RunResumed,
    TimerExpired,
)
from coordinator.durable.segments import ARCHIVE, SEGMENTS, Archive, Entry, Segment, number_of
from edgefl.base.errors import StoreError
from edgefl.base.events import Changed, Fact, as_json, from_json
from edgefl.system.clock import Clock, SystemClock
from edgefl.system.disk import Bytes, Disk
from edgefl.system.record_log import PlacedRecord, Record

NAME = ARCHIVE
KEPT = 3  # full segments whose answers are kept: as many as there are generations of checkpoints
DROPS = "drops"  # in the first record of a segment: those before it are on their way out
ALREADY_PLAIN = frozenset({str, int, float, bool, type(None)})
EVENTS: dict[str, type] = {  # by the name that stands in the file: it stays, whatever the class is called
    "Joined": DeviceJoined,
    "Lost": DeviceLost,
    "Answered": DeviceAnswered,
    "Declined": DeviceDeclined,
    "Busy": DeviceBusy,
    "Expired": TimerExpired,
    "Merged": RoundMerged,
    "Resumed": RunResumed,
    "Overtaken": Overtaken,
}
NAME_OF = {kind: name for name, kind in EVENTS.items()}


@dataclass(frozen=True, slots=True)
class AnswerFrame:
    """The frame of an answer as it came from its device."""

    round: int
    device: str
    digest: bytes
    frame: Bytes
    again: Callable[[], memoryview] | None = field(default=None, compare=False)  # how to read the frame from the disk


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What the rounds were told, and the answer that came with it; `state` is where they stand now.

    When that closes the round, `population` is how many devices the fleet has, and everything that waits is merged.
    The facts are the story of it.
    """

    events: tuple[Event, ...]
    state: Rounds
    answer: AnswerFrame | None = None
    population: int | None = None
    facts: tuple[Fact, ...] = ()


def exists(disk: Disk) -> bool:
    """Whether a run was begun here."""
    return disk.size(NAME) is not None


class Journal:
    """A run's memory. One thread writes it; everything in one `write` becomes durable together or not at all.

    Another one, `reading`, may look into the same disk meanwhile.
    """

    def __init__(self, disk: Disk, *, reading: bool = False, clock: Clock | None = None) -> None:
        self.disk, self._clock = disk, clock or SystemClock()
        self._facts: dict[str, str] = {}
        self._devices: set[str] = set()
        self._state: Any = None  # the last one that was written down, as JSON has it
        self._since: list[list[Any]] = []  # the events after it that are not played yet
        self._reached: Rounds | None = None  # where those lead that are
        self._here: Rounds | None = None  # where they lead, if we wrote: another life may have had other rules
        names = disk.names(SEGMENTS)
        segments = [Segment(disk, name, newest=name == names[-1]) for name in names]
        self._archive = Archive(disk)  # after the segments: one that goes meanwhile has its story there
        self._segments = [one for one in segments if one.number > self._archive.last]
        self._must_be_complete()
        for segment in self._segments[-1:]:
            self._learn_all(segment.notes)
        if not reading:
            self._recover(segments)

    def close(self) -> None:
        """Nothing is open between two writes."""

    # ---- writing -----------------------------------------------------------------------------------------------

    def write(
        self,
        events: Iterable[Event],
        state: Rounds,
        answer: AnswerFrame | None = None,
        population: int | None = None,
        facts: Iterable[Fact] = (),
    ) -> Callable[[], memoryview]:
        """One entry; how to read its answer again."""
        return self.write_all([JournalEntry(tuple(events), state, answer, population, tuple(facts))])[0]

    def write_all(self, entries: Sequence[JournalEntry]) -> list[Callable[[], memoryview]]:
        """Several together or not at all; how to read the answer of each again, as long as its segment is kept.

        Only the last one may close a round.
        """
        notes = [self._noted(entry, first=not place) for place, entry in enumerate(entries)]
        bodies = (entry.answer.frame if entry.answer else b"" for entry in entries)
        segment = self._append(*zip(notes, bodies, strict=True))
        self._here = entries[-1].state
        return [partial(segment.log.body, placed) for placed in segment.notes[-len(entries) :]]

    def _noted(self, entry: JournalEntry, *, first: bool) -> dict[str, Any]:
        state, answer = entry.state, entry.answer
        events = [[NAME_OF[type(event)], _plain(event)] for event in entry.events]
        note: dict[str, Any] = {"events": events, **_told(entry.facts)}
        if answer is not None:
            note["answer"] = {"round": answer.round, "device": answer.device, "digest": answer.digest.hex()}
        if entry.population is not None:
            members = {"devices": sorted(state.answered), "population": entry.population}
            note["closed"] = {"round": state.round, **members}
        if first and self._here is None:
            note["state"] = _plain(state)
        return note

    def amend(self, run: str, state: Rounds | None, changes: Iterable[Changed], **values: str) -> None:
        """The run file that is in force from now on, where the rounds stand under it, and what is new in it."""
        note: dict[str, Any] = {"facts": {"run": run, **values}, **_told(changes)}
        if state is not None:
            note["state"] = _plain(state)
        self._append((note, b""))
        self._here = state or self._here

    def note(self, *facts: Fact) -> None:
        """Something for the story alone."""
        if facts:
            self._append((_told(facts), b""))

    def set(self, **values: str) -> None:
        """Facts about the run."""
        self._append(({"facts": values}, b""))

    def drop_merged(self) -> None:
        """Delete the answers that were merged; the story stays, and the run can still be extended.

        A new segment takes what must be known, who closed the last round, and answers that came too late for it:
        an extension merges those. Then the segments before it go.
        """
        old = [segment for segment in self._segments if segment.notes]
        if not any(closing.answers for segment in old for closing in segment.closings):
            return
        last = old[-1]
        closed = [closing.about for segment in old for closing in segment.closings][-1]
        late = [Record({"answer": kept.note["answer"]}, last.log.body(kept)) for kept in last.waiting]
        known = self._known()
        self._archive.begin()
        fresh = Segment(self.disk, _segment(last.number + 1))
        fresh.append(Record({**known, DROPS: True}), Record({"closed": closed}), *late)
        for segment in old:
            self._archive.take(segment)
            self.disk.remove(segment.log.name)
        self._segments = [fresh]
        self._learn(known)

    # ---- reading -----------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the last thing written has filled a segment: it closed a round."""
        return bool(self._segments) and self._segments[-1].full

    @property
    def begun(self) -> bool:
        """Return whether anything of a run stands here: a journal that is being deleted may have lost its segments."""
        return self._archive.last > 0 or any(segment.notes for segment in self._segments)

    def copied(self) -> "Journal":
        """A reader of what is written by now, for another thread: what is written later does not change it."""
        other, segments = copy(self), [segment.copied() for segment in self._segments]
        vars(other).update(_segments=segments, _archive=self._archive.copied(), _facts=dict(self._facts))
        vars(other).update(_devices=set(self._devices), _since=[*self._since])
        return other

    def get(self, name: str) -> str | None:
        return self._facts.get(name)

    def rounds(self, rules: Rules | None = None) -> Rounds | None:
        """Where the rounds stood. What happened is played by the rules of its time; these hold from now on, if any."""
        state = self._played()
        return replace(state, rules=rules) if state and rules else state

    def answers(self, merged: int | None = None) -> tuple[AnswerFrame, ...]:
        """What was merged in a round, or waits to be, older rounds first."""
        newest = {}  # of each round and device, if an abandoned attempt left one as well
        for segment in self._last():
            here = [closing.answers for closing in segment.closings if closing.about["round"] == merged]
            for kept in chain.from_iterable(here) if merged is not None else segment.waiting:
                about = kept.note["answer"]
                newest[about["round"], about["device"]] = bytes.fromhex(about["digest"]), segment, kept
        return tuple(
            AnswerFrame(round, device, digest, segment.log.body(kept), partial(segment.log.body, kept))
            for (round, device), (digest, segment, kept) in sorted(newest.items(), key=lambda item: item[0])
        )

    def merge(self, round: int) -> tuple[frozenset[str], int] | None:
        """Whose answers closed a round, and how many devices the fleet had then."""
        closings = [closing.about for segment in self._last() for closing in segment.closings]
        for closed in reversed(closings):  # of a number that was used before, the newest
            if closed["round"] == round:
                return frozenset(closed["devices"]), int(closed["population"])
        return None

    def devices(self) -> frozenset[str]:
        """Return every device that ever joined."""
        return frozenset(self._devices)

    def story(self, device: str | None = None, round: int | None = None, since: float = -inf) -> Iterator[Fact]:
        """What happened, in order; to a device, in a round, or since a moment, where one is given."""
        archived = list(self._archive.story())
        rest = (entry for one in self._segments if one.number > self._archive.last for entry in one.story())
        for entry in (*archived, *rest):
            if entry.get("at", 0.0) < since:
                continue
            if (device is None or _concerns(entry, device)) and round in (None, entry.get("round")):
                yield from_json(entry)

    def read_on(self) -> list[Fact]:
        """What was written since this reader looked last. It must begin anew after a StoreError: what it knows is
        damaged, or is another run's.
        """
        newest = self._segments[-1] if self._segments else None
        last, seen = (newest.number, sum(1 for _ in newest.story())) if newest else (self._archive.last, 0)
        names = self.disk.names(SEGMENTS)
        fresh = [Segment(self.disk, name, newest=name == names[-1]) for name in names if number_of(name) > last]
        stories, notes = {segment.number: list(segment.story()) for segment in fresh}, fresh[-1].notes if fresh else []
        if newest and self.disk.size(newest.log.name) is not None:
            read = len(newest.notes)
            newest.read_on()
            stories[last], notes = list(newest.story()), notes or newest.notes[read:]
        stories |= self._archive.read_on()  # after the segments: one that goes meanwhile has its story there
        known = [*self._segments, *fresh]
        self._segments = [segment for segment in known if segment.number > self._archive.last]
        self._must_be_complete()
        here = newest is None or newest.number <= self._archive.last or not newest.log.replaced
        if not here or self._archive.log.replaced:
            raise StoreError(f"{self.disk.where()}: the run that was read is there no longer")
        self._learn_all(notes)
        numbers = sorted(number for number in stories if number >= last)
        told = [entry for number in numbers for entry in stories[number][seen if number == last else 0 :]]
        return [from_json(entry) for entry in told]

    # ---- inside ------------------------------------------------------------------------------------------------

    def _append(self, *notes: tuple[dict[str, Any], Bytes]) -> Segment:
        """The segment that these are the last records of."""
        self._archive.forget()  # who writes has started
        records = [Record({"at": self._clock.wall(), **note}, body) for note, body in notes]
        if self._segments and not self._segments[-1].full:
            self._segments[-1].append(*records)
        else:
            self._archive.begin()
            self._archive_old()
            number = 1 + (self._segments[-1].number if self._segments else self._archive.last)
            fresh = Segment(self.disk, _segment(number))
            known = self._known()
            fresh.append(Record(known), *records)
            self._segments.append(fresh)
            self._learn(known)
        for note, _ in notes:
            self._learn(note)
        return self._segments[-1]

    def _known(self) -> dict[str, Any]:
        """Everything that a segment has to begin with, so that none before it is needed to go on."""
        state = _plain(self._here or self._played())
        return {"facts": dict(self._facts), "devices": sorted(self._devices), "state": state}

    def _played(self) -> Rounds | None:
        """The last state that was written down, and the events since."""
        if self._state is None:
            return None
        state: Rounds = self._reached or _reader(Rounds).validate_python(self._state)
        for name, told in self._since:
            state, _ = step(state, _reader(EVENTS[name]).validate_python(told))
        self._reached, self._since = state, []
        return state

    def _learn_all(self, records: Iterable[PlacedRecord]) -> None:
        for placed in records:
            self._learn(placed.note)

    def _learn(self, note: dict[str, Any]) -> None:
        self._facts |= note.get("facts", {})
        self._devices.update(note.get("devices", ()))
        for name, told in note.get("events", ()):
            self._since.append([name, told])
            if name == "Joined":
                self._devices.add(told["device"])
        if note.get("state") is not None:
            self._state, self._since, self._reached = note["state"], [], None

    def _last(self) -> list[Segment]:
        """The segments whose answers are wanted: the last that are full, and the one that is not."""
        return self._segments[-KEPT if self.full else -KEPT - 1 :]

    def _archive_old(self) -> None:
        """All segments are full: those that are no longer wanted leave their story, and go."""
        for segment in self._segments[:-KEPT]:
            self._archive.take(segment)
            self._segments.remove(segment)
            self.disk.remove(segment.log.name)

    def _must_be_complete(self) -> None:
        """Every segment after the archived ones is there, and all but the last are whole."""
        for number, segment in enumerate(self._segments, self._archive.last + 1):
            if segment.number != number:
                missing = self.disk.where(_segment(number))
                raise StoreError(f"{missing}: is missing; restore it from a copy, or begin anew with --fresh")
        for segment, later in pairwise(self._segments):
            if not later.notes[0].note.get(DROPS):  # that one follows wherever the run has ended
                segment.must_be_whole()

    def _recover(self, segments: Sequence[Segment]) -> None:
        """A torn end goes, what was left is made to last, and what was on its way out goes."""
        self._archive.log.recover()
        for segment in segments:
            if segment.number <= self._archive.last:
                self.disk.remove(segment.log.name)
            elif segment is self._segments[-1]:
                segment.log.recover()


def _concerns(entry: Entry, device: str) -> bool:
    """Whether a fact names the device, alone or among others."""
    named = (entry.get(key) for key in ("device", "devices", "missing", "late"))
    return any(name == device or (isinstance(name, list | tuple) and device in name) for name in named)


def _told(facts: Iterable[Fact]) -> dict[str, Any]:
    told = [as_json(fact) for fact in facts]
    return {"told": told} if told else {}


def _segment(number: int) -> str:
    return SEGMENTS.replace("*", f"{number:06d}")


@cache
def _reader(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass; None: it is another thing."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def _plain(value: Any) -> Any:
    """As JSON has it; what has no order is sorted, so that equal things have equal bytes."""
    kind: type = type(value)
    if kind in ALREADY_PLAIN:
        return value
    if (names := _names(kind)) is not None:
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
