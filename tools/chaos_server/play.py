"""One seed: a server, what people want of it, and all that goes wrong; rules are looked at after each step.

Kills, power cuts, full disks, clocks that jump, coordinators that end by themselves, requests that are sent again
because their answer was lost. At the end everything is mended and time passes: then nothing may be left undone.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from edgefl.base.errors import EdgeflError
from edgefl.server.decide.runs import QueuedRun
from edgefl.server.decide.vocabulary import Recurring, ScheduleChanged
from edgefl.server.durable import queue_file
from edgefl.server.durable.rows import RowStore
from tools.chaos_server.machine import Broken, VirtualServer, run_of

DAY, HOUR = 86_400.0, 3600.0
NIGHTS = 25
CRASHES = 0.05  # of coordinators, in half an hour
LOOKS = 10  # of these looks one reads the disk
AT_ONCE = 2
NIGHT = Recurring("0 2 * * *", "UTC", from_last=True)


@dataclass(slots=True)
class ServerOutcome:
    """What came of a seed."""

    seed: int
    violation: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    events: int = 0
    story: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Promise:
    """What a person was told, and may rely upon."""

    request: str
    name: str
    wish: str = "run"  # what they wanted of it last, and were told that it will be so


def play(seed: int) -> ServerOutcome:
    """Play a seed to its end, or until a rule is broken."""
    return _Play(seed).outcome


class _Play:
    """One seed, as it is played."""

    def __init__(self, seed: int) -> None:
        self.random, self.outcome = Random(seed), ServerOutcome(seed)
        self.machine = VirtualServer(AT_ONCE)
        self.up = True
        self.promises: dict[str, Promise] = {}
        self.done: dict[str, float] = {}  # seconds that each run has worked
        self.fired_at: dict[str, float] = {}  # of each run of the schedule, the true time
        self.set_back: set[str] = set()  # runs that were paused, or given another priority
        self.wrong_clock = False  # whether the clock on the wall was ever wrong
        self.number = self.looks = 0
        try:
            self._nights()
            self._mend()
            self._nothing_is_left()
        except Broken as broken:
            self.outcome.violation = str(broken)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, EdgeflError) as error:
            self.outcome.violation = f"crashed: {type(error).__name__}: {error}"

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _nights(self) -> None:
        self._ask("submit the schedule", lambda: self._submit("night", NIGHT))
        happenings: list[tuple[Callable[[], None], int]] = [
            (self._new_run, 6),
            (self._wish, 5),
            (self._send_again, 3),
            (self._prioritise, 2),
            (self._kill, 3),
            (self._power_cut, 3),
            (self._fill_disk, 2),
            (self._jump, 1),
        ]
        absent = {one for one in (self._kill, self._power_cut, self._fill_disk) if self.random.random() < 0.3}
        absent |= {self._jump} if self.random.random() < 0.6 else set()
        doing, weights = zip(*(one for one in happenings if one[0] not in absent), strict=True)
        end = self.machine.world.now + NIGHTS * DAY
        while self.machine.world.now < end:
            self._pass(self.random.expovariate(1 / (3 * HOUR)))
            if not self.up and self.random.random() < 0.7:
                self._start()
            self.random.choices(doing, weights)[0]()
            self._look()

    def _pass(self, seconds: float) -> None:
        """Time passes; coordinators that have worked long enough end."""
        until = self.machine.world.now + seconds
        while self.machine.world.now < until:
            step = min(HOUR / 2, until - self.machine.world.now)
            self.machine.pass_time(step)
            self.outcome.events += 1
            for name in sorted(self.machine.coordinators.alive) if self.up else ():
                self.done[name] = self.done.get(name, 0.0) + step
                if name in self.machine.coordinators.stopping:
                    self._end(name, 130)
                elif self.done[name] > self._takes(name):
                    self._end(name, 0)
                elif self.random.random() < CRASHES:
                    self.outcome.faults["coordinator ended"] += 1
                    self._end(name, -9)
            self._look()

    def _end(self, name: str, code: int) -> None:
        coordinators = self.machine.coordinators
        coordinators.stopping = [one for one in coordinators.stopping if one != name]
        coordinators.end(name, code)
        self._tell(f"'{name}' ends with {code}")
        self.machine.pass_time(1.0)

    def _new_run(self) -> None:
        self.number += 1
        self._ask("submit", lambda: self._submit(f"r{self.number}", None))

    def _submit(self, name: str, recurring: Recurring | None) -> None:
        request = f"request-{name}"
        self.machine.server.submit(request, run_of(name, recurring=recurring, keep=5), "ann")
        self.promises.setdefault(name, Promise(request, name))

    def _send_again(self) -> None:
        """The answer was lost on the way: the same request comes once more."""
        if self.promises:
            name = self.random.choice(sorted(self.promises))
            self._ask(f"submit '{name}' again", lambda: self._submit(name, NIGHT if name == "night" else None))

    def _wish(self) -> None:
        names = [name for name in sorted(self.promises) if name != "night" and not self._over(name)]
        if names and self.up:
            name, wish = self.random.choice(names), self.random.choice(["pause", "resume", "resume", "cancel"])
            self.set_back.add(name)
            run = self.machine.server.state.runs[name]

            def do() -> None:
                self.machine.server.wish(name, wish, "ann")  # type: ignore[arg-type]  # one of its words
                if not (wish == "resume" and (run.phase == "working" or run.wish == "cancel")) and run.wish != "cancel":
                    self.promises[name].wish = "run" if wish == "resume" else wish

            self._ask(f"{wish} '{name}'", do)

    def _prioritise(self) -> None:
        if self.up and self.machine.server.state.waiting:
            run = self.random.choice(self.machine.server.state.waiting)
            number = self.random.randint(-5, 5)
            self.set_back.add(run.name)
            self._ask("prioritise", lambda: self.machine.server.prioritise(run.name, number, "ann"))

    def _ask(self, what: str, do: Callable[[], None]) -> None:
        """A person wants something; what was answered must hold, what was refused must not be."""
        if not self.up:
            return
        before = self.machine.server.state
        try:
            do()
            self._tell(f"ann: {what}")
        except EdgeflError as error:
            self._tell(f"ann: {what}: {error}")
            if self.machine.server.state.runs != before.runs:
                raise Broken(f"refused and done: {what} was refused, and changed something") from None

    def _kill(self) -> None:
        if self.up:
            self.outcome.faults["killed"] += 1
            self._tell("the server is killed")
            self.machine.kill()
            self._down()

    def _power_cut(self) -> None:
        if self.up:
            self.outcome.faults["power cut"] += 1
            self._tell("the power fails")
            self.machine.kill(seed=self.random.randrange(1 << 30))
            self._down()

    def _down(self) -> None:
        self.machine.coordinators.alive.clear()  # the kernel ends them with the server
        self.up = False
        if self.random.random() < 0.8:
            self.machine.pass_time(self.random.expovariate(1 / HOUR))
            self._start()

    def _start(self) -> None:
        self.machine.start()
        self.up = True
        self._tell("the server starts")

    def _fill_disk(self) -> None:
        self.outcome.faults["disk full"] += 1
        self._tell("the disk is full")
        self.machine.disk.capacity = self.machine.disk.used + self.random.randrange(400)
        self.machine.world.later(self.random.expovariate(1 / 1200), self._free_disk)

    def _free_disk(self) -> None:
        self.machine.disk.capacity = None

    def _jump(self) -> None:
        self.outcome.faults["clock"] += 1
        self.wrong_clock = True
        seconds = self.random.choice([-3000.0, 3000.0, 400 * DAY]) if self.machine.ahead == 0 else -self.machine.ahead
        self._tell(f"the clock jumps by {seconds:g} s")
        self.machine.jump(seconds)

    def _mend(self) -> None:
        """Everything works again, and three days pass."""
        self._tell("all is mended")
        self.machine.disk.capacity = None
        self.machine.jump(-self.machine.ahead)
        if not self.up:
            self._start()
        before = self._seen_to()
        self._pass(5 * DAY)
        if "night" in self.promises and self._seen_to() < before + 3:
            raise Broken("nights are missing: all was mended, and times of the schedule were not seen to")

    # ---- the rules ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:  # noqa: C901  one rule after another
        if not self.up:
            return
        state, server = self.machine.server.state, self.machine.server
        alive, working = set(self.machine.coordinators.alive), {run.name for run in state.working}
        if len(alive) > AT_ONCE:
            raise Broken(f"too many at once: {sorted(alive)}")
        if not server.pending and alive != working:
            raise Broken(f"what works is not what it says: {sorted(alive)} have processes, {sorted(working)} work")
        for name, promise in self.promises.items():
            run = state.runs.get(name)
            if name != "night" and run is None:
                raise Broken(f"lost: '{name}' was taken in, and is not there")
            if run is not None and promise.wish == "cancel" and run.phase in ("queued", "paused", "working"):
                raise Broken(f"cancelled and there: '{name}' is {run.phase}")
            if run is not None and promise.wish == "pause" and run.phase == "working":
                raise Broken(f"paused and working: '{name}'")
        for name in state.runs.keys() - self.promises.keys():
            if not name.startswith("night-"):
                raise Broken(f"not asked for: there is a run '{name}'")
        if "night" in self.promises and "night" not in state.schedules:
            raise Broken("lost: the schedule was taken in, and is not there")
        self._queue_rules(state.waiting, len(alive))
        self._schedule_rules()
        self.looks += 1
        if (
            self.looks % LOOKS == 0
            and not server.pending
            and queue_file.read(RowStore(self.machine.disk), AT_ONCE) != state
        ):
            raise Broken("what is on the disk is not what the server knows")

    def _queue_rules(self, waiting: list[QueuedRun], alive: int) -> None:
        now, server = self.machine.process.clock.now(), self.machine.server
        ready = [run for run in waiting if run.again_at is None or run.again_at <= now - 1]
        if ready and alive < AT_ONCE and not server.pending:
            raise Broken(f"waits beside a free place: '{ready[0].name}'")
        for run in waiting:
            if run.again_at is not None and run.again_at > now + 700:
                raise Broken(f"waits for ever: '{run.name}' is to start {run.again_at - now:.0f} s from now")
        for run in server.state.working if not self.wrong_clock else ():
            for other in waiting:
                waited = other.started is None and other.name not in self.set_back and other.submitted < run.since - 1
                if waited and other.priority >= run.priority and other.number < run.number and run.failures == 0:
                    raise Broken(f"out of turn: '{run.name}' began before '{other.name}'")

    def _schedule_rules(self) -> None:
        state = self.machine.server.state
        runs = sorted((run for run in state.runs.values() if run.schedule), key=lambda run: run.number)
        if sum(not run.over for run in runs) > 1:
            raise Broken("two at a time: a schedule has two runs that are not ended")
        for run in runs:
            self.fired_at.setdefault(run.name, self.machine.world.now)
        if not self.wrong_clock:
            nights = Counter(int((at - 2 * HOUR) // DAY) for at in self.fired_at.values())
            if nights and max(nights.values()) > 1:
                raise Broken(f"a night twice: {max(nights.values())} runs began in one night")
        kept = [run for run in runs if run.over]
        for run in kept[-5:]:
            if run.name in self.machine.deleted:
                raise Broken(f"deleted too soon: '{run.name}' is one of the newest five")
        if any(not state.runs[name].over for name in self.machine.deleted if name in state.runs):
            raise Broken("deleted at work: the folder of a run that has not ended is gone")

    def _nothing_is_left(self) -> None:
        """Everything was mended: what people wanted has come true."""
        state, facts = self.machine.server.state, self.machine.facts
        for name, promise in self.promises.items():
            if name == "night":
                continue
            phase, wish = state.runs[name].phase, promise.wish
            if wish == "run" and phase not in ("finished", "failed"):
                raise Broken(f"left undone: '{name}' is {phase}")
            if wish == "cancel" and phase not in ("cancelled", "finished", "failed"):
                raise Broken(f"left undone: '{name}' was to be cancelled, and is {phase}")
            if phase == "finished" and self.done.get(name, 0.0) <= self._takes(name):
                raise Broken(f"never worked: '{name}' is finished")
            if phase == "failed" and "in a row" not in state.runs[name].reason:
                raise Broken(f"given up: '{name}' failed because of {state.runs[name].reason}")
        if sorted(facts) != list(range(1, len(facts) + 1)):
            raise Broken("facts are missing: their numbers have gaps")
        kept = [run.name for run in state.runs_of("night") if run.over and run.name not in self.machine.deleted]
        if len(kept) > 6:
            raise Broken(f"kept too much: {len(kept)} folders of a schedule's runs")

    def _seen_to(self) -> int:
        """How many times of the schedule a run was started, or skipped."""
        changes = [one.what for one in self.machine.facts.values() if isinstance(one, ScheduleChanged)]
        return sum(what in ("fired", "skipped") for what in changes)

    def _takes(self, name: str) -> float:
        """How long a run works: some of the nightly ones longer than a day."""
        return Random(name).choice([2 * HOUR, 3 * HOUR, 30 * HOUR])

    def _over(self, name: str) -> bool:
        run = self.machine.server.state.runs.get(name) if self.up else None
        return run is None or run.over

    def _tell(self, text: str) -> None:
        self.outcome.story.append(f"{self.machine.world.now / DAY:9.3f}  {text}")
