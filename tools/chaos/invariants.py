"""What must be true whatever goes wrong, looked at after every event. What is not true is a Violation.

counted      an answer is merged once; a round is merged from the same answers and has the same model for ever
promised     whatever was receipted as accepted is in the journal, and merged when its round is
meant        what is said to a device reaches that device alone, and is about its own installation
committed    a device keeps what it trained only on its coordinator's word
held         an update is kept until its receipt, a newer task, or the end of its run
forward      rounds and attempts only grow, over all lives of a coordinator; every round is reported
present      a device that is gone is not said to be there, one that is there is
spent        no more private updates left a device than its ledger counts
tidy         at the end nothing is left at the broker, and nothing held on a device
progress     a quorum that is healthy for long enough closes a round (progress.py); once all is mended, every run ends
once         the story in the journal has each report once, in the order of their numbers, whatever was interrupted
judged       what is told of a model is told alike for ever, and is what the journal's answers say of it
undisturbed  where every device counted in every round, model and evaluations are those of the plain loop in which each
             device makes the steps that it had the time for, bit for bit

Where rounds wait for no device some of these are others: buffered_rules.py.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.decide.rounds import Rounds
from coordinator.durable import journal
from device_agent.decide.session import known
from device_agent.durable.spool import SpooledUpdate
from device_agent.shell.service import Agent
from edgefl.base import events
from edgefl.base.errors import EdgeflError
from edgefl.job.run import job as jobs
from edgefl.job.run.job import RunState
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.engines import held
from edgefl.sim.network import SILENCE
from edgefl.wire import calls, topics
from edgefl.wire.messages import Answer, Assignment, Call, JobState, Receipt
from edgefl.wire.sealing import Opener
from tools.chaos import buffered_rules
from tools.chaos.buffered_rules import trains
from tools.chaos.decoded_payloads import PayloadListener, Said, overheard
from tools.chaos.machines import FLEET, ChaosMachine, CoordinatorMachine, DeviceMachine
from tools.chaos.remerge import by_the_record, divided, idle, merged_again, together
from tools.faulty_network import FaultyBroker, Passing

Told = tuple[str, int, str]  # a run, a round, a device


class Violation(EdgeflError):  # noqa: N818 - what it is
    """Something that must never be is so."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass(slots=True)
class RunSeen:
    """What was seen of one run, over all lives of its coordinator."""

    round: int = 0
    attempt: int = 0
    next: int = 1  # the next round to be closed
    models: dict[int, str] = field(default_factory=dict)  # round: the hash of its model
    merged: dict[int, dict[tuple[int, str], bytes]] = field(default_factory=dict)  # round: what was merged in it
    openings: dict[int, int] = field(default_factory=dict)  # round: the opening that was seen last
    accepted: dict[tuple[int, str, bytes], int] = field(default_factory=dict)  # an answer: the opening it came in
    late: dict[tuple[int, str, bytes], int] = field(
        default_factory=dict
    )  # a late answer: the round it is merged in at the latest
    reported: list[int] = field(default_factory=list)
    evaluated: dict[int, events.Evaluated] = field(default_factory=dict)  # by the round of the model
    closed: dict[int, set[str]] = field(default_factory=dict)  # round: with whose answers
    abandoned: int = 0
    run_state: RunState | None = None  # of the life in hand
    life: int = 0
    last_word_by: float = 0.0  # until when a coordinator that leaves waits for its last words to be sent
    ended_at: float = 0.0
    tidy: bool = False  # its last words reached the broker


class Invariants:
    """Watches one play."""

    def __init__(self, devices: dict[str, DeviceMachine], coordinators: dict[str, CoordinatorMachine]) -> None:
        self.devices, self.coordinators = devices, coordinators
        self.twins: set[str] = set()
        self.listener = PayloadListener()
        self.runs = {name: RunSeen() for name in coordinators}
        self.sent: dict[bytes, Told] = {}  # answers, by what they are known by
        self.receipts: dict[tuple[str, int, str, bytes], int] = {}  # said to be accepted: the opening then
        self.promises: dict[tuple[str, int, str, bytes], int] = {}  # the same: the round that merges it at the latest
        self.took: set[Told] = set()  # rounds that a device was told to be counted in
        self.tasks: dict[tuple[str, str], int] = defaultdict(int)  # run, device: the last round it was asked for
        self.answered: set[tuple[str, str, bytes]] = set()  # run, device, digest: any receipt
        self.over: set[str] = set()  # runs that were said to have finished
        self.held: dict[str, dict[str, Any]] = defaultdict(dict)  # device: what it held after the last event
        self.unwritten: set[str] = set()  # held in memory only, because a disk was full
        self.wills_lost: set[str] = set()  # devices of whom the broker has lost a word about being there or not
        self.untidy: set[str] = set()  # runs of which it has lost a word that clears a model away
        self.left: dict[tuple[str, str], set[bytes]] = defaultdict(set)  # run, device: answers that were sent

    # ---- what is overheard -------------------------------------------------------------------------------------

    def passing(self, passing: Passing) -> None:
        """A message begins its way."""
        place = topics.parts(passing.topic)
        if passing.way == "down":
            if len(place) == 4 and place[1] == "dev" and place[3] == "down" and place[2] != passing.client:
                raise Violation("meant", f"{passing.client} receives what was said to {place[2]}")
            return
        heard = self.listener.hear(passing.topic, passing.payload)
        match place, heard:
            case (run, "dev", device, "down"), (message, _) if run in self.runs:
                self._said_to_device(run, device, message)
            case (run, "model", "round"), (Call() as call, _) if run in self.runs:
                self._called(run, call)
            case (run, "dev", device, "up"), (Answer() as message, known_as):
                self.sent[known_as] = message.job, message.round, device
                if message.purpose == "train":  # to look at a model is no update
                    self.left[run, device].add(known_as)
            case (run, "state"), (JobState(phase="finished"), _):
                self.over.add(run)

    def lost(self, passing: Passing) -> None:
        """Relax the rules that the loss of this message makes unattainable."""
        match topics.parts(passing.topic):
            case ("presence", device) if passing.way == "up":
                self.wills_lost.add(device)
            case (run, "model", *_) if passing.way == "up" and not passing.payload:
                self.untidy.add(run)

    def _said_to_device(self, run: str, device: str, message: Said) -> None:
        match message:
            case Receipt(round=round, digest=known_as, verdict=verdict, reason=reason):
                self.answered.add((run, device, known_as))
                if verdict in ("accepted", "duplicate"):
                    self.took.add((run, round, device))
                if verdict == "accepted" and not reason:  # with one it came late, and is kept by policy
                    self.receipts.setdefault((run, round, device, known_as), self._opening(run))
                    if (shell := self.coordinators[run].shell) and trains(self.coordinators[run].run, round):
                        self.promises.setdefault((run, round, device, known_as), buffered_rules.due(shell.state.rounds))
            case Assignment(round=round, counted=counted, installation=meant) as task:
                agent = self.devices[device].agent if device in self.devices else None
                own = agent.birth.installation if agent else None
                if meant not in (None, own) and device not in self.twins:
                    raise Violation("meant", f"{device} is asked as installation {meant}, it is {own}")
                self.tasks[run, device] = max(self.tasks[run, device], task.round)
                if counted:
                    self.took.add((run, counted, device))

    def _called(self, run: str, call: Call) -> None:
        """A round is asked at once: each device that finds its slot is asked."""
        agents = {name: machine.agent for name, machine in self.devices.items() if machine.agent}
        for name, agent in agents.items():
            if task := calls.own_task(FLEET, call, name, agent.birth.installation, b""):
                self._said_to_device(run, name, task)

    def _opening(self, run: str) -> int:
        shell = self.coordinators[run].shell
        return shell.state.rounds.opening if shell else 0

    # ---- after every event -------------------------------------------------------------------------------------

    def look(self, machine: ChaosMachine) -> None:
        """A machine has just done something."""
        if isinstance(machine, CoordinatorMachine):
            self._coordinator(machine)
        elif isinstance(machine, DeviceMachine) and machine.name in self.devices:
            self._device(machine)

    def told(self, run: str, fact: events.Fact) -> None:
        """A coordinator has told a fact."""
        seen = self.runs[run]
        match fact:
            case events.Abandoned():
                seen.abandoned += 1
            case events.Round(round=round):
                last = seen.reported[-1] if seen.reported else 0
                if round > last + 1:  # after a restart the last one that is on disk is told again
                    raise Violation("forward", f"{run} reports round {round} after round {last}")
                if min(fact.bytes_up, fact.bytes_down, fact.seconds, fact.late, fact.refused) < 0:
                    raise Violation("forward", f"{run} counts less than nothing: {fact}")
                if round == last + 1:
                    seen.reported.append(round)
            case events.Closed(round=round, devices=devices):
                seen.closed[round] = set(devices)
            case events.Evaluated(round=round):
                plain = _plain(fact)
                if seen.evaluated.setdefault(round, plain) != plain:
                    raise Violation("judged", f"{run} tells of the model after round {round} in two ways")

    def _coordinator(self, machine: CoordinatorMachine) -> None:
        shell, seen = machine.shell, self.runs[machine.name]
        if shell is None:
            return
        if seen.life != machine.lives:
            seen.life, seen.run_state = machine.lives, None
        state = shell.state
        self._forward(machine.name, seen, shell.undone[0].before.rounds if shell.undone else state.rounds)
        now, before = state.rounds, seen.next
        seen.next = now.round + (now.phase == "merging")
        if now.phase in ("open", "merging"):
            seen.openings[now.round] = now.opening
        for device, kept in state.answers.items():
            seen.accepted.setdefault((kept.round, device, kept.digest), now.opening)
        for device, kept in state.late.items():
            seen.late.setdefault((kept.round, device, kept.digest), max(before, seen.next))
        if state.end_due is not None:
            seen.last_word_by = state.end_due
        run_state = shell.artifacts.run_state
        if run_state is not None and run_state is not seen.run_state:
            self._merged(machine, seen, run_state)
            seen.run_state = run_state

    def _forward(self, name: str, seen: RunSeen, now: Rounds) -> None:
        """Return where the rounds stand by what is written; what is not written was not sent either."""
        back = now.round < seen.round and now.phase != "finished"  # without the round that only evaluated
        if back or now.attempt < seen.attempt:
            was = f"round {seen.round}, attempt {seen.attempt}"
            raise Violation("forward", f"{name} is at round {now.round}, attempt {now.attempt} after {was}")
        seen.round, seen.attempt = now.round, now.attempt

    def _merged(self, machine: CoordinatorMachine, seen: RunSeen, run_state: RunState) -> None:
        """There is another model: it must be what the journal makes of the one before."""
        name, sha = machine.name, run_state.sha256()
        if seen.models.setdefault(run_state.round, sha) != sha:
            raise Violation("counted", f"{name} has two models after round {run_state.round}")
        missing = [round for round in machine.asked(run_state.round) if round not in seen.merged]
        if not missing:
            return
        book = journal.Journal(machine.disk, reading=True)
        for round in missing:
            closed = book.merge(round)
            if closed is None:
                raise Violation("promised", f"{name} has merged round {round}, which its journal never closed")
            buffered = trains(machine.run, round)
            fresh, behind = (together if buffered else divided)(book.answers(round), round, closed[0])
            self._closed(machine, seen, round, closed[0], fresh, behind)
            before = seen.run_state
            if before is not None and before.round == round - 1 and round == missing[-1]:
                policy, unseal = machine.run.rounds.late, Opener(machine.around.signer)
                if buffered:
                    after = buffered_rules.merged_again(machine.job, before, closed[1], fresh, unseal)
                else:
                    after = merged_again(machine.job, before, policy, closed[1], fresh, behind, unseal)
                if after.sha256() != sha:
                    raise Violation("counted", f"{name}: round {round} is not what its journal makes of it")
                if after.judged != run_state.judged:
                    raise Violation("judged", f"{name}: {run_state.judged}, and by its journal {after.judged}")

    def _closed(  # noqa: PLR0917 - all that is known about it
        self,
        machine: CoordinatorMachine,
        seen: RunSeen,
        round: int,
        counted: frozenset[str],
        fresh: dict[str, journal.AnswerFrame],
        behind: dict[str, journal.AnswerFrame],
    ) -> None:
        name, rules = machine.name, machine.run
        buffered = trains(rules, round)
        if buffered and (old := buffered_rules.too_old(rules, round, fresh.values())):
            raise Violation("counted", f"{name} merges in round {round} what began too long ago: {old}")
        if set(fresh) != counted or len(counted) < (1 if buffered else rules.quorum):
            raise Violation("promised", f"{name} closed round {round} with {sorted(counted)}, and has {sorted(fresh)}")
        before = {known_as: earlier for earlier, merged in seen.merged.items() for known_as in merged.values()}
        for kept in (*fresh.values(), *behind.values()):
            if kept.digest in before:
                raise Violation(
                    "counted", f"{name} merges an answer of {kept.device} in {before[kept.digest]}, {round}"
                )
            source = self.sent.get(kept.digest)
            if source is None or source[2] != kept.device:
                raise Violation("counted", f"{name} merges as {kept.device}'s in round {round} what is {source}")
        if behind and rules.rounds.late == "drop":
            raise Violation("counted", f"{name} merges late answers of {sorted(behind)} in round {round}")
        seen.merged[round] = {(kept.round, kept.device): kept.digest for kept in (*fresh.values(), *behind.values())}
        self._kept_promises(machine, seen, round)

    def _kept_promises(self, machine: CoordinatorMachine, seen: RunSeen, round: int) -> None:
        """Check that each answer with a receipt for this round is in it, unless its opening was given up."""
        name, merged = machine.name, seen.merged[round]
        if trains(machine.run, round):
            if lost := buffered_rules.lost(self.promises, name, round, seen.merged.values()):
                raise Violation("promised", f"{name} receipted, and did not merge by round {round}: {lost}")
            return
        for (run, of, device, known_as), then in self.receipts.items():
            opening = seen.accepted.get((of, device, known_as), then)
            promised = (run, of) == (name, round) and opening == seen.openings.get(round, opening)
            if promised and merged.get((round, device)) != known_as:
                raise Violation("promised", f"{name} receipted {device}'s answer to round {round}, and lost it")

        for (of, device, known_as), target in seen.late.items():
            if target == round and all(one.get((of, device)) != known_as for one in seen.merged.values()):
                raise Violation("promised", f"{name} kept {device}'s late answer to round {of}, and lost it")

    def _device(self, machine: DeviceMachine) -> None:
        agent, name = machine.agent, machine.name
        if agent is None:
            return
        if name not in self.twins:
            self._committed(name, agent)
        now = {update.digest: update.task for update in agent.session.held.values()}
        before, self.held[name] = self.held[name], now
        if machine.disk.capacity is not None:
            self.unwritten.update(set(now) - set(before))
        for known_as, task in before.items():
            if known_as not in now and not self._may_go(name, known_as, task):
                raise Violation("held", f"{name} forgot its answer to round {task.round} of {task.job}")

    def _committed(self, name: str, agent: Agent) -> None:
        told = {(run.partition(".")[0], round) for run, round in agent.session.committed.items()}
        kept = {(held.job, held.round) for held in agent.held.values() if held.kept and _keeps(agent, held)}
        for job, round in sorted(told | kept):
            if (job, round, name) not in self.took:
                raise Violation(
                    "committed", f"{name} keeps what it trained in round {round} of {job} without a receipt"
                )
        for run, entry in agent.ledger.runs.items():
            left = len(self.left[run.partition(".")[0], name])
            if left > int(entry["odd_updates"]):
                raise Violation("spent", f"{left} private updates left {name}, {entry['odd_updates']} are counted")

    def _may_go(self, device: str, known_as: str, task: Any) -> bool:
        told = (task.job, device, bytes.fromhex(known_as)) in self.answered or known_as in self.unwritten
        lied = device in self.twins or self.devices[device].member.lie is not None
        return told or lied or task.job in self.over or self.tasks[task.job, device] > task.round

    # ---- lives -------------------------------------------------------------------------------------------------

    def before_boot(self, machine: ChaosMachine, broker: FaultyBroker, broker_since: float) -> None:
        """A machine that was off for long is about to start: check that no coordinator takes it for present."""
        now, since = machine.around.world.now, machine.down_since
        if machine.name not in self.devices or since is None or machine.name in self.twins | self.wills_lost:
            return
        if now - max(since, broker_since) <= SILENCE + 15.0:
            return
        kept = broker.retained.get(topics.presence(FLEET, machine.name))
        presence = overheard(kept.topic, kept.payload) if kept else None
        if presence is not None and getattr(presence, "online", False):
            raise Violation("present", f"{machine.name} is off since {since:.1f}, and said to be there")

    # ---- the end -----------------------------------------------------------------------------------------------

    def ended(self, name: str, now: float) -> None:
        """A coordinator has left."""
        seen, shell = self.runs[name], self.coordinators[name].shell
        seen.ended_at = now
        seen.tidy = now < seen.last_word_by and shell is not None and shell.state.searched

    def at_the_end(self, broker: FaultyBroker, broker_since: float) -> None:
        """Check what must be true when all runs have ended and all messages have arrived."""
        for name, machine in self.coordinators.items():
            self._ended(machine, self.runs[name])
        tidy = {name for name, seen in self.runs.items() if seen.tidy}
        for topic in broker.retained:
            if "/model/" in topic and topics.parts(topic)[0] in tidy - self.untidy:
                raise Violation("tidy", f"models are left at the broker: {topic}")
        heard = {name for name in tidy if broker_since < self.runs[name].ended_at and _finished(broker, name)}
        for name, device in self.devices.items():
            self._at_rest(name, device, broker, heard)

    def _ended(self, machine: CoordinatorMachine, seen: RunSeen) -> None:
        shell = machine.shell
        assert shell is not None  # noqa: S101 - it has ended
        run_state = shell.result()
        if not jobs.finished(machine.job, run_state) or seen.reported != list(range(1, run_state.round + 1)):
            raise Violation("forward", f"{machine.name} ended after {run_state.round} rounds, told of {seen.reported}")
        story = list(journal.Journal(machine.disk, reading=True).story())
        rounds = [fact.round for fact in story if isinstance(fact, events.Round)]
        judged = [fact.round for fact in story if isinstance(fact, events.Evaluated)]
        if rounds != seen.reported or judged != sorted(set(judged)):
            raise Violation("once", f"the journal of {machine.name} tells of rounds {rounds}, and evaluations {judged}")
        if machine.run.judge == "devices" and run_state.round not in seen.evaluated:
            raise Violation("judged", f"{machine.name} ended, and its model was never evaluated")
        for round in machine.asked(run_state.round):
            self._kept_promises(machine, seen, round)

    def _at_rest(self, name: str, device: DeviceMachine, broker: FaultyBroker, over: set[str]) -> None:
        agent = device.agent
        if agent is None or device.process is None:
            raise Violation("present", f"{name} does not run")
        for task in known(agent.session):
            if task.job in over:
                raise Violation("tidy", f"{name} is still at round {task.round} of {task.job}")
        kept = broker.retained.get(topics.presence(FLEET, name))
        presence = overheard(kept.topic, kept.payload) if kept else None
        if not getattr(presence, "online", False):
            raise Violation("present", f"{name} is there, and the broker has {presence}")

    def same_as_the_loop(self, machine: CoordinatorMachine, full_disks: bool) -> bool:
        """Whether this run could be compared with the plain loop, and was the same."""
        seen, scenario = self.runs[machine.name], machine.around.scenario
        if machine.run.task.describes and len(scenario.runs) > 1:
            # To a second run a device says of its data what it said to the first (descriptions.py), which
            # held other samples back: of that the loop knows nothing.
            return False
        everybody = {name: device.data for name, device in self.devices.items()}
        if machine.run.buffered:
            return self._same_as_its_record(machine, everybody, full_disks)
        last, judged = max(seen.models), machine.run.judged_by_devices
        counted = ({device for _, device in seen.merged.get(round, {})} for round in machine.asked(last))
        complete = all(devices == set(everybody) for devices in counted)
        complete &= not judged or seen.closed.get(last + 1) == set(everybody)
        complete &= machine.run.cohort == len(everybody)  # with spares a round may count more than the loop asks
        lies = any(member.lie for member in scenario.members)
        if (
            not complete
            or lies
            or self.twins
            or seen.abandoned
            or full_disks
            or any(of != round for round, merged in seen.merged.items() for of, _ in merged)
        ):
            return False
        trains = {name: len(data) for name, (data, _) in held(machine.run, everybody).items()}
        paces = {member.name: member.pace for member in scenario.members}
        if lazy := idle(machine.job, machine.disk, trains, paces):
            raise Violation("undisturbed", f"{machine.name}: fewer steps than there was time for: {lazy}")
        expected, told = by_the_record(machine.job, machine.disk, everybody)
        if expected.sha256() != seen.models.get(expected.round):
            raise Violation(
                "undisturbed", f"{machine.name}: every device counted in every round, and the model differs"
            )
        if {fact.round: _plain(fact) for fact in told} != seen.evaluated:
            raise Violation("undisturbed", f"{machine.name}: every device counted, and {seen.evaluated} is not {told}")
        return True

    def _same_as_its_record(self, machine: CoordinatorMachine, everybody: dict[str, Dataset], full_disks: bool) -> bool:
        """The same where rounds wait for no device: the loop is told in which order answers came."""
        if any(device.member.lie for device in self.devices.values()) or self.twins or full_disks:
            return False
        seen, name = self.runs[machine.name], machine.name
        expected, told = by_the_record(machine.job, machine.disk, everybody)
        if expected.sha256() != seen.models.get(expected.round) or expected.round != max(seen.models):
            raise Violation("undisturbed", f"{name}: its facts do not make its model")
        if {fact.round: _plain(fact) for fact in told} != seen.evaluated:
            raise Violation("undisturbed", f"{name}: {seen.evaluated}, and by its facts {told}")
        return True


def _plain(fact: events.Evaluated) -> events.Evaluated:
    """What was seen, without when it was told and what it cost: after a restart that is not known any more."""
    return replace(fact, at=0.0, bytes_up=0, bytes_down=0)


def _finished(broker: FaultyBroker, run: str) -> bool:
    """Return whether each client that asks the broker learns that the run has ended."""
    kept = broker.retained.get(topics.state(FLEET, run))
    state = overheard(kept.topic, kept.payload) if kept else None
    return isinstance(state, JobState) and state.phase == "finished"


def _keeps(agent: Agent, held: SpooledUpdate) -> bool:
    """Whether what belongs to this update holds already."""
    return agent.states.last.get(held.run_key) is held.kept
