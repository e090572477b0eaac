"""What is asked of the trainer of a device, in its own process or in a box."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias

from device_agent.decide.vocabulary import Tasked
from edgefl.base.vector import State
from edgefl.job.run.work import ModelRef, WorkResult
from edgefl.learn.models.base import Interruptible, interruptible
from edgefl.wire.messages import Manifest

Watch: TypeAlias = Callable[[int], None]


class Cancelled(Exception):  # noqa: N818 - it is not an error
    """The task was superseded."""


@dataclass(frozen=True, slots=True)
class Item:
    """A model, or its graphs, that has come whole."""

    manifest: Manifest
    frame: bytes | bytearray
    signed: bytes = b""  # the manifest as it came, to be passed on


@dataclass(frozen=True, slots=True)
class TrainingOrder:
    """A task and all that it takes, as it came: nothing of it is opened yet."""

    task: Tasked
    item: Item  # its model
    previous: bytes | bytearray | None  # the frame of the model before it, for algorithms that look back
    graphs: bytes | bytearray | None
    state: State  # what the algorithm kept
    most: int  # bytes that a model may have when it is opened
    fewest: int = 0  # samples that its privacy was booked for: fewer would cost more
    hidden: bool = False  # the device has an allowance: it hides how the work went
    keeps: bool = False  # the device's own model is wanted too, to be kept here

    @property
    def model_ref(self) -> ModelRef:
        return ModelRef(self.task.run_id, self.task.model)


class Cancellation:
    """The wish that a task should end. It reaches what is running, not only the next step."""

    def __init__(self) -> None:
        self._wanted, self._lock = False, Lock()
        self._running: Interruptible | None = None

    def is_set(self) -> bool:
        return self._wanted

    def set(self) -> None:
        with self._lock:
            self._wanted = True
            if self._running:
                self._running.interrupt()

    def covers(self, running: object) -> None:
        """From now on this works for the task, and for no other."""
        with self._lock:
            if self._wanted:
                raise Cancelled
            if interruptible(running):
                running.resume()  # a task before this one may have been cancelled
                self._running = running

    def over(self) -> None:
        """Nothing works for the task any more: its worker may be at another task by now."""
        with self._lock:
            self._running = None


Train: TypeAlias = Callable[[TrainingOrder, Watch, Cancellation], WorkResult]
