"""The round machine under any sequence of events: what never happens, and what always happens in the end."""

from collections import Counter, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coordinator.decide.rounds import (
    Abandon,
    AcceptAnswer,
    AcceptLateAnswer,
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
    outstanding,
    step,
    verdict,
)

FLEET = tuple(f"pi-{i}" for i in range(6))
DEVICES = st.sampled_from(FLEET)


@st.composite
def all_rules(draw: st.DrawFn) -> Rules:
    cohort = draw(st.integers(2, 5))
    quorum = draw(st.integers(1, cohort))
    return Rules(
        rounds=draw(st.integers(2, 6)),
        seed=draw(st.integers(0, 3)),
        cohort=cohort,
        quorum=quorum,
        deadline=30.0,
        over_select=draw(st.sampled_from([1.0, 1.3, 2.0])),
        start_with=draw(st.none() | st.integers(quorum, len(FLEET))),
        late=draw(st.sampled_from(["drop", "discount", "memory"])),
        attempts=draw(st.integers(0, 3)),
        evaluates=draw(st.booleans()),
        describes=draw(st.booleans()),
    )


class AnyWeather(RuleBasedStateMachine):
    @initialize(rules=all_rules())
    def start(self, rules: Rules) -> None:
        self.s = Rounds(rules, round=rules.schedule.first)
        self.events: list[Event] = []
        self.did: list[tuple[Action, ...]] = []
        self.merges: dict[int, tuple[str, ...]] = {}
        self.late: Counter[tuple[str, int]] = Counter()
        self.asked: set[tuple[str, int, int]] = set()  # device, round, opening
        self.heard: set[tuple[str, int, int]] = set()

    # ── what may happen ──────────────────────────────────────────────────────────────────────────────────────

    @rule(device=DEVICES)
    def join(self, device: str) -> None:
        self.feed(DeviceJoined(device, 0.0))

    @rule()
    def everybody_joins(self) -> None:
        for device in FLEET:
            self.feed(DeviceJoined(device, 0.0))

    @rule(device=DEVICES)
    def lose(self, device: str) -> None:
        self.feed(DeviceLost(device, 0.0))

    @rule(device=st.one_of(DEVICES, st.just("stranger")), off=st.sampled_from([-2, -1, 0, 0, 1]))
    def answer_anything(self, device: str, off: int) -> None:
        self.feed(DeviceAnswered(device, self.s.round + off, 0.0))

    @precondition(lambda self: outstanding(self.s))
    @rule(data=st.data(), word=st.sampled_from(["lost", "declined", "back"]))
    def trouble(self, data: st.DataObject, word: str) -> None:
        device = data.draw(st.sampled_from(outstanding(self.s)))
        self.feed(DeviceDeclined(device, self.s.round, 0.0) if word == "declined" else DeviceLost(device, 0.0))
        if word == "back":
            self.feed(DeviceJoined(device, 0.0))

    @precondition(lambda self: outstanding(self.s))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self.feed(DeviceAnswered(data.draw(st.sampled_from(outstanding(self.s))), self.s.round, 0.0))

    @rule(device=DEVICES, off=st.integers(-1, 1))
    def decline(self, device: str, off: int) -> None:
        self.feed(DeviceDeclined(device, self.s.round + off, 0.0))

    @precondition(lambda self: outstanding(self.s))
    @rule(data=st.data(), off=st.sampled_from([0, 0, 0, -1, 1]))
    def be_busy(self, data: st.DataObject, off: int) -> None:
        self.feed(DeviceBusy(data.draw(st.sampled_from(outstanding(self.s))), self.s.round + off, 0.0))

    @rule()
    def restart(self) -> None:
        self.feed(RunResumed(0.0))

    @rule(off=st.sampled_from([0, 0, 0, -1, 1]))
    def expire(self, off: int) -> None:
        self.feed(TimerExpired(self.s.round, self.s.attempt + off, 0.0))

    @rule(skip=st.sampled_from([0, 0, 0, 1, -1]), done=st.sampled_from([False] * 15 + [True]))
    def merge(self, skip: int, done: bool) -> None:
        self.feed(RoundMerged(self.s.round + skip, 0.0, done))

    # ── what never happens ───────────────────────────────────────────────────────────────────────────────────

    def feed(self, event: Event) -> tuple[Action, ...]:
        before = self.s
        self.s, actions = step(before, event)
        self.events.append(event)
        self.did.append(actions)
        self.remember(event, actions)
        self.check_step(before, event, actions)
        for action in actions:
            self.check_action(before, event, action)
        return actions

    def check_step(self, before: Rounds, event: Event, actions: tuple[Action, ...]) -> None:
        verdicts = [action for action in actions if isinstance(action, AcceptAnswer | AcceptLateAnswer | IgnoreAnswer)]
        if isinstance(event, DeviceAnswered):
            assert verdicts == [actions[0]] == [verdict(before, event.device, event.round)], "one verdict, and first"
        assert isinstance(event, DeviceAnswered | DeviceDeclined | DeviceBusy) or not verdicts
        assert self.s.attempt >= before.attempt
        if self.s.round != before.round:
            assert before.phase == "merging"
            assert isinstance(event, RoundMerged)
            assert self.s.round in (event.round, event.round + 1)
            assert self.s.round > before.round or self.s.phase == "finished"
        if before.phase == "finished":
            assert self.s == before
            assert all(
                a == Finish(before.round) if isinstance(event, RunResumed) else a.reason == "finished" for a in actions
            )
        assert sum(isinstance(a, SetTimer) for a in actions) <= 1
        assert self.s.phase != "open" or len(set(self.s.asked)) == len(self.s.asked)
        assert self.s.phase != "open" or self.s.extended <= self.s.rules.attempts
        if isinstance(event, RoundMerged) and len(self.s.present) >= self.s.rules.quorum:
            assert self.s.phase != "gathering", "a quorum that is there is asked, whoever else is away"
        match event:
            case TimerExpired(attempt=attempt) if attempt != before.attempt:
                assert (self.s, actions) == (before, ()), "an old timer means nothing"
            case DeviceAnswered(device, round) if before.phase == "open" and round == before.round:
                assert (IgnoreAnswer(device, round, "duplicate") in actions) == (device in before.answered)
            case DeviceJoined(device) if device in before.asked and device in outstanding(self.s):
                assert actions == (Invite(self.s.round, (device,), self.s.opening),), (
                    "whoever comes back is asked again"
                )
            case DeviceLost(device) | DeviceDeclined(device) | DeviceBusy(device) if device in outstanding(
                before
            ) and device not in outstanding(self.s):
                spare = before.present.difference(before.asked, {device})
                lacks = len(before.answered) + len(outstanding(before)) - 1 < self.s.rules.size
                steps_in = bool(spare) and (lacks or isinstance(event, DeviceBusy))
                assert len(self.s.asked) == len(before.asked) + steps_in, "a spare steps in where one is lacking"

    def check_action(self, before: Rounds, event: Event, action: Action) -> None:  # noqa: C901  one action, one case
        match action:
            case Invite(round, devices, attempt):
                assert (round, attempt) == (self.s.round, self.s.opening)
                assert len(set(devices)) == len(devices) > 0
                assert self.s.present.issuperset(devices)
                assert set(devices) <= set(self.s.asked)
                self.asked |= {(d, round, attempt) for d in devices}
            case MergeRound(round, devices):
                assert round == before.round
                if isinstance(event, RunResumed) and before.phase == "merging":
                    assert self.merges[round] == devices, "the same again"
                    return
                assert round not in self.merges, "one Merge for a round"
                assert list(devices) == sorted(set(devices))
                assert len(devices) >= self.s.rules.quorum or self.s.purpose == "evaluate", "nobody holds a model back"
                spare = self.s.rules.over_select > 1 or self.s.busy & self.s.declined
                fast = spare and self.s.purpose == "train" and len(devices) >= self.s.rules.cohort
                if not fast and not isinstance(event, TimerExpired):
                    assert set(outstanding(before)) <= {getattr(event, "device", None)}, "it waits for all it asked"
                assert {(d, round, self.s.opening) for d in devices} <= self.asked & self.heard
                self.merges[round] = devices
            case AcceptLateAnswer(device, round):
                assert self.s.rules.late != "drop"
                assert device not in self.merges[round]
                assert any((d, r) == (device, round) for d, r, _ in self.asked)
                self.late[device, round] += 1
                assert self.late[device, round] == 1, "a late answer is handed on once"
            case SetTimer(round, attempt, seconds):
                assert (round, attempt, seconds) == (self.s.round, self.s.attempt, 30.0)
                assert attempt > before.attempt or isinstance(event, RunResumed)
            case Abandon(round):
                assert round == before.round == self.s.round
                assert len(before.answered) < self.s.rules.quorum
                assert not self.s.answered
            case Finish(rounds):
                assert rounds == self.s.round
                assert isinstance(event, RoundMerged | RunResumed)
            case AcceptAnswer(device, round):
                assert self.s.phase == "merging" or device in self.s.answered
                assert round == before.round
            case IgnoreAnswer():
                assert self.s == before, "what is ignored changes nothing"

    def remember(self, event: Event, actions: tuple[Action, ...]) -> None:
        ignored = any(isinstance(a, IgnoreAnswer | AcceptLateAnswer) for a in actions)
        if isinstance(event, DeviceAnswered) and not ignored:
            self.heard.add((event.device, event.round, self.s.opening))

    # ── what always happens ──────────────────────────────────────────────────────────────────────────────────

    def teardown(self) -> None:
        if not hasattr(self, "s"):
            return
        self.check_replay()
        self.check_finish()

    def check_replay(self) -> None:
        s = Rounds(self.s.rules, round=self.s.rules.schedule.first)
        for event, actions in zip(self.events, self.did, strict=True):
            s, again = step(s, event)
            assert again == actions
        assert s == self.s

    def check_finish(self) -> None:
        """From here on the fleet is healthy and the shell does what it is told, starting from a restart."""
        todo: deque[Event] = deque(DeviceJoined(d, 0.0) for d in FLEET)
        timer = self.schedule(todo, self.feed(RunResumed(0.0)), None)
        most = (self.s.rules.rounds + 2) * (self.s.rules.attempts + 2) * (2 * len(FLEET) + 3) + len(FLEET)
        for _ in range(most):
            if self.s.phase == "finished":
                return
            if not todo:
                assert timer is not None, "nothing to do and nothing to wait for"
                todo.append(TimerExpired(timer.round, timer.attempt, 0.0))
            timer = self.schedule(todo, self.feed(todo.popleft()), timer)
        assert self.s.phase == "finished"

    def schedule(self, todo: deque[Event], actions: tuple[Action, ...], timer: SetTimer | None) -> SetTimer | None:
        for action in actions:
            match action:
                case Invite(round, devices):
                    todo.extend(DeviceAnswered(d, round, 0.0) for d in devices)
                case MergeRound(round):
                    todo.append(RoundMerged(round, 0.0))
                case SetTimer():
                    timer = action
                case _:
                    pass
        return timer


TestAnyWeather = AnyWeather.TestCase
TestAnyWeather.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
