"""Training in the background: one task at a time, its result given back as an event.

A graph from outside that does not end within a second after its task was cancelled may be left behind: it holds its own
model and ends with the operator it is at, while the next task is trained in a new thread with a new model.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock
from typing import TypeAlias

from edgefl.contract import Task
from edgefl.errors import Diverged, EdgeflError, Interrupted, RemoteError
from edgefl.models.base import Interruptible, Model
from edgefl.privacy import Price
from edgefl.run.work import Done, ModelRef, Worker
from edgefl.system.background import Background, Put
from edgefl.system.clock import Clock
from edgefl.vector import State

log = logging.getLogger(__name__)

TELL_EVERY = 1.0  # seconds between two words about progress

Watch: TypeAlias = Callable[[int], None]
DoWork: TypeAlias = Callable[[Worker, Task, ModelRef, State, Watch], Done]  # `Worker.work`, or somebody who has it done


class Cancelled(Exception):  # noqa: N818 - it is not an error
    """The task was superseded."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The work is done."""

    number: int  # which training it was
    round: int
    done: Done


@dataclass(frozen=True, slots=True)
class Computed:
    """An update that costs privacy exists, whether or not it will be wanted; told before anything else about it."""

    run: str
    price: Price
    steps: int = 0  # that it took


@dataclass(frozen=True, slots=True)
class Failed:
    """The work cannot be done here. `told` is the reason for others, without values of the device's data."""

    number: int  # which training it was
    round: int
    reason: str
    told: str
    mistake: bool  # somebody's configuration is wrong
    steps: int = 0  # that were made before it was known


@dataclass(frozen=True, slots=True)
class Progressed:
    """The work goes on."""

    number: int  # which training it was
    round: int
    steps: int


Outcome: TypeAlias = Computed | Trained | Failed | Progressed


class Cancellation:
    """The wish that a task should end. It reaches the graph that is running, not only the next step."""

    def __init__(self) -> None:
        self._wanted, self._lock = Event(), Lock()
        self._model: Interruptible | None = None

    def reaches_a_graph(self) -> bool:
        """Whether what goes on is a graph's doing, which nothing but the graph needs any more."""
        return self._model is not None

    def is_set(self) -> bool:
        return self._wanted.is_set()

    def set(self) -> None:
        with self._lock:
            self._wanted.set()
            if self._model:
                self._model.interrupt()

    def covers(self, model: Model) -> None:
        """From now on the model works for this task, and for no other."""
        with self._lock:
            if self._wanted.is_set():
                raise Cancelled
            if isinstance(model, Interruptible):
                model.resume()  # a task before this one may have been cancelled
                self._model = model


@dataclass(frozen=True, slots=True)
class _Training:
    """All that the background may know."""

    number: int
    task: Task
    model_ref: ModelRef
    state: State
    make: Callable[[], Worker]
    cancelled: Cancellation


class Trainer:
    """Hands tasks to the background, one at a time; what they put is an Outcome."""

    def __init__(self, background: Background, clock: Clock, work: DoWork = Worker.work) -> None:
        self._background, self._clock, self._do_work = background, clock, work
        self._cancel = Cancellation()
        self.number = 0  # of the training in hand: what is told of another one was already on its way

    def start(self, task: Task, model_ref: ModelRef, state: State, make: Callable[[], Worker]) -> None:
        """Begin; whatever ran before is cancelled first. `make` builds the worker, in the background too."""
        self.cancel()
        self._cancel = cancelled = Cancellation()
        training = _Training(self.number, task, model_ref, state, make, cancelled)
        self._background.start(lambda put: self._run(training, put), cancelled.reaches_a_graph)

    def cancel(self) -> None:
        """No result of the task in hand will be told; what it runs ends after the operator it is at."""
        self._cancel.set()
        self._background.cancel()
        self.number += 1

    def _run(self, training: _Training, put: Put) -> None:
        if training.cancelled.is_set():
            return
        steps = _Steps(training, put, self._clock)
        outcome = self._outcome(training, put, steps)
        if outcome is not None and not training.cancelled.is_set():
            put(outcome)

    def _outcome(self, training: _Training, put: Put, steps: "_Steps") -> Outcome | None:
        number, task = training.number, training.task
        try:
            worker = training.make()
            training.cancelled.covers(worker.model)
            done = self._do_work(worker, task, training.model_ref, training.state, steps.watch)
            if price := worker.price(task.round):  # what it cost stays spent, even if nobody wants it any more
                put(Computed(f"{worker.job}.{training.model_ref.run_id}", price, done.steps))
            return Trained(number, task.round, done)
        except (Cancelled, Interrupted):
            return None
        except (RemoteError, Diverged) as error:  # of this task alone: the next one may be better
            reason = error.told if isinstance(error, RemoteError) else str(error)
            log.warning("declined round=%d why=%s", task.round, reason)
            return Failed(number, task.round, reason, error.told, mistake=False, steps=steps.count)
        except EdgeflError as error:
            return Failed(number, task.round, str(error), error.told, mistake=True, steps=steps.count)
        except Exception as error:  # a model or data set of the user's may raise anything; say it, and go on serving
            log.exception("training failed round=%d", task.round)
            kind = type(error).__name__
            brief = f"its training ended with a {kind}, of which the device's own log says more"  # it may quote samples
            return Failed(number, task.round, f"{kind}: {error}", brief, mistake=False, steps=steps.count)


class _Steps:
    """Watches one training: it ends when it is no longer wanted, and tells now and then how far it is."""

    def __init__(self, training: _Training, put: Put, clock: Clock) -> None:
        self._training, self._put, self._clock = training, put, clock
        self._told = clock.now()
        self.count = 0

    def watch(self, steps: int) -> None:
        self.count += 1
        if self._training.cancelled.is_set():
            raise Cancelled
        if (now := self._clock.now()) - self._told >= TELL_EVERY:
            self._told = now
            self._put(Progressed(self._training.number, self._training.task.round, steps))
