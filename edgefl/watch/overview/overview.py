"""An overview of a run: every fact is folded into it, and all views of a run read it here.

It is told facts and knows nothing else: no clock, no disk, no coordinator. The same facts give the same overview, live
or out of a run's folder. After a restart it is told the folder's story first, then what happens; a report that is told
again counts once, as in metrics.jsonl.

It stays small, however long a run goes on. It keeps the last STORY events of each device, the last notes (notes.py)
and the times of answers (answer_times.py). Of more than ROUNDS rounds it keeps every other one of the older half.

One thread tells and reads; threads that share it hold a lock around both.
"""

from collections import Counter, deque
from dataclasses import replace

from edgefl.base import events
from edgefl.base.events import Fact, as_json
from edgefl.base.report_numbers import LastReports
from edgefl.watch.overview import standing
from edgefl.watch.overview.answer_times import AnswerTimes, Pace, paces, within
from edgefl.watch.overview.changed import RecentlyChanged
from edgefl.watch.overview.notes import Notes
from edgefl.watch.overview.round_progress import RoundProgress, better, figures, with_latecomer
from edgefl.watch.overview.rows import ABSENT, DeviceRow, DeviceState, Kind, OpenRound, RoundRow, RunRow, Snapshot
from edgefl.watch.overview.sentences import about, cut, trouble_of, words
from edgefl.watch.overview.standing import AboutRun
from edgefl.wire.messages import NOT_IN_RUN

ROUNDS = 4000  # rows; beyond them older ones are thinned out
DEVICES = 10_000  # rows; a coordinator knows no more names than that
STORY = 100  # facts of a device
COURSES = 16  # rounds that are told of and not reported: more than one only while forgetting is measured

NOTED = events.Resumed, events.Changed, events.Disconnected, events.Paused
OVER: frozenset[DeviceState] = frozenset({"answered", "busy", "declined", "refused"})  # when their round is merged


class Overview:
    """Where a run stands, and how it came there."""

    def __init__(self) -> None:
        self.sequence = 0  # facts that were told
        self.at = 0.0
        self.run = RunRow()
        self.devices: dict[str, DeviceRow] = {}
        self.rounds: dict[int, RoundRow] = {}
        self.turns = AnswerTimes()
        self.rounds_from = 1  # from here on no round is left out
        self._notes = Notes()
        self._courses: dict[int, RoundProgress] = {}
        self._in_hand: int | None = None
        self._stories: dict[str, deque[Fact]] = {}
        self._changed = RecentlyChanged()
        self._reports = LastReports()

    # ---- reading -----------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Everything."""
        return self.changes(0)

    def changes(self, since: int) -> Snapshot:
        """What is different since this fact: all of the run and of the round in hand, of the others the rows."""
        rounds, devices = self._changed.since(since)
        return Snapshot(
            self.sequence,
            self.at,
            self.run,
            self.open,
            [self.rounds[number] for number in rounds],
            [self.devices[name] for name in devices],
            self._notes.since(since),
            rounds_from=self.rounds_from,
        )

    @property
    def open(self) -> OpenRound | None:
        """The round in hand."""
        return self._courses[self._in_hand].open if self._in_hand in self._courses else None

    def story(self, device: str) -> list[tuple[float, str]]:
        """What happened to a device lately, and when."""
        return [(fact.at, cut(about(fact, device))) for fact in self._stories.get(device, ())]

    def slow(self, since: float | None = None, until: float | None = None) -> list[Pace]:
        """How fast each device was in this span of time, the slowest first."""
        rounds = (row for row in self.rounds.values() if within(row.at, since, until))
        return paces(list(self.turns.between(since, until)), Counter(name for row in rounds for name in row.missing))

    # ---- being told --------------------------------------------------------------------------------------------

    def tell(self, fact: Fact) -> None:
        """One more."""
        self.sequence += 1
        self.at = max(self.at, fact.at)
        self._fold(fact)

    def _fold(self, fact: Fact) -> None:  # noqa: C901, PLR0912  one fact, one case
        match fact:
            case _ if isinstance(fact, AboutRun):
                self._stands(fact)
            case events.Joined() | events.Lost() | events.Certified() | events.Released():
                self._came_or_went(fact)
            case events.Excluded() | events.Included():
                self._chosen(fact)
            case events.Labelled(labels=labels):
                for name, of_device in labels.items():
                    row = self.devices.get(name) or self._absent(name, fact)
                    row.labels = {cut(key): cut(value) for key, value in of_device.items()}
                    self._touch(row)
            case events.DataBroken() | events.DataMended():
                self._data_changed(fact)
            case events.Enrolled() | events.Expired():
                self._belongs(fact)
            case events.Certificate(device=device, ends=ends) if device in self.devices:
                self.devices[device].certificate_ends = ends
                self._touch(self.devices[device])
            case events.Progressed(device=device, round=round, steps=steps):
                self._put(self._heard(device, fact), "training", fact, steps=steps, round=round)
            case events.Vitals(device=device):
                row = self._heard(device, fact)
                row.vitals = {name: value for name, value in as_json(fact).items() if name not in ("event", "device")}
                self._touch(row)
            case events.LeftOut(device=device) if device in self.devices:
                row = self.devices[device]
                if fact.there == (row.state == "offline"):
                    self._put(row, "idle" if fact.there else "offline", fact)
                self._remember(device, fact)
            case events.Sending(device=device):
                self._put(self._heard(device, fact), "sending", fact)
            case events.Answered():
                self._answered(fact)
            case events.Refused(barred=True):
                self._barred(fact)
            case events.Declined() | events.Busy() | events.Refused() | events.Quarantined():
                self._failed(fact)
            case events.Asked() | events.Extended() | events.Abandoned() | events.Closed():
                self._went_on(fact)
            case events.Round() if not self._reports.has(fact):
                self._reported(fact)
            case events.Evaluated() if not self._reports.has(fact):
                self._evaluated(fact)
        self._reports.add(fact)

    # ---- the run -----------------------------------------------------------------------------------------------

    def _stands(self, fact: AboutRun) -> None:
        standing.fold(self.run, fact)
        if isinstance(fact, NOTED):
            self._note("info" if isinstance(fact, events.Resumed | events.Changed) else "warning", fact)
        if isinstance(fact, events.Done):
            self._in_hand = None
            self._rest(fact)
        if isinstance(fact, events.Interrupted):
            self._in_hand = None
            for row in self.devices.values():
                row.live = False
                if row.state in ABSENT:
                    self._touch(row)
                else:
                    self._put(row, "offline", fact, why="no coordinator is running")
        if isinstance(fact, events.Started | events.Resumed):  # another life of the coordinator knows no device yet
            for row in self.devices.values():
                row.live = False
                row.state = "offline" if row.state == "quarantined" else row.state  # that is forgotten
                self._touch(row)

    # ---- devices -----------------------------------------------------------------------------------------------

    def _came_or_went(self, fact: events.Joined | events.Lost | events.Certified | events.Released) -> None:
        name, known = fact.device, self.devices.get(fact.device)
        match fact:
            case events.Joined():
                row = self._heard(name, fact)
                row.samples, row.host, row.version = fact.samples, cut(fact.host), cut(fact.version)
                row.back_end, row.joined = cut(fact.back_end), row.joined + 1
                row.arch, row.memory_mb = cut(fact.arch), fact.memory_mb
                row.joined_at = fact.at if row.joined_at is None else row.joined_at
                if not fact.stale:
                    row.data_trouble, row.data_since, row.samples_from = "", None, None
                self._put(row, "quarantined" if row.state == "quarantined" else "idle", fact)
            case events.Lost(reason=reason):
                row = known or self._device(name, live=False)
                if row.state != "offline":
                    self._put(row, "offline", fact, why=cut(reason))
                for course in self._courses.values():
                    course.leave(name)
            case events.Released() if known:
                self._put(known, "idle", fact)
            case events.Certified() if known:
                self._touch(known)
        self._remember(name, fact)

    def _data_changed(self, fact: events.DataBroken | events.DataMended) -> None:
        row = self._heard(fact.device, fact)
        if isinstance(fact, events.DataMended):
            row.data_trouble, row.data_since, row.samples_from = "", None, None
            self._note("info", fact)
        else:
            trouble = cut(trouble_of(fact))
            if not row.data_trouble:  # they are broken since then, whatever is found to be wrong with them later
                row.data_since = fact.at
            if row.data_trouble != trouble:
                self._note("warning", fact)
            row.data_trouble, row.samples_from = trouble, fact.samples_from
            if fact.samples_from is None:
                row.version, row.host = cut(fact.version) or row.version, cut(fact.host) or row.host
                self._put(row, "no data", fact, why=cut(fact.reason))
                for course in self._courses.values():
                    course.leave(fact.device)
        self._touch(row)
        self._remember(fact.device, fact)

    def _belongs(self, fact: events.Enrolled | events.Expired) -> None:
        """Members have rows though they never came; one whose certificate has ended cannot come."""
        if isinstance(fact, events.Enrolled):
            for name in fact.devices:
                if name not in self.devices:
                    self._absent(name, fact)
            return
        row = self.devices.get(fact.device) or self._device(fact.device, live=False)
        self._put(row, "offline", fact, why=cut(about(fact, fact.device)))
        row.since = row.certificate_ends = fact.ended
        self._remember(fact.device, fact)

    def _absent(self, name: str, fact: Fact) -> DeviceRow:
        """Return the row of a device that belongs to the run and has not come."""
        row = self._device(name, live=False)
        self._put(row, "offline", fact, why="not seen in this run")
        return row

    def _chosen(self, fact: events.Excluded | events.Included) -> None:
        """The run asks a device, or it does not: by its labels and properties."""
        row = self.devices.get(fact.device)
        if row is None:
            return
        if isinstance(fact, events.Excluded):
            self._put(row, "excluded", fact, why=cut(fact.reason))
        elif row.state == "excluded":
            self._put(row, "idle", fact)
        self._remember(fact.device, fact)

    def _barred(self, fact: events.Refused) -> None:
        """A device may not take part; one that is there under this name is another one."""
        known = self.devices.get(fact.device)
        if known is None or known.state in ABSENT:
            row = known or self._device(fact.device)
            row.live, row.last_seen = True, fact.at
            row.version, row.host = cut(fact.version), cut(fact.host)
            self._put(row, "barred", fact, why=cut(fact.reason))
        self._note("info" if fact.code == NOT_IN_RUN else "warning", fact)
        self._remember(fact.device, fact)

    def _answered(self, fact: events.Answered) -> None:
        row = self._heard(fact.device, fact)
        row.bytes_up += fact.bytes
        row.took = row.took if fact.took is None else fact.took
        row.seconds_per_step = fact.seconds_per_step or row.seconds_per_step
        old = fact.verdict == "accepted" and self._in_hand is not None and fact.round < self._in_hand
        counts_in = self._in_hand if old else fact.round  # in buffered rounds it began with an earlier model
        course, merged = self._courses.get(counts_in or 0), self.rounds.get(fact.round)
        if self.open:
            self.open.bytes_up += fact.bytes
        match fact.verdict:
            case "accepted":
                row.answers += 1
                self.turns.add(fact)
                if course:
                    course.answer(fact)
            case "late":
                row.late += 1
                self.turns.add(fact)
                if course:
                    course.come_late(fact)
                elif merged:
                    self._put_round(with_latecomer(merged, fact))
            case "ignored":
                row.ignored += 1
            case "refused":
                if course:
                    course.leave(fact.device)
        states: dict[str, DeviceState] = {"accepted": "answered", "refused": "refused"}
        self._put(row, states.get(fact.verdict, "idle"), fact, why=cut(fact.reason))
        self.run.paused = ""
        self._remember(fact.device, fact)

    def _failed(self, fact: events.Declined | events.Busy | events.Refused | events.Quarantined) -> None:
        name, known, why = fact.device, self.devices.get(fact.device), cut(fact.reason)
        match fact:
            case events.Declined(round=round):
                row = self._heard(name, fact)
                row.declined += 1
                if round in self._courses:
                    self._courses[round].decline(name, why)
                self._put(row, "declined", fact, why=why)
            case events.Busy():
                self._put(self._heard(name, fact), "busy", fact, why=why)
            case events.Refused() if known:
                known.strikes += 1
                self._touch(known)
            case events.Quarantined() if known:
                known.quarantines += 1
                self._put(known, "quarantined", fact, why=why)
        if not isinstance(fact, events.Busy):
            self._note("warning", fact)
        self._remember(name, fact)

    def _heard(self, name: str, fact: Fact) -> DeviceRow:
        """The device's row: it spoke at this moment."""
        row = self.devices.get(name) or self._device(name)
        row.live, row.last_seen = True, fact.at
        return row

    def _device(self, name: str, *, live: bool = True) -> DeviceRow:
        if len(self.devices) >= DEVICES:
            gone = min(self.devices.values(), key=lambda row: (row.state != "offline", row.last_seen or 0.0, row.name))
            self.devices.pop(gone.name)
            self._stories.pop(gone.name, None)
            self._changed.drop(gone.name)
        row = self.devices[name] = DeviceRow(name, live=live)
        return row

    def _put(self, row: DeviceRow, state: DeviceState, fact: Fact, why: str = "", **figures: int) -> None:
        """The device is in this state."""
        if row.state != state or not row.since:
            row.state, row.since = state, fact.at
        row.why = why
        for name, value in figures.items():
            setattr(row, name, value)
        self._touch(row)

    def _remember(self, name: str, fact: Fact) -> None:
        if name in self.devices:
            self._stories.setdefault(name, deque(maxlen=STORY)).append(fact)

    # ---- rounds ------------------------------------------------------------------------------------------------

    def _went_on(self, fact: events.Asked | events.Extended | events.Abandoned | events.Closed) -> None:
        course = self._courses.get(fact.round)
        self.run.paused = ""
        match fact:
            case events.Asked(devices=devices):
                self._asked(fact, course)
                names: tuple[str, ...] = devices
            case events.Extended(missing=names):
                if course:
                    course.open.extended += 1
                    course.open.deadline_at = self._deadline(fact.at)
            case events.Abandoned():
                self.run.state, names = "waiting", ()
                if course:
                    course.give_up()
                self._note("warning", fact)
            case events.Closed(devices=devices, missing=names):
                self.run.state = "merging"
                self.run.waiting = f"round {fact.round}: merging {len(devices)} answers"
                self.run.waiting_since, self.run.waiting_lasts = fact.at, False
                if course:
                    course.close(names, fact.at)
                for row in (self.devices[name] for name in names if name in self.devices):
                    row.missed += 1
                    self._touch(row)
        for name in names:
            self._remember(name, fact)

    def _asked(self, fact: events.Asked, course: RoundProgress | None) -> None:
        if course is None or course.open.closed_at is not None:  # closed, and then not merged: the run was extended
            course = self._courses[fact.round] = RoundProgress(
                OpenRound(fact.round, fact.opening, fact.at, fact.purpose)
            )
            while len(self._courses) > COURSES:
                del self._courses[min(self._courses)]
        here = course.open
        if here.opening != fact.opening or here.deadline_at is None:
            here.opening, here.deadline_at = fact.opening, self._deadline(fact.at)
        course.ask(fact.devices, fact.bytes_down)
        self._in_hand, self.run.state = fact.round, "running"
        for name in fact.devices:
            row = self.devices.get(name) or self._device(name, live=False)
            self._put(row, "asked", fact, round=fact.round, steps=0)

    def _deadline(self, since: float) -> float | None:
        return None if self.run.deadline is None else since + self.run.deadline

    def _reported(self, fact: events.Round) -> None:
        course, run = self._courses.pop(fact.round, None), self.run
        row = course.row(fact) if course else RoundRow(**figures(fact))
        self._put_round(replace(row, bounded={name: {} for name in fact.bounded}))
        if self._in_hand == fact.round:
            self._in_hand = None
            run.state = "waiting"
        run.rounds_done = max(run.rounds_done, fact.round)
        run.bytes_up, run.bytes_down = run.bytes_up + fact.bytes_up, run.bytes_down + fact.bytes_down
        run.late, run.refused = run.late + fact.late, run.refused + fact.refused
        run.seconds, run.waiting_seconds = run.seconds + fact.seconds, run.waiting_seconds + fact.waiting_seconds
        run.best = better(run.best, fact.round, fact)
        if fact.bounded:
            named = ", ".join(sorted(fact.bounded)[:5])
            self._note("warning", fact, f"bounded: {named}: scaled down, see guards.norm_cap and weight_cap")
        self._rest(fact, fact.round)
        self._thin_out()

    def _rest(self, fact: Fact, last: int | None = None) -> None:
        """Set devices that have done their part of all rounds to idle."""
        for device in self.devices.values():
            if device.state in OVER and (last is None or device.round <= last):
                self._put(device, "idle", fact)

    def _evaluated(self, fact: events.Evaluated) -> None:
        """What devices saw of a model: with its round, of the newest one the confusions, of each device its own."""
        row, run = self.rounds.get(fact.round), self.run
        if row is None:  # of no round
            return
        for older in self.rounds.values():
            if older.evaluated is not None and older.evaluated.confusion is not None:
                self._put_round(replace(older, evaluated=replace(older.evaluated, confusion=None)))
        self._put_round(replace(row, evaluated=replace(fact, per_device=None)))
        for name, own in (fact.per_device or {}).items():
            if name in self.devices:
                self.devices[name].evaluated = own
                self._touch(self.devices[name])
        run.bytes_up, run.bytes_down = run.bytes_up + fact.bytes_up, run.bytes_down + fact.bytes_down
        if run.evaluating is not None and run.evaluating.on == "devices":
            run.best = better(run.best, fact.round, fact)
        if self.open and self.open.purpose == "evaluate" and self.open.round > fact.round:
            del self._courses[self.open.round]

    def _put_round(self, row: RoundRow) -> None:
        self.rounds[row.round] = replace(row, sequence=self.sequence)
        self._changed.add(row.round, self.sequence)

    def _thin_out(self) -> None:
        """Of the older half every other round goes, so that the curve still has its whole length."""
        if len(self.rounds) <= ROUNDS:
            return
        older = sorted(self.rounds)[: ROUNDS // 2]
        for number in older[1::2]:
            if not (self.run.best and self.run.best.round == number):
                del self.rounds[number]
                self._changed.drop(number)
        self.rounds_from = older[-1] + 1

    # ---- what has changed --------------------------------------------------------------------------------------

    def _note(self, kind: Kind, fact: Fact, text: str = "") -> None:
        device = getattr(fact, "device", None)
        known = device if device in self.devices else None
        self._notes.add(kind, cut(text or words(fact)), known, fact.at, self.sequence)

    def _touch(self, row: DeviceRow) -> None:
        row.sequence = self.sequence
        self._changed.add(row.name, self.sequence)
