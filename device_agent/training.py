"""Training in the background: one thread, one task at a time, its result given back as a call."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Lock
from time import monotonic

from edgefl.algorithms.base import Task
from edgefl.errors import Diverged, EdgeflError, Interrupted, RemoteError
from edgefl.models.base import Interruptible, Model
from edgefl.privacy import Price
from edgefl.vector import State
from edgefl.work import Done, Place, Worker

log = logging.getLogger(__name__)

TELL_EVERY = 1.0  # seconds between two words about progress


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

    life: str
    price: Price


@dataclass(frozen=True, slots=True)
class Failed:
    """The work cannot be done here. `told` is the reason for others, without values of the device's data."""

    number: int  # which training it was
    round: int
    reason: str
    told: str
    mistake: bool  # somebody's configuration is wrong


@dataclass(frozen=True, slots=True)
class Progressed:
    """The work goes on."""

    number: int  # which training it was
    round: int
    steps: int


Outcome = Computed | Trained | Failed | Progressed


class Cancellation:
    """The wish that a task should end. It reaches the graph that is running, not only the next step."""

    def __init__(self) -> None:
        self._wanted, self._lock = Event(), Lock()
        self._model: Interruptible | None = None

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


class Trainer:
    """Runs tasks one at a time; `tell` is called from its thread and only enqueues."""

    def __init__(self, tell: Callable[[Outcome], None]) -> None:
        self._tell = tell
        self._pool = ThreadPoolExecutor(1, "training")
        self._cancel = Cancellation()
        self.number = 0  # of the training in hand: what is told of another one was already on its way

    def start(self, task: Task, place: Place, state: State, make: Callable[[], Worker]) -> None:
        """Begin; whatever ran before is cancelled first. `make` builds the worker, in the background too."""
        self.cancel()
        self._cancel = cancelled = Cancellation()
        self._pool.submit(self._run, self.number, task, place, state, make, cancelled)

    def cancel(self) -> None:
        """No result of the task in hand will be told; what it runs ends after the operator it is at."""
        self._cancel.set()
        self.number += 1

    def close(self) -> None:
        self.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(  # noqa: PLR0917 - all that the thread may know
        self, number: int, task: Task, place: Place, state: State, make: Callable[[], Worker], cancelled: Cancellation
    ) -> None:
        told = monotonic()

        def watch(steps: int) -> None:
            nonlocal told
            if cancelled.is_set():
                raise Cancelled
            if monotonic() - told >= TELL_EVERY:
                told = monotonic()
                self._tell(Progressed(number, task.round, steps))

        outcome: Outcome
        try:
            if cancelled.is_set():
                return
            worker = make()
            cancelled.covers(worker.model)
            outcome = Trained(number, task.round, self._work(worker, task, place, state, watch))
        except (Cancelled, Interrupted):
            return
        except (RemoteError, Diverged) as error:  # of this task alone: the next one may be better
            reason = error.told if isinstance(error, RemoteError) else str(error)
            log.warning("declined round=%d why=%s", task.round, reason)
            outcome = Failed(number, task.round, reason, error.told, mistake=False)
        except EdgeflError as error:
            outcome = Failed(number, task.round, str(error), error.told, mistake=True)
        except Exception as error:  # a model or data set of the user's may raise anything; say it, and go on serving
            log.exception("training failed round=%d", task.round)
            kind = type(error).__name__
            brief = f"its training ended with a {kind}, of which the device's own log says more"  # it may quote samples
            outcome = Failed(number, task.round, f"{kind}: {error}", brief, mistake=False)
        if not cancelled.is_set():
            self._tell(outcome)

    def _work(self, worker: Worker, task: Task, place: Place, state: State, watch: Callable[[int], None]) -> Done:
        """The work, and the word that it is done even if nobody wants it any more: what it cost stays spent."""
        done = worker.work(task, place, state, watch)
        if price := worker.price(task.round):
            self._tell(Computed(f"{worker.job}.{place.run}", price))
        return done
