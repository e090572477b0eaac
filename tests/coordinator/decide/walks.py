"""A run of the core without a shell: everything that a shell, devices and a broker may do, chosen at random."""

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from coordinator.decide import core, modes, rounds, vocabulary
from coordinator.decide.roster import Announcement
from coordinator.decide.rounds import Rounds, Rules
from coordinator.decide.state import State, unfinished
from coordinator.decide.strikes import Conduct
from edgefl.base import events
from edgefl.base.events import Fact

DEVICES = ("a", "b", "c", "d")
HERE = Announcement(online=True, installation="i", birth=1, samples=10)


def rules(random: Random) -> Rules:
    cohort = random.randint(1, 3)
    return Rules(
        rounds=random.randint(1, 3),
        seed=random.randint(0, 3),
        cohort=cohort,
        quorum=random.randint(1, cohort),
        deadline=10.0,
        over_select=random.choice([1.0, 1.5]),
        start_with=random.choice([None, 3]),
        late=random.choice(["drop", "discount"]),
        attempts=random.randint(0, 1),
        evaluates=random.choice([False, True]),
        describes=random.choice([False, False, True]),
    )


def impatient(random: Random) -> Rules:
    """Of rounds that wait for nobody."""
    return replace(rules(random), buffered=True, over_select=1.0, late="drop", staleness=random.randint(0, 2))


@dataclass
class Walk:
    """One run, and all that was done and told in it."""

    random: Random
    state: State
    now: float = 0.0
    number: int = 0
    todo: list[vocabulary.Event] = field(default_factory=list)  # what the shell will come back with
    held: dict[bytes, str] = field(default_factory=dict)  # answers that count, until they are merged
    done: Counter[bytes] = field(default_factory=Counter)
    facts: list[Fact] = field(default_factory=list)
    merges: list[int] = field(default_factory=list)  # the rounds that were merged
    spent: vocabulary.Totals = vocabulary.NOTHING
    moves: set[tuple[str, str, str]] = field(default_factory=set)

    def feed(self, event: vocabulary.Event) -> tuple[vocabulary.Action, ...]:
        before = self.state
        self.state, actions, facts = core.step(before, event)
        if self.state.phase != before.phase:
            self.moves.add((before.phase, type(event).__name__, self.state.phase))
        self.facts += facts
        self.check(before, event, actions, facts)
        for action in actions:
            self.perform(action)
        return actions

    def check(
        self, before: State, event: vocabulary.Event, actions: tuple[vocabulary.Action, ...], facts: tuple[Fact, ...]
    ) -> None:
        verdicts = [
            one
            for one in actions
            if isinstance(one, vocabulary.Accept | vocabulary.AcceptLate | vocabulary.Ignore | vocabulary.Refuse)
        ]
        opened = [one for one in actions if isinstance(one, vocabulary.Open)]
        told = [fact for fact in facts if isinstance(fact, events.Answered)]
        match event:
            case vocabulary.AnswerArrived() if unfinished(before):
                assert len(verdicts) + len(opened) == 1, "opened, or a verdict at once"
                assert len(told) == len(verdicts)
            case vocabulary.Usable() | vocabulary.Unusable() if unfinished(before):
                assert (len(verdicts), len(told)) == (1, 1), "whatever was opened gets a verdict, and is told"
            case vocabulary.Offered():
                assert not told
            case _:
                assert (verdicts, opened, told) == ([], [], [])
        assert (self.state.rounds != before.rounds) == bool(self.state.fed), "what is written down says how it came"
        if isinstance(event, vocabulary.Woken) and self.state.phase not in ("leaving", "ended"):
            due = core.deadline(self.state)
            assert due is None or due > event.at, f"it would be woken again at once: {self.state}"

    def perform(self, action: vocabulary.Action) -> None:
        match action:
            case vocabulary.Prepare():
                model = vocabulary.PublishedModel(self.state.rounds.round, 100)
                self.todo.append(vocabulary.Prepared(0.0, self.state.rounds.round - 1, model))
            case vocabulary.Open(digest=digest):
                bad = vocabulary.Unusable(self.now, digest, "update.norm", "too long")
                self.feed(vocabulary.Usable(self.now, digest) if self.random.random() < 0.8 else bad)
            case vocabulary.Accept(digest=digest) | vocabulary.AcceptLate(digest=digest):
                assert digest not in self.held
                self.held[digest] = action.device
            case vocabulary.DropAnswers(digests):
                for digest in digests:
                    del self.held[digest]
            case vocabulary.Merge(answers=answers, late=late):
                assert len(answers) >= self.state.rounds.rules.quorum or modes.waits_for_nobody(self.state.rounds)
                for kept in (*answers.values(), *late.values()):
                    del self.held[kept.digest]
                    self.done[kept.digest] += 1
                self.merges.append(action.round)
                self.spent += action.spent
                assert action.total == self.spent
                last = action.round >= self.state.rounds.rules.rounds
                model = None if last else vocabulary.PublishedModel(action.round + 1, 100)
                report = (events.Round(action.round),)
                self.todo.append(vocabulary.Merged(0.0, action.round, model, last, () if self.state.looks else report))
                if self.state.looks:
                    self.todo.append(vocabulary.ReportsCompleted(0.0, report))

    def step(self) -> None:
        """Something happens."""
        self.now += self.random.choice([0.0, 0.1, 1.0, 40.0])
        due = core.deadline(self.state)
        if self.todo and self.random.random() < 0.25:
            event = self.todo.pop(0)
            self.feed(type(event)(self.now, *(getattr(event, name) for name in event.__slots__[1:])))
        elif due is not None and due <= self.now:
            self.feed(vocabulary.Woken(self.now, flushed=self.random.random() < 0.5))
        else:
            self.feed(self.something())

    def something(self) -> vocabulary.Event:
        random, now, device = self.random, self.now, self.random.choice(DEVICES)
        round = max(0, self.state.rounds.round + random.choice([0, 0, 0, 0, -1, 1]))
        self.number += 1
        digest = self.number.to_bytes(32, "big")
        answer = vocabulary.AnswerArrived(now, device, round, digest, 50, 3, random.choice([0.0, 0.1]))
        away = Announcement(online=False, installation="i", birth=1)
        return random.choice(
            [
                *[vocabulary.Announced(now, device, HERE, random.random() < 0.2)] * 6,
                vocabulary.Announced(now, device, away),
                vocabulary.Announced(now, device, Announcement(online=True, installation="other", birth=1)),
                *[answer] * 9,
                vocabulary.AnswerArrived(now, device, round, digest, 50, foreign="of somebody else"),
                vocabulary.Offered(now, device, round, digest, 50, ours=random.random() < 0.8),
                rounds.DeviceDeclined(device, round, now, "too warm"),
                rounds.DeviceBusy(device, round, now, "at work"),
                vocabulary.Begun(now, device),
                vocabulary.ProgressReported(now, device, round, 3),
                vocabulary.Misbehaved(now, device, "wire.malformed", "nonsense"),
                vocabulary.CoordinatorConnected(now),
                vocabulary.CoordinatorDisconnected(now, "gone"),
                vocabulary.Searched(now),
                vocabulary.WorkPaused(now, random.choice(["", "full"])),
                vocabulary.Woken(now, flushed=random.random() < 0.5),
                vocabulary.Stop(now) if random.random() < 0.2 else vocabulary.CoordinatorConnected(now),
                vocabulary.Handed(now, None) if random.random() < 0.1 else vocabulary.CoordinatorConnected(now),
                vocabulary.RunFailed(now) if random.random() < 0.2 else vocabulary.CoordinatorConnected(now),
            ]
        )


def walk(seed: int, steps: int) -> Walk:
    """One of them, from its beginning or from a restart."""
    random = Random(seed)
    drawn_rules = impatient(random) if Random(f"{seed}/mode").random() < 0.25 else rules(random)
    state = Rounds(drawn_rules, round=drawn_rules.schedule.first)
    resumed = random.random() < 0.3
    if resumed:
        phase = random.choice(["starting", "gathering", "finished"])
        state = Rounds(
            drawn_rules,
            phase,
            drawn_rules.rounds if phase == "finished" else drawn_rules.schedule.first,
            present=frozenset("ab"),
        )
    begun = State(state, Conduct(3, 60.0), looks=random.random() < 0.3, resumed=resumed)
    walked = Walk(random, begun)
    for _ in range(steps):
        walked.step()
    return walked
