"""The loop around a shell. It stands outside, so that a scheduler can drive a whole fleet in one thread."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from edgefl.system.clock import Clock

LONGEST = 5.0  # seconds without a look at the clock, however much comes in


class DeadlineReached:
    """The moment that a shell named as its deadline has come, or passed."""


class Reactor(Protocol):
    """A shell: it does what follows from one event, and says until when it can wait for the next."""

    def start(self) -> None:
        """Connect; events come from now on."""
        ...

    def handle(self, event: Any) -> None:
        """What follows from this event, at once: nothing waits here."""
        ...

    def deadline(self) -> float | None:
        """When it wants to be woken, on its clock, if nothing happens before."""
        ...

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do."""
        ...


def serve(shell: Reactor, events: "SimpleQueue[Any]", clock: Clock, beat: Callable[[], None] = lambda: None) -> None:
    """Hand events to the shell until it has ended; `beat` is called each time that it was looked after."""
    shell.start()
    while not shell.ended:
        beat()
        deadline = shell.deadline()
        patience = LONGEST if deadline is None else min(LONGEST, max(0.0, deadline - clock.now()))
        try:
            event = events.get(timeout=patience)
        except Empty:
            event = None
        if event is not None:
            shell.handle(event)
        if not shell.ended and deadline is not None and clock.now() >= deadline:
            shell.handle(DeadlineReached())  # also while others speak: who floods us must not stop the clock
