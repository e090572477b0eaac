"""The coordinator's shell, driven event by event in one thread: nothing waits, and nothing is promised too early."""

from collections import deque
from typing import Any

import numpy as np
import pytest
from fleets import prepared, run_file
from puppet import Puppet, answer

from coordinator.decide import core
from coordinator.decide.story_limit import FACTS
from coordinator.decide.vocabulary import Stop
from coordinator.durable.journal import Journal
from coordinator.shell import service
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.service import Coordinator
from coordinator.shell.setup import Security
from edgefl.base import events
from edgefl.base.errors import Interrupted
from edgefl.base.events import Fact
from edgefl.system.background import Crashed, Work
from edgefl.system.reactor import DeadlineReached
from edgefl.wire import topics
from edgefl.wire.messages import Assignment, Presence
from edgefl.wire.wiring import Wiring
from tools.failing_disk import FailingDisk
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg"}, run={"rounds": 2}, rounds={"cohort": 2, "quorum": 2, "start_with": 2})


class Hand:
    """A clock, a background and a loop that go on only when the test says so."""

    def __init__(
        self, disk: FailingDisk | None = None, broker: InMemoryBroker | None = None, keys: DeviceKeys | None = None
    ) -> None:
        self.disk, self.broker = disk or FailingDisk(), broker or InMemoryBroker()
        self.time = 100.0
        self.events: deque[Any] = deque()
        self.works: deque[Work] = deque()
        self.told: list[Fact] = []
        self.tasks: dict[str, Assignment] = {}
        self.shell = Coordinator(
            RUN,
            Wiring(self.broker.client("coordinator"), clock=self, background=self, put=self.events.append),
            lambda: prepared(RUN)[0],
            journal=Journal(self.disk, clock=self),
            tell=self.told.append,
            security=Security(device_keys=keys),
        )
        self.shell.start()

    # ---- what is handed in

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return 1e9 + self.time

    def start(self, work: Work) -> None:
        self.works.append(work)

    def cancel(self) -> None:
        self.works.clear()

    close = cancel

    # ---- what the test does

    def devices(self, *, concise: bool = False) -> list[Puppet]:
        """Two of them, which remember what they are asked."""

        def act(puppet: Puppet, task: Assignment) -> None:
            self.tasks[puppet.name] = task

        clients = {name: self.broker.client(name) for name in ("a", "b")}
        puppets = [Puppet(name, client, act, job="fleet", concise=concise) for name, client in clients.items()]
        for puppet in puppets:
            puppet.start()
        self.go()
        return puppets

    def go(self, *, work: bool = False) -> None:
        """Until nothing is left to be handled, or to be worked on."""
        while self.events or (work and self.works):
            if self.events:
                self.shell.handle(self.events.popleft())
            else:
                self.works.popleft()(self.events.append)

    def wait(self, seconds: float = 0.0) -> None:
        """Time passes, up to the next deadline at least."""
        due = self.shell.deadline()
        self.time = max(self.time + seconds, due if due is not None and not seconds else 0.0)
        self.shell.handle(DeadlineReached())
        self.go()

    def kinds(self, kind: type[Fact]) -> list[Any]:
        return [fact for fact in self.told if isinstance(fact, kind)]


def reply(hand: Hand, puppet: Puppet) -> None:
    size = prepared(RUN)[0].model.layout.size
    puppet.say(answer(puppet, hand.tasks[puppet.name], {"delta": np.full(size, 1e-3, np.float32)}))


def test_devices_are_heard_while_the_model_is_made():
    hand = Hand()
    a, _ = hand.devices()
    assert len(hand.works) == 1, "it is to be made, elsewhere"
    assert [fact.device for fact in hand.kinds(events.Joined)] == ["a", "b"]
    assert not hand.tasks
    hand.go(work=True)
    assert sorted(hand.tasks) == ["a", "b"]
    assert (a.asked, hand.kinds(events.Asked)[0].at) == (1, 1e9 + 100.0)


def test_a_run_from_its_beginning_to_its_end():
    hand = Hand()
    puppets = hand.devices()
    for _ in range(2):
        hand.go(work=True)
        for puppet in puppets:
            reply(hand, puppet)
    hand.go(work=True)
    for _ in range(9):
        hand.wait()
    assert hand.shell.ended
    assert hand.shell.result().round == 2
    done = hand.told[-1]
    assert isinstance(done, events.Done)
    assert (done.rounds, done.bytes_up, done.late, dict(done.refused)) == (
        2,
        sum(r.bytes_up for r in hand.kinds(events.Round)),
        0,
        {},
    )
    left = {topic.split("/")[3] for topic in hand.broker.retained}
    assert left == {"presence", "fleet"}, "who is there, and that the run has finished"
    assert list(Journal(hand.disk, reading=True).story())[-1] == done, "the story has its end"


def test_an_answer_is_promised_nothing_until_the_journal_has_it():
    hand = Hand()
    a, b = hand.devices()
    hand.go(work=True)
    hand.disk.capacity = hand.disk.used
    reply(hand, a)
    reply(hand, b)
    hand.go(work=True)
    assert (a.verdicts, b.verdicts) == ([], [])
    assert hand.shell.state.rounds.answered == frozenset(), "it is not taken in"
    assert core.waiting(hand.shell.state).startswith("paused: ")
    assert hand.shell.deadline() == 100.0 + service.RETRY
    hand.wait()
    hand.wait()
    assert len(hand.kinds(events.Paused)) == 1, "told once, however often it is tried"
    hand.disk.capacity = None
    hand.wait()
    assert [v for v, _ in (*a.verdicts, *b.verdicts)] == ["accepted", "accepted"]
    assert hand.shell.state.paused == ""
    assert [fact.device for fact in hand.kinds(events.Answered)] == ["a", "b"], "in the order they came"


def test_whoever_wants_an_end_does_not_wait_for_the_disk():
    hand = Hand()
    a, _ = hand.devices()
    hand.go(work=True)
    hand.disk.capacity = hand.disk.used
    reply(hand, a)
    hand.go()
    hand.shell.handle(Stop())
    hand.wait()
    assert hand.shell.ended
    with pytest.raises(Interrupted, match="in round 1; the same command goes on"):
        hand.shell.result()


def test_a_checkpoint_that_cannot_be_written_is_tried_again():
    hand = Hand()
    for puppet in hand.devices():
        hand.go(work=True)
        reply(hand, puppet)
    hand.go()
    hand.disk.capacity = hand.disk.used
    hand.go(work=True)
    assert len(hand.kinds(events.Paused)) == 1
    for _ in range(3):
        hand.wait(service.RETRY)
        hand.go(work=True)
    assert len(hand.kinds(events.Paused)) == 1
    hand.disk.capacity = None
    hand.wait(service.RETRY)
    hand.go(work=True)
    assert [fact.round for fact in hand.kinds(events.Round)] == [1]
    assert hand.shell.state.paused == ""


def test_after_a_restart_nobody_is_heard_before_what_was_promised_is_here_again():
    first = Hand()
    a, b = first.devices()
    first.go(work=True)
    reply(first, a)
    first.go()
    assert [v for v, _ in a.verdicts] == ["accepted"]
    again = Hand(first.disk, first.broker)  # takes the session over
    again.tasks = first.tasks
    again.go()
    assert again.shell.run_id == first.shell.run_id
    assert again.kinds(events.Joined) == []
    reply(again, b)
    again.go()
    assert b.verdicts == []
    again.go(work=True)
    assert [v for v, _ in b.verdicts] == ["accepted"]
    assert [fact.devices for fact in again.kinds(events.Closed)] == [("a", "b")]
    again.wait(service.TOGETHER)
    assert [fact.devices for fact in again.kinds(events.Round)] == [2]
    assert [fact.at for fact in again.told if fact.at < 1e9] == [], "everything that is told has its time"


def test_work_that_fails_ends_the_run_with_its_reason():
    hand = Hand()
    hand.devices()
    hand.shell.handle(Crashed(ZeroDivisionError("a bug")))
    hand.wait()
    assert hand.shell.ended
    with pytest.raises(ZeroDivisionError, match="a bug"):
        hand.shell.result()


def test_the_same_answer_again_takes_nothing_away():
    hand = Hand()
    a, b = hand.devices()
    hand.go(work=True)
    reply(hand, a)
    reply(hand, a)
    hand.go()
    reply(hand, b)
    hand.go(work=True)
    hand.wait(service.TOGETHER)
    assert [v for v, _ in a.verdicts] == ["accepted", "duplicate"]
    assert [fact.devices for fact in hand.kinds(events.Round)] == [2]


def test_a_model_made_after_somebody_wanted_an_end_is_not_published():
    hand = Hand()
    hand.devices()
    hand.shell.handle(Stop())
    work = hand.works.popleft()
    work(hand.events.append)
    hand.go()
    assert not any("/model/" in topic for topic in hand.broker.retained)


def test_what_matters_of_the_story_is_in_the_journal_with_who_was_slow():
    hand = Hand()
    a, _ = hand.devices()
    hand.go(work=True)
    hand.time += 7.0
    reply(hand, a)
    hand.go()
    story = list(hand.shell.journal.story(device="a"))
    assert [type(fact) for fact in story] == [events.Joined, events.Asked, events.Answered]
    assert story[-1].took == 7.0


# ── answers that are written together ────────────────────────────────────────────────────────────────────────


def test_answers_that_come_close_together_are_written_in_one_go():
    hand = Hand()
    a, b = hand.devices(concise=True)
    hand.go(work=True)
    writes = hand.disk.writes
    reply(hand, a)
    hand.go()
    assert hand.disk.writes == writes
    assert hand.kinds(events.Answered) == [], "nothing is told, and nothing said, before it is written"
    reply(hand, b)
    hand.go()
    assert hand.disk.writes == writes + 1
    assert [fact.device for fact in hand.kinds(events.Answered)] == ["a", "b"]
    assert len(Journal(hand.disk, reading=True).answers(merged=1)) == 2
    hand.go(work=True)
    assert (hand.tasks["a"].round, hand.tasks["a"].counted) == (2, 1), "which is the receipt"
    assert (a.verdicts, b.verdicts) == ([], [])


def test_one_that_stays_alone_is_written_in_a_moment_and_receipted_later():
    hand = Hand()
    a, _ = hand.devices(concise=True)
    hand.go(work=True)
    reply(hand, a)
    hand.go()
    assert hand.shell.deadline() <= 100.0 + service.TOGETHER
    hand.wait(service.TOGETHER)
    assert len(Journal(hand.disk, reading=True).answers()) == 1
    assert a.verdicts == []
    hand.wait(0.5)
    assert [v for v, _ in a.verdicts] == ["accepted"]


def test_the_same_answer_again_while_the_first_waits_is_a_duplicate():
    hand = Hand()
    a, b = hand.devices(concise=True)
    hand.go(work=True)
    reply(hand, a)
    reply(hand, a)
    hand.go()
    assert [v for v, _ in a.verdicts] == ["duplicate"]
    assert len(Journal(hand.disk, reading=True).answers()) == 1
    reply(hand, b)
    hand.go(work=True)
    hand.wait(service.TOGETHER)
    assert [fact.devices for fact in hand.kinds(events.Round)] == [2]


@pytest.mark.parametrize("room", [False, True], ids=["full disk", "room again"])
def test_what_waits_on_a_full_disk_is_promised_to_nobody(room: bool):
    hand = Hand()
    a, _ = hand.devices(concise=True)
    hand.go(work=True)
    reply(hand, a)
    hand.go()
    hand.disk.capacity = hand.disk.used
    hand.wait(service.TOGETHER)
    assert core.waiting(hand.shell.state).startswith("paused: ")
    if room:
        hand.disk.capacity = None
    hand.events.append(Stop())
    hand.go()
    assert [v for v, _ in a.verdicts] == ["accepted"] * room
    hand.disk.capacity = None
    assert len(Journal(hand.disk, reading=True).answers()) == room


# ── a round that follows from what is written ────────────────────────────────────────────────────────────────


def closed(hand: Hand) -> None:
    """The first round is answered and closed, and its merge is still to be done."""
    puppets = hand.devices(concise=True)
    hand.go(work=True)
    for puppet in puppets:
        reply(hand, puppet)
    hand.go()


def test_devices_are_asked_for_the_next_round_before_it_is_written():
    hand = Hand()
    closed(hand)
    hand.disk.capacity = hand.disk.used
    hand.go(work=True)
    assert hand.tasks["a"].round == 2
    assert hand.kinds(events.Round) == [], "nothing is told of it"
    hand.tasks.clear()
    hand.wait(service.RETRY)
    hand.disk.capacity = None
    hand.wait(service.RETRY)
    hand.go(work=True)
    assert [fact.round for fact in hand.kinds(events.Round)] == [1]
    assert hand.tasks == {}, "nobody is asked again at each attempt to write"
    assert Journal(hand.disk, reading=True).rounds().round == 2


def test_who_is_killed_before_it_is_written_asks_for_the_same_again():
    first = Hand()
    closed(first)
    first.disk.capacity = first.disk.used
    first.go(work=True)
    asked = {name: (task.round, task.attempt, task.model) for name, task in first.tasks.items()}
    first.disk.capacity = None
    again = Hand(first.disk, InMemoryBroker())
    again.devices(concise=True)
    again.go(work=True)
    assert {name: (task.round, task.attempt, task.model) for name, task in again.tasks.items()} == asked
    assert {task[0] for task in asked.values()} == {2}


def test_the_journal_grows_by_so_much_and_a_restart_begins_no_other_hour():
    hand = Hand()
    puppet, _ = hand.devices()
    hand.go(work=True)
    sizes = []
    for life in range(3):
        if life:
            hand = Hand(hand.disk, hand.broker)  # takes the session over; its clock was set back
            hand.go(work=True)
        for number in range(300):
            here = bool(number % 2)
            said = puppet.presence(Presence(online=here, installation="a", birth=1, samples=10))
            puppet.transport.publish(topics.presence("default", "a"), said, retain=True)
            hand.go()
            hand.time += 0.3
        sizes.append(hand.disk.size("journal-000001.log") or 0)
        assert len(hand.kinds(events.Lost)) >= 150
    story = list(Journal(hand.disk, reading=True).story("a"))
    kinds = [type(fact) for fact in story]
    assert (kinds.count(events.Joined), kinds.count(events.Lost)) == (FACTS, FACTS)
    assert sizes[2] - sizes[0] < 4000, sizes
