"""Bugs that are put into the real code on purpose: a harness that does not find them would not find others either.

Each is a small change that a programmer could make by mistake, applied to the running program and taken back
afterwards.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from coordinator.decide import buffered, core, rounds, vocabulary
from coordinator.decide.strikes import Conduct
from coordinator.durable import checkpoint, journal, recovery
from coordinator.shell import budgets, invitations, merging
from coordinator.shell.outbox import CoordinatorOutbox
from coordinator.shell.publisher import Publisher
from coordinator.shell.service import Coordinator
from device_agent.decide import session
from device_agent.decide.vocabulary import Send, Tasked
from device_agent.durable import states
from device_agent.durable.privacy_ledger import PrivacyLedger
from device_agent.durable.spool import Spool
from device_agent.shell.presence import Attendance
from device_agent.shell.service import Agent
from edgefl.base.errors import StoreError
from edgefl.system.record_log import RecordLog
from edgefl.wire import topics
from edgefl.wire.messages import Missing
from edgefl.wire.transport import ConnectionMade
from tools.failing_disk import FailingDisk

Change = tuple[Any, str, Callable[..., Any]]  # whose, which function, and what stands in its place


def _journal_not_synced() -> Change:
    append = FailingDisk.append

    def unsynced(self: FailingDisk, name: str, *parts: Any) -> None:
        if not name.startswith("journal-"):
            append(self, name, *parts)
            return
        with patch.object(FailingDisk, "_sync", lambda *_: None):
            append(self, name, *parts)

    return FailingDisk, "append", unsynced


def _spool_not_synced() -> Change:
    def unsynced(self: Spool) -> None:
        """It is left to the kernel."""

    return Spool, "sync", unsynced


def _receipt_before_journal() -> Change:
    write = Coordinator._write

    def promised(self: Coordinator, *decided: Any) -> None:
        for action in (action for one in decided for action in one.actions):
            if isinstance(action, vocabulary.Accept):
                self.outbox.receipt(action.device, action.round, action.digest, "accepted")
        write(self, *decided)

    return Coordinator, "_write", promised


def _full_disk_ignored() -> Change:
    write = Coordinator._write

    def careless(self: Coordinator, *about: Any) -> None:
        try:
            write(self, *about)
        except StoreError:
            self.unwritten.clear()

    return Coordinator, "_write", careless


def _no_last_will() -> Change:
    start = Agent.start

    def willless(self: Agent) -> None:
        begin = self.transport.start
        with patch.object(self.transport, "start", lambda deliver, _will=None: begin(deliver)):
            start(self)

    return Agent, "start", willless


def _round_off_by_one() -> Change:
    restored = journal.Journal.rounds

    def ahead(self: journal.Journal, rules: Any) -> Any:
        state = restored(self, rules)
        return replace(state, round=state.round + 1) if state and state.phase == "gathering" else state

    return journal.Journal, "rounds", ahead


def _attempt_begins_anew() -> Change:
    restored = journal.Journal.rounds

    def anew(self: journal.Journal, rules: Any) -> Any:
        state = restored(self, rules)
        return replace(state, attempt=1) if state and state.attempt > 1 else state

    return journal.Journal, "rounds", anew


def _late_counts_twice() -> Change:
    answered = rounds._answered

    def again(s: Any, *about: Any) -> Any:
        after, actions = answered(s, *about)
        late = any(isinstance(action, rounds.AcceptLateAnswer) for action in actions)
        return (replace(after, owed=s.owed), actions) if late else (after, actions)

    return rounds, "_answered", again


def _late_counts_as_fresh() -> Change:
    verdict = rounds.verdict

    def fresh(s: Any, device: str, round: int) -> Any:
        if s.phase == "open" and round == s.round - 1 and device in s.asked and device not in s.answered:
            return rounds.AcceptAnswer(device, round)
        return verdict(s, device, round)

    return rounds, "verdict", fresh


def _asked_by_round_only() -> Change:
    def same(self: Any, other: Any) -> bool:
        return bool(self.run_key == other.run_key)

    return Tasked, "same_work", same


def _everybodys_tasks() -> Change:
    receive = Agent._receive

    def curious(self: Agent, event: Any) -> None:
        receive(self, event)
        if isinstance(event, ConnectionMade):
            self.transport.subscribe(topics.down(self.fleet, "+", "+"))

    return Agent, "_receive", curious


def _sent_is_forgotten() -> Change:
    perform = Agent._perform

    def forgetful(self: Agent, action: Any) -> None:
        perform(self, action)
        if isinstance(action, Send):
            self.spools.clear(self.held[action.digest].run_key)

    return Agent, "_perform", forgetful


def _commits_unasked() -> Change:
    trained = Agent._trained

    def hasty(self: Agent, *about: Any) -> None:
        trained(self, *about)
        for held in self.held.values():
            self.states.commit(held)

    return Agent, "_trained", hasty


def _torn_end_stays() -> Change:
    def trusting(self: RecordLog) -> None:
        self._clean = True
        if (size := self.disk.size(self.name)) is not None:
            self.end = size

    return RecordLog, "recover", trusting


def _announces_once() -> Change:
    announce = Attendance.announce

    def silent(self: Attendance) -> None:
        if not self.outbox.announced:
            announce(self)

    return Attendance, "announce", silent


def _models_published_once() -> Change:
    return Publisher, "again", lambda *_, **__: False


def _models_left_behind() -> Change:
    return Publisher, "clear", lambda _: None


def _nothing_merged_again() -> Change:
    return recovery, "catch_up", lambda *_: ()


def _merged_twice() -> Change:
    prepared = core._prepared

    def unaware(s: Any, event: Any) -> Any:
        return prepared(s, replace(event, round=0))

    return core, "_prepared", unaware


def _never_released() -> Change:
    return Conduct, "released", lambda self, _now: (self, ())


def _price_not_written() -> Change:
    spend = PrivacyLedger.spend

    def free(self: PrivacyLedger, life: str, price: Any) -> None:
        with patch.object(self._disk, "write", lambda *_: None):
            spend(self, life, price)

    return PrivacyLedger, "spend", free


def _receipt_of_any_round() -> Change:
    receipted = session._receipted

    def loose(s: Any, round: int, digest: str, verdict: Any) -> Any:
        for update in s.held.values():
            if update.digest != digest:
                return receipted(s, update.task.round, update.digest, verdict)
        return receipted(s, round, digest, verdict)

    return session, "_receipted", loose


def _abandoned_is_kept() -> Change:
    cleared = rounds.cleared

    def kept(s: Any) -> Any:
        return replace(cleared(s), answered=s.answered if s.phase == "open" else frozenset())

    return rounds, "cleared", kept


def _quorum_of_one_less() -> Change:
    complete = rounds._complete

    def early(s: Any) -> bool:
        return complete(s) or (len(s.answered) >= max(1, s.rules.quorum - 1) and not rounds.outstanding(s))

    return rounds, "_complete", early


def _state_of_another_run() -> Change:
    return states, "_name", lambda _run: "any.state"


def _presence_said_once() -> Change:
    return Attendance, "expect_echo", lambda _: None


def _who_is_there_asked_once() -> Change:
    return CoordinatorOutbox, "listen_again", lambda _: None


def _pieces_never_asked_for() -> Change:
    say = CoordinatorOutbox.say

    def silent(self: CoordinatorOutbox, device: str, message: Any) -> None:
        if not isinstance(message, Missing):
            say(self, device, message)

    return CoordinatorOutbox, "say", silent


def _lost_receipt_is_lost() -> Change:
    tasked = session._tasked

    def forgetful(s: Any, new: Any) -> Any:
        return tasked(s, replace(new, counted=0))

    return session, "_tasked", forgetful


def _answer_offered_once() -> Change:
    again = session._again

    def content(s: Any, new: Any) -> Any:
        return (s, ()) if new.run_key in s.held else again(s, new)

    return session, "_again", content


def _error_fed_back_twice() -> Change:
    read = states.States._read

    def doubled(self: states.States, name: str) -> Any:
        return {key: 2 * value if key == "wire/residual" else value for key, value in read(self, name).items()}

    return states.States, "_read", doubled


def _no_spares() -> Change:
    return rounds, "_spares", lambda _s, _count: ()


def _waits_for_all() -> Change:
    expired = rounds._expired

    def patient(s: Any) -> Any:
        return rounds._extend(s) if s.phase == "open" and rounds.outstanding(s) else expired(s)

    return rounds, "_expired", patient


def _absent_are_waited_for() -> Change:
    joined = rounds._joined

    def waiting(s: Any, device: str) -> Any:
        everybody = s.phase not in ("starting", "gathering") or len(s.present) >= len(s.known)
        return joined(s, device) if everybody else (s, ())

    return rounds, "_joined", waiting


def _judgement_forgotten() -> Change:
    return checkpoint, "_judged", lambda _told: None


def _answered_is_asked_again() -> Change:
    restored = journal.Journal.rounds

    def forgetful(self: journal.Journal, rules: Any) -> Any:
        state = restored(self, rules)
        if state is None or not state.rules.buffered:
            return state
        again = {device: rounds.Work(round, state.attempt) for device, round in state.counted.items()}
        return replace(state, counted={}, work={**again, **state.work})

    return journal.Journal, "rounds", forgetful


def _staleness_of_the_model_before() -> Change:
    work = merging.Merging.work

    def younger(self: merging.Merging, *about: Any) -> None:
        ages = {device: max(0, age - 1) for device, age in self.answers.ages.items()}
        work(replace(self, answers=replace(self.answers, ages=ages)), *about)

    return merging.Merging, "work", younger


def _no_answer_is_too_old() -> Change:
    return buffered, "oldest_welcome", lambda _s: 1


def _forgotten_while_merging() -> Change:
    merged = buffered._merged

    def forgetful(s: Any, *about: Any) -> Any:
        return merged(replace(s, later=frozenset()), *about)

    return buffered, "_merged", forgetful


def _half_the_time() -> Change:
    return invitations, "budget", lambda pace, deadline: budgets.budget(pace, deadline / 2)


BUGS: Mapping[str, tuple[str, Callable[[], Change]]] = {
    "journal-not-synced": ("the journal's appends are not synced", _journal_not_synced),
    "spool-not-synced": ("a device's spooled update is not synced", _spool_not_synced),
    "receipt-before-journal": ("a receipt is said before the answer is written down", _receipt_before_journal),
    "full-disk-ignored": ("what a full disk does not take is forgotten", _full_disk_ignored),
    "no-last-will": ("a device leaves no last will at the broker", _no_last_will),
    "round-off-by-one": ("a coordinator that comes back counts one round too many", _round_off_by_one),
    "attempt-begins-anew": ("attempts are counted from one again after a restart", _attempt_begins_anew),
    "late-counts-twice": ("a late answer may come again", _late_counts_twice),
    "late-counts-as-fresh": ("an answer to the round before counts in this one", _late_counts_as_fresh),
    "answer-to-any-round": ("a device takes any task of its run for the one it has answered", _asked_by_round_only),
    "everybodys-tasks": ("a device listens to what is said to others", _everybodys_tasks),
    "sent-is-forgotten": ("a device clears its spool when the update is sent", _sent_is_forgotten),
    "commits-unasked": ("a device keeps what it trained before the receipt", _commits_unasked),
    "torn-end-stays": ("the torn end of a journal is not cut off", _torn_end_stays),
    "announces-once": ("a device says once in its life that it is there", _announces_once),
    "models-published-once": ("a broker that lost the models does not get them again", _models_published_once),
    "models-left-behind": ("a run that has ended leaves its models at the broker", _models_left_behind),
    "nothing-merged-again": ("a damaged checkpoint is not made up for", _nothing_merged_again),
    "merged-twice": ("a round that was merged and saved is merged again after a restart", _merged_twice),
    "never-released": ("a quarantine never ends", _never_released),
    "price-not-written": ("the price of a private update is not written down", _price_not_written),
    "receipt-of-any-round": ("a receipt counts for whatever is held", _receipt_of_any_round),
    "abandoned-is-kept": ("answers to an opening that was given up still count", _abandoned_is_kept),
    "quorum-of-one-less": ("a round closes one answer too early", _quorum_of_one_less),
    "presence-said-once": ("a presence that the broker lost is not said again", _presence_said_once),
    "who-is-there-asked-once": ("a coordinator that lacks devices does not ask again", _who_is_there_asked_once),
    "pieces-never-asked-for": ("pieces of an answer that are missing are not asked for", _pieces_never_asked_for),
    "lost-receipt-is-lost": ("a task that says what counted does not stand in for a receipt", _lost_receipt_is_lost),
    "answer-offered-once": ("a device that is asked again does not offer what it holds", _answer_offered_once),
    "error-fed-back-twice": ("after a restart what a codec left out is added twice", _error_fed_back_twice),
    "no-spares": ("no device is asked in the place of one that does not answer", _no_spares),
    "waits-for-all": ("a quorum at the deadline does not close a round", _waits_for_all),
    "absent-are-waited-for": ("a round waits for every device that was ever there", _absent_are_waited_for),
    "judgement-forgotten": ("what devices said of a model is lost at a restart", _judgement_forgotten),
    "answered-is-asked-again": (
        "after a restart a device that has answered is taken to be still at work",
        _answered_is_asked_again,
    ),
    "staleness-of-the-model-before": ("staleness is counted from the wrong version", _staleness_of_the_model_before),
    "no-answer-is-too-old": ("the bound on staleness is not looked at", _no_answer_is_too_old),
    "forgotten-while-merging": ("answers that come while a round is merged are lost", _forgotten_while_merging),
    "half-the-time": ("devices are given less work than they have the time for", _half_the_time),
    "state-of-another-run": ("two runs share what a device keeps between rounds", _state_of_another_run),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Within the block the program has this bug."""
    whose, which, instead = BUGS[name][1]()
    with patch.object(whose, which, instead):
        yield
