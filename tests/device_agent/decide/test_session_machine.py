"""The session machine under any sequence of events, and a whole fleet of them under a round machine."""

import re
from collections import Counter, deque
from dataclasses import replace
from random import Random
from typing import get_args

from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coordinator.decide import rounds
from coordinator.decide.rounds import Rounds, Rules
from device_agent.decide import session
from device_agent.decide.session import DISBELIEF, HOPELESS, MOST_HELD, Session, known, step
from device_agent.decide.vocabulary import (
    Action,
    AgentConnected,
    AgentDisconnected,
    Announce,
    AnnounceLater,
    CancelTraining,
    Commit,
    Decline,
    Event,
    Fetch,
    Forget,
    LogNote,
    ModelArrived,
    ModelDisbelieved,
    ModelOverdue,
    Offer,
    Quit,
    Receipted,
    RefusalReceived,
    ReportBusy,
    ResendRequested,
    Said,
    Send,
    SendChunks,
    StateSeen,
    Stopped,
    Tasked,
    Train,
    Trained,
    TrainingFailed,
    Unfit,
)
from edgefl.wire.messages import JobState

ROUND = st.integers(1, 4)
JOB = st.sampled_from(["job", "job", "job", "other", "third"])
PHASES = ("gathering", "training", "finished")
VERDICT = st.sampled_from(["accepted", "duplicate", "late", "refused"])


class AnyWeather(RuleBasedStateMachine):
    @initialize(once=st.booleans(), only=st.sampled_from([None, "job"]))
    def start(self, once: bool, only: str | None) -> None:
        self.s = self.began = Session(once=once, only=only)
        self.events: list[Event] = []
        self.did: list[tuple[Action, ...]] = []
        self.training: int | None = None  # the round the shell is training
        self.held: dict[str, int] = {}  # the updates the shell keeps: digest and round
        self.sent: set[str] = set()  # those that were sent
        self.committed: Counter[tuple[str, int]] = Counter()
        self.trainings = 0

    # ── what may happen ──────────────────────────────────────────────────────────────────────────────────────

    @rule()
    def connect(self) -> None:
        self.feed(AgentConnected())

    @rule()
    def disconnect(self) -> None:
        self.feed(AgentDisconnected())

    @rule(job=JOB, round=ROUND, model=st.sampled_from(["", "", "", "b"]), attempt=st.sampled_from("12"), ago=ROUND)
    def task(self, job: str, round: int, model: str, attempt: str, ago: int) -> None:
        counted = max(0, round - ago)
        self.feed(Tasked(job, "r", round, f"{job}-{round}{model}", attempt, attempt == "2", counted))

    @precondition(lambda self: self.s.task is not None)
    @rule(fits=st.sampled_from([True, True, False]))
    def model_arrives(self, fits: bool) -> None:
        self.feed(ModelArrived(self.s.task if fits else replace(self.s.task, model="stray")))

    @precondition(lambda self: self.s.task is not None)
    @rule(silent=st.sampled_from([3.0, HOPELESS + 1]), fits=st.booleans())
    def model_is_overdue(self, silent: float, fits: bool) -> None:
        self.feed(ModelOverdue(self.s.task.model if fits else "stray", silent))

    @precondition(lambda self: self.s.task is not None)
    @rule(times=st.integers(1, DISBELIEF), fits=st.booleans())
    def model_is_forged(self, times: int, fits: bool) -> None:
        self.feed(ModelDisbelieved(self.s.task.model if fits else "stray", times, "not ours"))

    @precondition(lambda self: self.training is not None)
    @rule(off=st.sampled_from([0, 0, 0, -1]))
    def train(self, off: int) -> None:
        self.trainings += 1
        self.feed(Trained(self.training + off, f"digest-{self.trainings}"))

    @precondition(lambda self: self.training is not None)
    @rule(off=st.sampled_from([0, -1]), mistake=st.sampled_from(["", "wrong shape"]))
    def fail(self, off: int, mistake: str) -> None:
        self.feed(TrainingFailed(self.training + off, "out of memory", mistake))

    @precondition(lambda self: self.s.phase == "fetching")
    @rule()
    def fail_before_it_began(self) -> None:
        self.feed(TrainingFailed(self.s.task.round, "no longer here"))

    @rule(off=st.sampled_from([0, 0, -1]), round=ROUND)
    def be_unfit(self, off: int, round: int) -> None:
        """The shell says so where it would fetch; whatever it names, work that goes on is not touched."""
        task, online = self.s.task, self.s.online and self.s.phase == "fetching"
        actions = self.feed(Unfit(task.round + off if task else round, "too hot"))
        declined = [action for action in actions if isinstance(action, Decline)]
        assert [action.task for action in declined] == ([task] if online and off == 0 else [])
        assert (Announce() in actions) == bool(declined), "nobody who is declined asks again"

    @rule(verdict=VERDICT, data=st.data(), right=st.booleans(), round=ROUND)
    def receipt(self, verdict: str, data: st.DataObject, right: bool, round: int) -> None:
        digest = data.draw(st.sampled_from(sorted(self.held))) if right and self.held else "digest-1"
        self.feed(Receipted(self.held[digest] if right and self.held else round, digest, verdict))

    @rule(job=JOB, round=ROUND, phase=st.sampled_from(PHASES))
    def see_state(self, job: str, round: int, phase: str) -> None:
        self.feed(StateSeen(job, "r", round, phase))

    @precondition(lambda self: self.s.task is not None)
    @rule(phase=st.sampled_from(PHASES))
    def see_the_round_end(self, phase: str) -> None:
        self.feed(StateSeen(self.s.task.job, "r", self.s.task.round + 1, phase))

    @rule(data=st.data(), right=st.booleans())
    def ask_for_chunks(self, data: st.DataObject, right: bool) -> None:
        digest = data.draw(st.sampled_from(sorted(self.held))) if right and self.held else "stray"
        self.feed(ResendRequested(digest, (0, 2)))

    @rule()
    def refuse(self) -> None:
        before = self.s
        assert self.s.phase == "stopped" or self.feed(RefusalReceived("code", "reason")) == (
            AnnounceLater("code", "reason"),
        )
        assert self.s == before, "a message ends nothing"

    @rule(really=st.sampled_from([False] * 19 + [True]))
    def stop(self, really: bool) -> None:
        if really:
            self.feed(Stopped())

    # ── what never happens ───────────────────────────────────────────────────────────────────────────────────

    def feed(self, event: Event) -> tuple[Action, ...]:
        before = self.s
        self.s, actions = step(before, event)
        if before.phase != self.s.phase:
            assert self.s.phase in TRANSITIONS.get((before.phase, type(event).__name__), ()), "the table says otherwise"
        self.events.append(event)
        self.did.append(actions)
        assert before.phase != "stopped" or (self.s, actions) == (before, ())
        if before.phase != "stopped":
            self.play_the_shell(before, event)
        for action in actions:
            self.check_action(before, event, action)
        if self.s.phase != "stopped":
            self.check_state()
        return actions

    def play_the_shell(self, before: Session, event: Event) -> None:
        """A training that ends is no longer running; its update is held from then on."""
        match event:
            case Trained(round, digest) if round == self.training:
                self.training, self.held[digest] = None, round
            case TrainingFailed(round) if round == self.training:
                self.training = None
            case _:
                pass

    def check_action(self, before: Session, event: Event, action: Action) -> None:  # noqa: C901  one action, one case
        if isinstance(action, Said):
            assert self.s.online, "nothing is sent while offline"
        match action:
            case Train(task):
                assert self.training is None, "one training at a time"
                assert isinstance(event, ModelArrived), "nothing is trained without its model"
                assert event.task.same_work(task)
                self.training = task.round
            case CancelTraining(round):
                assert self.training == round
                self.training = None
            case Send(round, digest):
                assert self.held[digest] == round
                assert digest not in self.sent, "no chunk travels twice"
                self.sent.add(digest)
            case Offer(round, digest):
                assert self.held[digest] == round
                assert digest in self.sent
            case SendChunks(digest):
                assert digest in self.held
            case Commit(round, digest):
                (run,) = (run for run, update in before.held.items() if update.digest == digest)
                assert self.held[digest] == round, "committed before it is forgotten"
                assert self.says_it_counts(event, round)
                self.committed[run, round] += 1
                assert self.committed[run, round] == 1, "a round is committed once"
            case Forget(round, digest):
                assert self.held.pop(digest) == round
                assert self.may_forget(before, event, digest)
            case ReportBusy(task):
                assert task in self.s.queue
                assert self.s.task is not None
            case Quit():
                assert self.s.phase == "stopped"
                assert isinstance(event, Stopped) or (self.began.once and self.began.only in (None, event.job))
            case _:
                pass

    def says_it_counts(self, event: Event, round: int) -> bool:
        match event:
            case Receipted(verdict=verdict):
                return verdict in ("accepted", "duplicate")
            case Tasked(counted=counted):
                return counted == round
            case _:
                return False

    def may_forget(self, before: Session, event: Event, digest: str) -> bool:
        (update,) = (update for update in before.held.values() if update.digest == digest)
        mine = update.task
        match event:
            case Receipted(round, known_as, verdict):  # who could not read an update does not know its round
                return known_as == digest and (verdict == "refused" or round == mine.round)
            case Tasked(round=round, model=model):
                newer = round > mine.round or (round == mine.round and model != mine.model)
                return event.run_key == mine.run_key and newer
            case StateSeen(phase="finished"):
                return event.run_key == mine.run_key
            case Trained():
                return len(before.held) >= MOST_HELD
            case _:
                return False

    def check_state(self) -> None:
        s = self.s
        assert (s.phase == "idle") == (s.task is None)
        assert s.task is not None or not s.queue, "whoever waits is served when the hands are free"
        assert (s.phase == "training") == (self.training is not None)
        assert {update.digest: update.task.round for update in s.held.values()} == self.held
        runs = [task.run_key for task in known(s)]
        assert len(runs) == len(set(runs)), "one thing at a time for each run"

    # ── what always happens ──────────────────────────────────────────────────────────────────────────────────

    def teardown(self) -> None:
        if not hasattr(self, "s"):
            return
        s = self.began
        for event, actions in zip(self.events, self.did, strict=True):
            s, again = step(s, event)
            assert again == actions
        assert s == self.s
        if self.s.phase != "stopped":
            self.check_the_end()

    def check_the_end(self) -> None:
        """Connected to coordinators that behave, a new task of each run ends with its receipt."""
        runs = ("job", "other", "third")
        todo: deque[Event] = deque([AgentConnected(), *(Tasked(job, "r", 9, f"{job}-9", "1") for job in runs)])
        if self.training is not None:
            todo.append(Trained(self.training, "the last one"))
        for _ in range(60):
            if not todo:
                break
            for action in self.feed(todo.popleft()):
                match action:
                    case Fetch(task):
                        todo.append(ModelArrived(task))
                    case Train(task):
                        todo.append(Trained(task.round, f"digest of {task.job} {task.round}"))
                    case Send(round, digest) | Offer(round, digest):
                        todo.append(Receipted(round, digest, "accepted"))
                    case _:
                        pass
        assert not todo
        assert self.s.phase == "idle"
        assert all(self.committed[f"{job}.r", 9] == 1 for job in runs)


TestAnyWeather = AnyWeather.TestCase
TestAnyWeather.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


# ── the table and the picture ────────────────────────────────────────────────────────────────────────────────

ARROW = re.compile(r"^ {4}([\w, ]+?) ─+ ([\w, ]+?) ─*▶ (\w+)", re.MULTILINE)


# Where an event can lead; what stands in no line stays in its phase.
TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("idle", "Tasked"): {"fetching"},
    ("idle", "StateSeen"): {"stopped"},
    ("idle", "Stopped"): {"stopped"},
    ("fetching", "ModelArrived"): {"training"},
    ("fetching", "ModelDisbelieved"): {"idle"},
    ("fetching", "TrainingFailed"): {"idle"},
    ("fetching", "Unfit"): {"idle"},
    ("fetching", "StateSeen"): {"idle", "stopped"},
    ("fetching", "Stopped"): {"stopped"},
    ("training", "Tasked"): {"fetching"},
    ("training", "Trained"): {"idle", "fetching"},
    ("training", "TrainingFailed"): {"idle", "fetching"},
    ("training", "StateSeen"): {"idle", "fetching", "stopped"},
    ("training", "Stopped"): {"stopped"},
}


def table() -> set[tuple[str, str, str]]:
    return {(before, event, after) for (before, event), phases in TRANSITIONS.items() for after in phases}


def anything(s: Session, random: Random) -> Event:
    """Some event, which more often than not is about the task in hand."""
    task = s.task if s.task and random.random() < 0.7 else Tasked(random.choice("abc"), "r", random.randint(1, 4), "m")
    return random.choice(
        [
            random.choice([AgentConnected(), AgentDisconnected(), RefusalReceived("code", "reason")]),
            random.choice([Tasked(random.choice("abc"), "r", random.randint(1, 4), "m"), task]),
            ModelArrived(task),
            ModelOverdue(task.model, random.choice([3.0, HOPELESS + 1])),
            ModelDisbelieved(task.model, random.randint(1, DISBELIEF), "not ours"),
            Trained(task.round, str(random.random())),
            TrainingFailed(task.round, "out of memory", random.choice(["", "wrong shape"])),
            Unfit(task.round, "too hot"),
            random.choice(
                [Receipted(u.task.round, u.digest, "accepted") for u in s.held.values()] or [AgentConnected()]
            ),
            random.choice([ResendRequested(u.digest, (0,)) for u in s.held.values()] or [AgentConnected()]),
            StateSeen(task.job, "r", task.round + random.randint(0, 1), random.choice(PHASES)),
            Stopped() if random.random() < 0.05 else AgentConnected(),
        ]
    )


def test_the_machine_makes_every_move_of_the_table_and_no_other():
    random, moves = Random(1), set()
    for number in range(500):
        s = Session(once=number % 2 == 0)
        for _ in range(40):
            event = anything(s, random)
            before, (s, _) = s.phase, step(s, event)
            if s.phase != before:
                moves.add((before, type(event).__name__, s.phase))
    assert moves == table()


def test_the_picture_shows_the_moves_of_the_table_and_no_other():
    arrows = ARROW.findall(session.__doc__ or "")
    drawn = {
        (before, event, after)
        for phases, events, after in arrows
        for before in phases.split(", ")
        for event in events.split(", ")
    }
    assert drawn == table()


def test_the_machine_is_shown_the_phases_that_the_wire_has():
    assert set(PHASES) == set(get_args(JobState.model_fields["phase"].annotation))
    assert set(PHASES) == set(get_args(StateSeen.__annotations__["phase"]))


# ── the two machines together, over a bad wire ───────────────────────────────────────────────────────────────


class BadWire:
    """A coordinator and its devices. While it rains, messages are lost, doubled and overtaken, and links are cut."""

    def __init__(self, rules: Rules, random: Random) -> None:
        self.random, self.rain = random, 0.0
        self.rounds = Rounds(rules)
        self.devices = {f"pi-{i}": Session() for i in range(5)}
        self.queue: list[tuple[str, object]] = []  # whom ("" is the coordinator), what
        self.timer: rounds.SetTimer | None = None
        self.merged: dict[int, tuple[str, ...]] = {}
        self.accepted: Counter[tuple[str, int]] = Counter()
        self.commits: Counter[tuple[str, int]] = Counter()

    def post(self, whom: str, what: object, safe: bool = False) -> None:
        copies = 1 if safe or self.random.random() >= self.rain else self.random.choice([0, 0, 2])
        self.queue += [(whom, what)] * copies

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.rounds.phase == "finished":
                return
            if self.random.random() < self.rain / 4:
                self.cut(self.random.choice(sorted(self.devices)))
            self.turn()

    def turn(self) -> None:
        if not self.queue:
            assert self.timer is not None, "nothing to do and nothing to wait for"
            return self.coordinate(rounds.TimerExpired(self.timer.round, self.timer.attempt, 0.0))
        pick = self.random.randrange(len(self.queue)) if self.random.random() < self.rain else 0
        whom, what = self.queue.pop(pick)
        return self.live(whom, what) if whom else self.coordinate(what)

    def cut(self, device: str) -> None:
        self.live(device, AgentDisconnected())
        self.post("", rounds.DeviceLost(device, 0.0))
        self.post(device, AgentConnected(), safe=True)

    def coordinate(self, event) -> None:
        self.rounds, actions = rounds.step(self.rounds, event)
        refused = next((a for a in actions if isinstance(a, rounds.IgnoreAnswer)), None)
        if isinstance(event, rounds.DeviceAnswered):
            verdict = {None: "accepted", "duplicate": "duplicate", "late": "late"}.get(
                refused and refused.reason, "refused"
            )
            self.accepted[event.device, event.round] += verdict == "accepted"
            digest = f"{event.device}/{event.round}"
            self.post(event.device, Receipted(event.round, digest, verdict))
        for action in actions:
            match action:
                case rounds.Invite(round, devices, attempt):
                    for d in devices:
                        self.post(
                            d,
                            Tasked("job", "r", round, f"m{round}", str(attempt), counted=self.rounds.counted.get(d, 0)),
                        )
                case rounds.SetTimer():
                    self.timer = action
                case rounds.MergeRound(round, devices):
                    assert round not in self.merged
                    self.merged[round] = devices
                    self.post("", rounds.RoundMerged(round, 0.0), safe=True)
                case _:
                    pass

    def live(self, device: str, event) -> None:
        self.devices[device], actions = step(self.devices[device], event)
        for action in actions:
            match action:
                case Announce():
                    self.post("", rounds.DeviceJoined(device, 0.0), safe=True)  # presence is retained
                case Fetch(task):
                    self.post(device, ModelArrived(task))
                case Train(task):
                    self.post(device, Trained(task.round, f"{device}/{task.round}"), safe=True)
                case CancelTraining(round):
                    self.queue = [(w, e) for w, e in self.queue if w != device or e != Trained(round, f"{w}/{round}")]
                case Send(round) | Offer(round):
                    self.post("", rounds.DeviceAnswered(device, round, 0.0))
                case Commit(round):
                    self.commits[device, round] += 1
                case Decline(task):  # the second copy of a task that its round's successor has overtaken
                    self.post("", rounds.DeviceDeclined(device, task.round, 0.0))
                case Forget() | LogNote():
                    pass
                case _:
                    raise AssertionError(action)


@settings(max_examples=60, deadline=None)
@example(seed=15028195, cohort=1, quorum=1, rain=0.6, over_select=1.0)  # a copy of a task comes after the next task
@given(
    seed=st.integers(0, 2**32),
    cohort=st.integers(1, 5),
    quorum=st.integers(1, 5),
    rain=st.sampled_from([0.0, 0.1, 0.3, 0.6]),
    over_select=st.sampled_from([1.0, 1.4]),
)
def test_a_fleet_finishes_once_the_rain_is_over(seed, cohort, quorum, rain, over_select):
    rules = Rules(rounds=4, seed=1, cohort=cohort, quorum=min(quorum, cohort), deadline=9.0)
    wire = BadWire(replace(rules, over_select=over_select), Random(seed))
    for device in wire.devices:
        wire.live(device, AgentConnected())
    wire.rain = rain
    wire.run(steps=200)
    wire.rain = 0.0
    for device in wire.devices:
        wire.live(device, AgentConnected())
    wire.run(steps=2000)
    assert wire.rounds.phase == "finished"
    assert sorted(wire.merged) == [1, 2, 3, 4]
    for (device, round), count in wire.commits.items():
        assert count == 1
        assert wire.accepted[device, round] >= 1
    for round, devices in wire.merged.items():
        for device in devices:
            assert wire.accepted[device, round] >= 1
            newest = max((r for d, r in wire.commits if d == device), default=0)
            assert wire.commits[device, round] == 1 or newest < round, "what was merged is committed, without gaps"


def test_on_a_dry_day_every_device_commits_every_round_it_is_asked_for():
    wire = BadWire(Rules(rounds=4, seed=1, cohort=5, quorum=5, deadline=9.0), Random(0))
    for device in wire.devices:
        wire.live(device, AgentConnected())
    wire.run(steps=1000)
    while wire.queue:
        wire.turn()
    assert wire.commits == wire.accepted == Counter({(d, r): 1 for d in wire.devices for r in (1, 2, 3, 4)})


# ── several runs, one fleet ──────────────────────────────────────────────────────────────────────────────────


class SharedFleet:
    """Coordinators that ask the same devices; what happens next is drawn, and no timer ever runs out."""

    def __init__(self, runs: dict[str, Rules], devices: tuple[str, ...], random: Random) -> None:
        self.random = random
        self.runs = {job: Rounds(rules) for job, rules in runs.items()}
        self.devices = dict.fromkeys(devices, Session())
        self.queues: dict[tuple[str, str], deque[object]] = {}  # from whom, to whom: in order, as a broker delivers
        self.merged: dict[str, list[tuple[str, ...]]] = {job: [] for job in runs}
        self.busy = 0
        for device in devices:
            self.live(device, AgentConnected())

    def post(self, sender: str, receiver: str, what: object) -> None:
        self.queues.setdefault((sender, receiver), deque()).append(what)

    def run(self) -> None:
        while self.queues:
            way = self.random.choice(sorted(self.queues))
            what = self.queues[way].popleft()
            if not self.queues[way]:
                del self.queues[way]
            if way[1] in self.runs:
                self.coordinate(way[1], what)
            else:
                self.live(way[1], what)

    def coordinate(self, job: str, event) -> None:
        self.runs[job], actions = rounds.step(self.runs[job], event)
        if isinstance(event, rounds.DeviceAnswered):
            late = any(isinstance(a, rounds.IgnoreAnswer) for a in actions)
            digest = f"{job}/{event.device}/{event.round}"
            self.post(job, event.device, Receipted(event.round, digest, "late" if late else "accepted"))
        for action in actions:
            match action:
                case rounds.Invite(round, devices, attempt):
                    for device in self.devices:
                        self.post(job, device, StateSeen(job, "r", round, "training"))
                    for device in devices:
                        self.post(job, device, Tasked(job, "r", round, f"{job}-{round}", str(attempt)))
                case rounds.MergeRound(round, devices):
                    self.merged[job].append(devices)
                    self.post(job, job, rounds.RoundMerged(round, 0.0))
                case rounds.Finish():
                    for device in self.devices:
                        self.post(job, device, StateSeen(job, "r", self.runs[job].round, "finished"))
                case rounds.Abandon():
                    raise AssertionError(action)
                case _:
                    pass

    def live(self, device: str, event) -> None:  # noqa: C901  one action, one case
        self.devices[device], actions = step(self.devices[device], event)
        for action in actions:
            match action:
                case Announce():
                    for job in self.runs:
                        self.post(device, job, rounds.DeviceJoined(device, 0.0))
                case Fetch(task):
                    self.post(device, device, ModelArrived(task))
                case Train(task):
                    self.post(device, device, Trained(task.round, f"{task.job}/{device}/{task.round}"))
                case CancelTraining():
                    waiting = self.queues.pop((device, device), deque())
                    for kept in (one for one in waiting if not isinstance(one, Trained)):
                        self.post(device, device, kept)
                case Send(round, digest):
                    self.post(device, digest.split("/")[0], rounds.DeviceAnswered(device, round, 0.0))
                case ReportBusy(task):
                    self.busy += 1
                    self.post(device, task.job, rounds.DeviceBusy(device, task.round, 0.0))
                case Decline():
                    raise AssertionError(action)
                case _:
                    pass


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32), count=st.integers(2, 3), cohort=st.integers(1, 4), spread=st.sampled_from([1.0, 1.5])
)
def test_runs_that_share_a_fleet_all_finish_and_no_deadline_passes(seed, count, cohort, spread):
    rules = Rules(rounds=5, seed=1, cohort=cohort, quorum=cohort, deadline=9.0, over_select=spread, start_with=4)
    runs = {f"run{i}": replace(rules, seed=i) for i in range(count)}
    fleet = SharedFleet(runs, ("a", "b", "c", "d"), Random(seed))
    fleet.run()
    assert {s.phase for s in fleet.runs.values()} == {"finished"}
    assert all(len(merges) == 5 for merges in fleet.merged.values())
    assert all(len(devices) >= cohort for merges in fleet.merged.values() for devices in merges)
    assert all(s.task is None and not s.queue for s in fleet.devices.values())


def test_runs_that_ask_everybody_are_answered_by_everybody():
    everybody = ("a", "b", "c")
    rules = Rules(rounds=5, seed=1, cohort=3, quorum=3, deadline=9.0, start_with=3)
    fleet = SharedFleet({"first": rules, "second": rules}, everybody, Random(0))
    fleet.run()
    assert fleet.merged == {"first": [everybody] * 5, "second": [everybody] * 5}
    assert fleet.busy > 0
