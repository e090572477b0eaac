"""Training in the background: one task at a time, its result given back as an event."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from device_agent.decide.failure_reason import TrainingError, judged
from device_agent.shell.order import Cancellation, Cancelled, Train, TrainingOrder, Watch
from edgefl.base.errors import Interrupted
from edgefl.job.run.work import WorkResult
from edgefl.system.background import Background, Put
from edgefl.system.clock import Clock

log = logging.getLogger(__name__)

TELL_EVERY = 1.0  # seconds between two words about progress

Seal: TypeAlias = Callable[[bytes | bytearray], bytes | bytearray]  # the frame of an answer, for its coordinator alone


@dataclass(frozen=True, slots=True)
class WorkDone:
    """The work is done."""

    number: int  # which training it was
    round: int
    done: WorkResult


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """The work cannot be done here. `told` is the reason for others, without values of the device's data."""

    number: int  # which training it was
    round: int
    reason: str
    told: str
    mistake: bool  # a configuration is wrong
    steps: int = 0  # that were made before it was known


@dataclass(frozen=True, slots=True)
class WorkProgressed:
    """The work goes on."""

    number: int  # which training it was
    round: int
    steps: int


Outcome: TypeAlias = WorkDone | WorkFailed | WorkProgressed


class Training(Protocol):
    """Who has tasks done for a device, one at a time; the Outcome comes as an event."""

    number: int  # of the training in hand: what is told of another one was already on its way

    def start(self, order: TrainingOrder, train: Train, seal: Seal | None = None) -> None: ...

    def cancel(self) -> None: ...


class Trainer:
    """Hands tasks to the background, one at a time; what they put is an Outcome."""

    def __init__(self, background: Background, clock: Clock) -> None:
        self._background, self._clock = background, clock
        self._cancel = Cancellation()
        self.number = 0  # of the training in hand: what is told of another one was already on its way

    def start(self, order: TrainingOrder, train: Train, seal: Seal | None = None) -> None:
        """Begin; whatever ran before is cancelled first. `train` does all of it, in the background."""
        self.cancel()
        self._cancel = cancelled = Cancellation()
        steps = _Steps(self.number, order, cancelled, self._clock)
        self._background.start(lambda put: _run(order, _sealing(train, seal), cancelled, steps, put))

    def cancel(self) -> None:
        """No result of the task in hand will be told; what runs for it is interrupted."""
        self._cancel.set()
        self._background.cancel()
        self.number += 1


def _sealing(train: Train, seal: Seal | None) -> Train:
    """Return the same training, whose answer is sealed before it leaves."""
    if seal is None:
        return train

    def sealing(order: TrainingOrder, watch: Watch, cancelled: Cancellation) -> WorkResult:
        done = train(order, watch, cancelled)
        return replace(done, frame=seal(done.frame))

    return sealing


def _run(order: TrainingOrder, train: Train, cancelled: Cancellation, steps: "_Steps", put: Put) -> None:
    if cancelled.is_set():
        return
    steps.begin(put)
    try:
        outcome = _outcome(order, train, cancelled, steps)
    finally:
        cancelled.over()
    if outcome is not None and not cancelled.is_set():
        put(outcome)


def _outcome(order: TrainingOrder, train: Train, cancelled: Cancellation, steps: "_Steps") -> Outcome | None:
    number, round = steps.number, order.task.round
    try:
        done = train(order, steps.watch, cancelled)
    except (Cancelled, Interrupted):
        return None
    except Exception as error:  # noqa: BLE001 - whatever it is: say it, and go on serving
        verdict = error.verdict if isinstance(error, TrainingError) else judged(error)
        if not verdict.mistake:
            log.warning("declined round=%d why=%s", round, verdict.logged)
        for line in verdict.trace.splitlines():
            log.warning("  %s", line)
        return WorkFailed(number, round, verdict.reason, verdict.told, verdict.mistake, steps.count)
    return WorkDone(number, round, done)


class _Steps:
    """Watches one training: it ends when it is no longer wanted, and tells now and then how far it is."""

    def __init__(self, number: int, order: TrainingOrder, cancelled: Cancellation, clock: Clock) -> None:
        self.number, self.count = number, 0
        self._round, self._cancelled, self._clock = order.task.round, cancelled, clock

    def begin(self, put: Put) -> None:
        self._put, self._told = put, self._clock.now()

    def watch(self, steps: int) -> None:
        self.count += 1
        if self._cancelled.is_set():
            raise Cancelled
        if (now := self._clock.now()) - self._told >= TELL_EVERY:
            self._told = now
            self._put(WorkProgressed(self.number, self._round, steps))
