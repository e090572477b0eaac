"""What was decided and is not written yet: answers that come close together become durable in one go.

A step that only accepts an answer may wait a moment for others, because nothing is said about it meanwhile: whatever a
device is promised comes later, and comes behind the write. Every other step has those that wait written with it.

One step may be carried out before it is written: that which only opens the next round. It follows from the closing of
the last one, which is written: a coordinator that is killed in between merges the same answers, and asks for the same
again. So it may wait as well: a round that takes no longer than that is written in one go.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.decide import vocabulary
from coordinator.decide.state import State
from coordinator.durable.journal import AnswerFrame, JournalEntry
from edgefl.base.events import Fact

TOGETHER = 0.05  # seconds that an answer, or a round that was opened, waits for others to be written with it
MOST = 16 << 20  # bytes of answers that wait together: they wait in memory


@dataclass(frozen=True, slots=True)
class CoreStep:
    """One step of the core, before anything came of it."""

    before: State
    state: State
    actions: tuple[vocabulary.Action, ...]
    facts: tuple[Fact, ...]
    answer: AnswerFrame | None = None  # the one that it accepts
    held: int = 0  # bytes of all answers that wait to be written with it, its own included

    @property
    def changes(self) -> bool:
        """Whether the rounds stand elsewhere: that has to be written."""
        return bool(self.state.fed)

    @property
    def closes(self) -> bool:
        """Whether it closes a round, and everything that waits is merged."""
        now, before = self.state.rounds, self.before.rounds
        return now.phase == "merging" and (now.phase, now.round) != (before.phase, before.round)

    @property
    def follows(self) -> bool:
        """Whether it opens the next round and does nothing else, so that it is the same whenever it is made again."""
        now, before = self.state.rounds, self.before.rounds
        opens = before.phase == "merging" and now.phase == "open" and not now.rules.buffered
        return opens and all(
            isinstance(action, vocabulary.Publish | vocabulary.SayState | vocabulary.Ask) for action in self.actions
        )

    @property
    def may_wait(self) -> bool:
        """Whether it can be written a moment later, together with others."""
        quiet = self.follows or {vocabulary.Accept}.issuperset(map(type, self.actions))
        return quiet and not self.closes and self.held <= MOST


def only_looks(actions: tuple[vocabulary.Action, ...]) -> bool:
    """Whether an answer is looked into, and nothing else comes of a step: what it is worth comes back as an event."""
    return len(actions) == 1 and isinstance(actions[0], vocabulary.Open)


def happened(story: Iterable[Fact], decided: Iterable[CoreStep]) -> tuple[list[JournalEntry], list[Fact]]:
    """What the journal shall have of these steps, and the facts that can wait for the next that must be written."""
    waiting, entries = list(story), list[JournalEntry]()
    for one in decided:
        written = (fact for place, fact in enumerate(one.facts) if place not in one.state.left_out)
        waiting += [fact for fact in written if fact.lasting]
        if one.changes:
            population = one.state.population if one.closes else None
            entries.append(JournalEntry(one.state.fed, one.state.rounds, one.answer, population, tuple(waiting)))
            waiting = []
    return entries, waiting
