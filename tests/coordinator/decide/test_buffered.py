"""Rounds that wait for nobody, told event by event, and under any sequence of events."""

import json
from collections import Counter
from dataclasses import asdict, replace
from random import Random

import pytest
from draws import seeds
from pydantic import TypeAdapter

from coordinator.decide import modes
from coordinator.decide.rounds import (
    AcceptAnswer,
    Action,
    DeviceAnswered,
    DeviceBusy,
    DeviceDeclined,
    DeviceJoined,
    DeviceLost,
    Event,
    Finish,
    IgnoreAnswer,
    Invite,
    MergeRound,
    RoundMerged,
    Rounds,
    Rules,
    RunResumed,
    SetTimer,
    TimerExpired,
    Work,
    reopened,
)

RULES = Rules(rounds=9, seed=7, cohort=3, quorum=2, deadline=30.0, start_with=4, buffered=True, staleness=2)
FLEET = ("a", "b", "c", "d")


def feed(s: Rounds, *events: Event) -> tuple[Rounds, list[Action]]:
    """What is done about these events, besides timers and saying that an answer counts."""
    did: list[Action] = []
    for event in events:
        s, actions = modes.step(s, event)
        did += (action for action in actions if not isinstance(action, AcceptAnswer | SetTimer))
    return s, did


def begun(rules: Rules = RULES, fleet: tuple[str, ...] = FLEET) -> Rounds:
    return feed(Rounds(rules), *(DeviceJoined(device, 0.0) for device in fleet))[0]


def answer(s: Rounds, device: str) -> DeviceAnswered:
    return DeviceAnswered(device, s.work[device].round, 1.0)


def merged(s: Rounds) -> tuple[Rounds, list[Action]]:
    return feed(s, RoundMerged(s.round, 2.0))


def first(s: Rounds) -> tuple[str, ...]:
    """Who is at work, in the order they were asked."""
    return modes.outstanding(s)


def test_as_many_are_at_work_as_may_be_and_whoever_answers_is_replaced_at_once():
    s = begun()
    one, two, three = first(s)
    spare = next(device for device in FLEET if device not in s.work)
    s, did = feed(s, answer(s, one))
    assert did == [Invite(1, (spare,), 1)]
    assert set(first(s)) == {two, three, spare}


def test_a_full_buffer_is_merged_and_then_those_who_were_in_it_get_the_next_model():
    s = begun()
    one, two, _ = first(s)
    s, did = feed(s, answer(s, one), answer(s, two))
    assert did[-1] == MergeRound(1, tuple(sorted((one, two))))
    s, did = merged(s)
    (asked,) = did
    assert isinstance(asked, Invite)
    assert (asked.round, s.round, s.phase) == (2, 2, "open")
    assert set(asked.devices) <= {one, two}, "the others are at work"


def test_whoever_began_with_an_older_model_counts_when_it_is_done():
    s = begun()
    one, two, slow = first(s)
    s, _ = merged(feed(s, answer(s, one), answer(s, two))[0])
    s, _ = modes.step(s, DeviceAnswered(slow, 1, 3.0))
    assert slow in s.answered
    assert s.counted[slow] == 1, "the task says so, should the receipt be lost"


def test_an_answer_while_a_round_is_merged_is_one_of_the_next():
    s = begun()
    one, two, slow = first(s)
    s, _ = feed(s, answer(s, one), answer(s, two))
    s, did = modes.step(s, DeviceAnswered(slow, 1, 3.0))
    assert did == (AcceptAnswer(slow, 1),)
    assert (s.answered, s.later) == ({one, two}, {slow})
    s, _ = merged(s)
    assert (s.answered, s.later) == ({slow}, frozenset())


def test_a_device_counts_once_in_a_merge_and_is_not_asked_before():
    s = begun(replace(RULES, cohort=4))
    one = first(s)[0]
    s, did = feed(s, answer(s, one))
    assert did == [], "nobody else is free"
    _, did = feed(s, DeviceAnswered(one, 1, 3.0))
    assert did == [IgnoreAnswer(one, 1, "duplicate")]


def test_what_began_too_long_ago_is_refused_and_its_device_asked_anew():
    s = begun()
    slow = first(s)[-1]
    for _ in range(RULES.staleness + 1):
        fast = [device for device in FLEET if device != slow]
        while s.phase == "open":
            s, _ = feed(s, answer(s, next(device for device in fast if device in s.work)))
        before, (s, did) = s, merged(s)
    assert before.work[slow].round == 1
    assert s.round == 4
    assert slow not in s.work or s.work[slow].round == 4
    _, did = feed(s, DeviceAnswered(slow, 1, 9.0))
    assert did == [IgnoreAnswer(slow, 1, "stale")]


def test_a_device_that_is_lost_keeps_its_work_and_its_place_is_taken():
    s = begun()
    gone, spare = first(s)[0], next(device for device in FLEET if device not in s.work)
    s, did = feed(s, DeviceLost(gone, 1.0))
    assert did == [Invite(1, (spare,), 1)]
    s, did = feed(s, DeviceJoined(gone, 2.0))
    assert did == [Invite(1, (gone,), 1)], "the same work: it may have lost it"
    s, _ = feed(s, answer(s, gone))
    assert gone in s.answered


def test_whoever_declines_is_asked_again_in_the_next_round():
    s = begun()
    one, two, three = first(s)
    s, _ = feed(s, DeviceDeclined(one, 1, 1.0))
    assert one not in s.work
    s, did = merged(feed(s, answer(s, two), answer(s, three))[0])
    assert one in {device for invite in did if isinstance(invite, Invite) for device in invite.devices} | set(s.work)


def test_whoever_has_another_run_first_keeps_the_task_and_somebody_else_is_asked():
    s = begun()
    busy, spare = first(s)[0], next(device for device in FLEET if device not in s.work)
    s, did = feed(s, DeviceBusy(busy, 1, 1.0))
    assert did == [Invite(1, (spare,), 1)]
    s, _ = feed(s, answer(s, busy))
    assert busy in s.answered


def test_a_deadline_without_a_merge_merges_whatever_there_is():
    s = begun()
    one = first(s)[0]
    s, _ = feed(s, answer(s, one))
    s, did = feed(s, TimerExpired(1, s.attempt, 30.0))
    assert did == [MergeRound(1, (one,))]


def test_a_deadline_without_an_answer_says_the_tasks_again_and_after_another_one_gives_them_up():
    s = begun(fleet=FLEET)
    at_work = first(s)
    s, did = feed(s, TimerExpired(1, s.attempt, 30.0))
    assert did == [Invite(1, at_work, 1)]
    s, did = feed(s, TimerExpired(1, s.attempt, 60.0))
    assert {invite.attempt for invite in did if isinstance(invite, Invite)} == {3}
    assert len(first(s)) == RULES.cohort


def test_the_last_round_takes_no_answer_that_nobody_would_merge():
    s = begun(replace(RULES, rounds=1))
    one, two, slow = first(s)
    s, _ = feed(s, answer(s, one), answer(s, two))
    _, did = feed(s, DeviceAnswered(slow, 1, 3.0))
    assert did == [IgnoreAnswer(slow, 1, "late")]
    s, did = feed(s, RoundMerged(1, 4.0, done=True))
    assert did == [Finish(1)]
    assert s.work == {}


def test_the_last_model_is_evaluated_in_a_round_that_waits():
    s = begun(replace(RULES, rounds=1, evaluates=True))
    one, two, _ = first(s)
    s, did = merged(feed(s, answer(s, one), answer(s, two))[0])
    assert (s.round, s.purpose, s.work) == (2, "evaluate", {})
    assert len(s.asked) == RULES.cohort
    assert [invite.round for invite in did if isinstance(invite, Invite)] == [2]


def test_after_a_restart_the_work_in_hand_is_said_again():
    s = begun()
    s, _ = feed(s, answer(s, first(s)[0]))
    again, did = feed(s, RunResumed(0.0))
    assert again == s
    assert did == [Invite(1, first(s), 1)]


@pytest.mark.parametrize(("rounds", "phase"), [(2, "merging"), (9, "open")])
def test_a_buffer_that_is_full_under_other_rules_is_merged(rounds, phase):
    s = begun(replace(RULES, rounds=rounds))
    s, _ = feed(s, answer(s, first(s)[0]))
    s = replace(s, rules=replace(s.rules, quorum=1 if phase == "merging" else 2))
    assert feed(s, RunResumed(0.0))[0].phase == phase


def test_why_it_waits_is_told():
    s = begun()
    assert modes.waiting(s).startswith("round 1: 0 of 2 answers; 3 at work (")
    s, _ = feed(s, *(DeviceLost(device, 1.0) for device in FLEET))
    assert modes.waiting(s) == "round 1: 0 of 2 answers; no device is at work"


# ── whatever happens ─────────────────────────────────────────────────────────────────────────────────────────


class Weather:
    """One random run, and what must hold in it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        cohort = random.randint(1, 4)
        rules = Rules(
            random.randint(1, 6),
            seed,
            cohort,
            random.randint(1, cohort),
            30.0,
            start_with=random.choice([None, 2]),
            evaluates=random.random() < 0.3,
            describes=random.random() < 0.2,
            buffered=True,
            staleness=random.randint(0, 3),
        )
        self.s = Rounds(rules, round=rules.schedule.first)
        self.waiting: Counter[tuple[str, int]] = Counter()  # accepted, and not merged yet
        self.told: list[Event] = []

    def feed(self, event: Event) -> None:
        before, (self.s, actions) = self.s, modes.step(self.s, event)
        trains = modes.waits_for_nobody(before)
        if self.s != before:
            self.told.append(event)
        for action in actions:
            match action:
                case AcceptAnswer(device, round) if trains:
                    assert before.work[device].round == round
                    self.waiting[device, round] += 1
                case MergeRound(round, devices) if trains and before.phase != "merging":
                    came = {device: base for device, base in self.waiting if device in devices}
                    assert len(came) == len(devices), "each of them has answered, once"
                    assert all(round - base <= before.rules.staleness for base in came.values())
                    self.waiting -= Counter(came.items())
                case Invite(round, devices) if modes.waits_for_nobody(self.s):
                    assert not (self.s.answered | self.s.later).intersection(devices)
                    fresh = [device for device in devices if device not in before.work]
                    assert not fresh or len(modes.outstanding(self.s)) <= self.s.rules.cohort
        assert set(self.waiting.values()) <= {1}

    def something(self) -> None:
        s, random, device = self.s, self.random, self.random.choice(FLEET)
        base = s.work[device].round if device in s.work else s.round + random.choice([-2, -1, 0, 1])
        happened: list[Event] = [
            *[DeviceJoined(device, 0.0)] * 3,
            DeviceLost(device, 0.0),
            *[DeviceAnswered(device, max(0, base), 0.0)] * 6,
            DeviceDeclined(device, max(0, base), 0.0),
            DeviceBusy(device, max(0, base), 0.0),
            TimerExpired(s.round, s.attempt, 0.0),
            *[RoundMerged(s.round, 0.0)] * 3,
            RunResumed(0.0),
        ]
        self.feed(random.choice(happened))


@pytest.mark.parametrize("seed", seeds(150))
def test_every_answer_that_was_accepted_is_merged_once_or_waits_to_be(seed):
    weather = Weather(seed)
    first_state = weather.s
    for _ in range(120):
        weather.something()
    s = weather.s
    if modes.waits_for_nobody(s) and s.phase == "open":
        assert {device for device, _ in weather.waiting} == s.answered
    again = first_state
    for event in weather.told:
        again, _ = modes.step(again, event)
    assert again == s, "what changed the state is the whole truth"
    assert TypeAdapter(Rounds).validate_python(json.loads(json.dumps(asdict(s), default=sorted))) == s


@pytest.mark.parametrize("seed", seeds(50))
def test_whatever_has_happened_a_fleet_that_answers_gets_to_the_end(seed):
    weather = Weather(seed)
    for _ in range(60):
        weather.something()
    for device in FLEET:
        weather.feed(DeviceJoined(device, 0.0))
    for _ in range(200):
        s = weather.s
        if s.phase == "finished":
            break
        for device in modes.outstanding(s):
            weather.feed(DeviceAnswered(device, s.work[device].round if device in s.work else s.round, 0.0))
        weather.feed(RoundMerged(weather.s.round, 0.0))
        if weather.s == s:
            weather.feed(TimerExpired(s.round, s.attempt, 0.0))
    assert weather.s.phase == "finished"


def test_a_model_with_other_bytes_is_asked_for_anew():
    s = begun()
    s, did = feed(reopened(s), RunResumed(0.0))
    assert [len(invite.devices) for invite in did if isinstance(invite, Invite)] == [3]
    assert set(s.work.values()) == {Work(1, 2)}
