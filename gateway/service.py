"""The gateway: an agent towards the coordinator and a coordinator for each of its runs at the site. A reactor.

    the coordinator's broker ◀──▶ Agent ──▶ relay.step ──▶ Coordinator ◀──▶ the site's broker
                                  (device_agent)  (pure)     (coordinator, with the artifacts of site.py)

One loop owns both. The agent's training is a round at the site (`SiteTraining`); the site's merging is a sum
(`SumMade`), which the agent spools and sends as its answer. Answers of devices are in the site's journal before they
get a receipt. The journal of a run stays until the coordinator has said that the run is over, so a gateway that was
killed goes on.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from coordinator.decide import vocabulary as site_vocabulary
from coordinator.decide.state import but
from coordinator.durable.journal import Journal
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.merging import PreparedJob
from coordinator.shell.outbox import CoordinatorOutbox, start_number
from coordinator.shell.service import Coordinator
from coordinator.shell.setup import ModelSource, Security
from device_agent.decide import vocabulary
from device_agent.shell.backends import MakeModel
from device_agent.shell.order import Train, TrainingOrder
from device_agent.shell.service import Agent
from device_agent.shell.setup import DeviceIdentity, Hooks, Limits, Scope, TrainingSetup
from device_agent.shell.training import TELL_EVERY, Seal, WorkDone, WorkFailed, WorkProgressed
from edgefl.base import events
from edgefl.base.errors import Interrupted
from edgefl.base.events import Fact
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import Job
from edgefl.learn.contract import Update
from edgefl.learn.data.dataset import Dataset
from edgefl.system.background import Background, Put
from edgefl.system.disk import Disk
from edgefl.system.reactor import DeadlineReached
from edgefl.wire.messages import JobState
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Transport
from edgefl.wire.wiring import Wiring
from gateway import relay
from gateway.errand import Errand
from gateway.relay import Relay
from gateway.site import SiteArtifacts, SumMade, answer, job_of, preparing

log = logging.getLogger(__name__)

FLUSH = 5.0  # seconds for the last word of a run
MODEL = "model"  # what the journal of a site knows the round in hand by


@dataclass(frozen=True, slots=True)
class SiteSetup:
    """Where the devices are, and by which rules they are coordinated."""

    run: Callable[[Errand], RunFile]  # the run of an errand, as the site plays it
    connect: Callable[[str], Transport]
    disk: Callable[[str], Disk]  # of a run
    knows: Callable[[str], bool]  # whether something is on it
    forget: Callable[[str], None]
    background: Callable[[Put], Background]
    signer: Signer
    device_keys: Callable[[], DeviceKeys]
    make_model: MakeModel
    fleet: str
    devices: int  # that it has
    seal: bool = False


@dataclass(frozen=True, slots=True)
class ToCentre:
    """Something for the agent."""

    event: Any


@dataclass(frozen=True, slots=True)
class ToSite:
    """Something for the coordinator of a run, or of this life of it."""

    run_key: str
    life: int
    event: Any


@dataclass(slots=True)
class SiteRun:
    """A run at the site."""

    life: int
    errand: Errand
    shell: Coordinator
    artifacts: SiteArtifacts
    counted: int = 0  # answers to the round in hand
    sum: Update | None = None
    over: bool = False  # the coordinator has said so


class SiteTraining:
    """What an agent takes for its trainer."""

    def __init__(self, start: Callable[[TrainingOrder, Seal | None], None], cancel: Callable[[], None]) -> None:
        self.number = 0
        self._start, self._cancel = start, cancel

    def start(self, order: TrainingOrder, train: Train, seal: Seal | None = None) -> None:  # noqa: ARG002 - a gateway does not train
        self.cancel()
        self._start(order, seal)

    def cancel(self) -> None:
        self.number += 1
        self._cancel()


class Gateway:
    """Two shells and what is decided between them."""

    def __init__(
        self,
        place: SiteSetup,
        identity: DeviceIdentity,
        wiring: Wiring,
        disk: Disk,
        *,
        scope: Scope = Scope(),
        limits: Limits = Limits(),
    ) -> None:
        self.site, self.put, self.clock, self.background = place, wiring.put, wiring.clock, wiring.background
        self.relay = Relay()
        self.played: dict[str, SiteRun] = {}
        self.errands: dict[int, Errand] = {}  # by number: the one in hand
        self.lives, self.told = 0, 0.0
        self.training = SiteTraining(self._ordered, self._cancelled)
        no_data = Dataset(np.zeros((0, 1), np.float32), np.zeros(0, np.int64), 0)
        self.agent = Agent(
            identity,
            replace(wiring, put=lambda event: wiring.put(ToCentre(event))),
            disk,
            TrainingSetup(no_data, place.make_model, trainer=self.training),
            scope=scope,
            limits=limits,
            hooks=Hooks(speaks_for=lambda: place.devices, heard=self._heard),
        )

    # ---- the reactor -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.agent.start()

    def handle(self, event: Any) -> None:
        """What follows from one event, on whichever side."""
        match event:
            case ToCentre(inner):
                self.agent.handle(inner)
            case ToSite(run_key, life, inner) if self._current(run_key, life):
                self._at_site(run_key, inner)
            case ToSite():
                log.debug("of a run that was begun afresh")
            case vocabulary.Stopped():
                self.agent.handle(event)
            case DeadlineReached():
                self.agent.handle(event)
                for run_key in list(self.played):
                    self._at_site(run_key, event)
        if self.agent.ended:
            for run_key in list(self.played):
                if not self.played[run_key].shell.error:
                    self._at_site(run_key, site_vocabulary.Stop(self.clock.now()))

    def deadline(self) -> float | None:
        """When one of them wants to be woken."""
        due = [] if self.agent.ended else [self.agent.deadline()]
        due += [one.shell.deadline() for one in self.played.values()]
        return min((one for one in due if one is not None), default=None)

    @property
    def ended(self) -> bool:
        return self.agent.ended and not self.played

    # ---- towards the coordinator -------------------------------------------------------------------------------

    def _ordered(self, order: TrainingOrder, seal: Seal | None) -> None:
        task, cache = order.task, self.agent.model_cache
        previous, graphs = (cache[id] if id else None for id in (task.previous, task.graphs))
        number = self.training.number
        errand = Errand(number, task, order.item, previous, graphs, order.state, order.most, seal)
        self.errands = {number: errand}
        self._decide(relay.Ordered(relay.Order(number, task.run_key, task.round, task.model)))

    def _cancelled(self) -> None:
        self._decide(relay.OrderCancelled())

    def _heard(self, state: JobState) -> None:
        if state.phase == "finished":
            self._decide(relay.Ended(f"{state.job}.{state.run_id}"))

    def _tell(self, event: Any) -> None:
        """To the agent, as its trainer would: behind what it is doing now."""
        self.put(ToCentre(event))

    # ---- at the site -------------------------------------------------------------------------------------------

    def _current(self, run_key: str, life: int) -> bool:
        return run_key in self.played and self.played[run_key].life == life

    def _at_site(self, run_key: str, event: Any) -> None:
        one = self.played[run_key]
        match event:
            case SumMade(round, update):
                one.sum = update
                log.info("summed run=%s round=%d devices=%d", run_key, round, update.devices)
                self._decide(relay.Summed(run_key, round))
            case relay.RoundAbandoned():
                self._decide(event)
            case _:
                one.shell.handle(event)
        if isinstance(event, PreparedJob) and one.shell.state.rounds.round < one.errand.task.round:
            one.shell.handle(site_vocabulary.Handed(self.clock.now(), one.artifacts.take(one.errand)))
        if one.shell.ended:
            self._left(run_key, one)

    def _left(self, run_key: str, one: SiteRun) -> None:
        del self.played[run_key]
        if one.shell.error and not isinstance(one.shell.error, Interrupted):
            raise one.shell.error
        if one.over:
            self.site.forget(run_key)

    def _facts(self, run_key: str, life: int, fact: Fact) -> None:
        """What a site's coordinator tells, as far as it concerns the agent."""
        match fact:
            case events.Abandoned(round, reason):
                self.put(ToSite(run_key, life, relay.RoundAbandoned(run_key, round, f"its site: {reason}")))
            case events.Answered(verdict="accepted", round=round) if self._current(run_key, life):
                one, now = self.played[run_key], self.clock.now()
                one.counted += 1
                if now - self.told >= TELL_EVERY:
                    self.told = now
                    self._tell(WorkProgressed(one.errand.number, round, one.counted))

    # ---- what is to be done ------------------------------------------------------------------------------------

    def _decide(self, event: relay.Event) -> None:
        self.relay, actions = relay.step(self.relay, event)
        for action in actions:
            self._perform(action)

    def _perform(self, action: relay.Action) -> None:
        match action:
            case relay.Begin(run_key, afresh):
                self._begin(run_key, self._errand(), afresh=afresh)
            case relay.Advance(run_key):
                self._advance(run_key, self._errand())
            case relay.DeliverSum(order):
                self._hand_over(order, self.errands[order.number])
            case relay.DeclineOrder(order, reason):
                self._tell(WorkFailed(order.number, order.round, reason, reason, mistake=False))
            case relay.End(run_key) if run_key in self.played:
                self._end(self.played[run_key])
            case relay.End(run_key) if self.site.knows(run_key):
                self.background.start(partial(self._say_goodbye, run_key))

    def _errand(self) -> Errand:
        return self.errands[self.training.number]

    def _begin(self, run_key: str, errand: Errand, *, afresh: bool) -> None:
        if old := self.played.pop(run_key, None):
            old.shell.close()
        if afresh:
            self.site.forget(run_key)
        one = self._opened(run_key, errand)
        if not _goes_on(one.shell, errand):
            one.shell.close()
            self.site.forget(run_key)
            one = self._opened(run_key, errand)
        if not one.shell.state.resumed:  # its first round is the one that it is asked for first
            rounds = replace(one.shell.state.rounds, round=errand.task.round)
            one.shell.state = but(one.shell.state, rounds=rounds)
        _note(one.shell, errand)
        self.played[run_key] = one
        one.shell.start()

    def _opened(self, run_key: str, errand: Errand) -> SiteRun:
        self.lives += 1
        life, run, disk = self.lives, self.site.run(errand), self.site.disk(run_key)
        hold: list[SiteArtifacts] = []

        def artifacts(*about: Any, **more: Any) -> SiteArtifacts:  # Any: as those of Artifacts
            hold.append(SiteArtifacts(*about, errand=errand, **more))
            return hold[0]

        def put(event: Any) -> None:
            self.put(ToSite(run_key, life, event))

        make = partial(job_of, run=run, make_model=self.site.make_model)
        shell = Coordinator(
            run,
            Wiring(self.site.connect(run_key), self.clock, self.site.background(put), put),
            lambda: make(errand),
            journal=Journal(disk, clock=self.clock),
            tell=partial(self._facts, run_key, life),
            security=Security(self.site.signer, self.site.device_keys(), seal=self.site.seal),
            run_id=errand.task.run_id,
            source=ModelSource(
                artifacts, lambda _make, journal, known, opener: preparing(hold[0], make, journal, known, opener)
            ),
        )
        return SiteRun(life, errand, shell, hold[0])

    def _advance(self, run_key: str, errand: Errand) -> None:
        one = self.played[run_key]
        one.errand, one.sum, one.counted = errand, None, 0
        model = one.artifacts.take(errand)
        _note(one.shell, errand)
        one.shell.handle(site_vocabulary.Handed(self.clock.now(), model))

    def _hand_over(self, order: relay.Order, errand: Errand) -> None:
        one = self.played[order.run_key]
        job: Job | None = one.artifacts.job
        assert one.sum is not None and job is not None  # noqa: S101, PT018 - summed
        done = answer(self.agent.device, job, errand, one.sum)
        if errand.seal:
            done = replace(done, frame=errand.seal(done.frame))
        self._tell(WorkDone(order.number, order.round, done))

    def _end(self, one: SiteRun) -> None:
        one.over = True
        now = self.clock.now()
        running = one.shell.state.phase == "running"
        one.shell.handle(site_vocabulary.Handed(now, None) if running else site_vocabulary.Stop(now))

    def _say_goodbye(self, run_key: str, _put: Put) -> None:
        """Tell devices of a run that ended while this gateway was away: no other machine can."""
        (job, _, run_id), line = run_key.rpartition("."), self.site.connect(run_key)
        start = start_number(Journal(self.site.disk(run_key)), int(self.clock.wall()))
        line.start(lambda _event: None)
        CoordinatorOutbox(line, self.site.fleet, job, run_id, signer=self.site.signer, start=start).state(
            "finished", 0, 0
        )
        if line.flush(FLUSH):
            self.site.forget(run_key)
        line.close()


def _goes_on(shell: Coordinator, errand: Errand) -> bool:
    """Whether what the disk knows of the run can be gone on with: it is not ahead, and it has the same model."""
    if not shell.state.resumed or shell.journal is None:
        return True
    at = shell.state.rounds
    same = at.round != errand.task.round or shell.journal.get(MODEL) == errand.task.model
    return at.phase != "finished" and at.round <= errand.task.round and same


def _note(shell: Coordinator, errand: Errand) -> None:
    if shell.journal:
        shell.journal.set(**{MODEL: errand.task.model})
