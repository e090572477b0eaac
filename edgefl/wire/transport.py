"""The seam between the services and the network: what a transport can do, and what it tells.

A transport never decides anything: it moves messages at QoS 1 and tells what happened as events, from its own
thread. Its owner puts these on a queue. `ConnectionMade` comes after every connect, also the hundredth; the broker is
disposable and may have forgotten everything, so subscribe and announce again each time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

LARGEST = 1 << 20  # bytes of a packet: what we accept, and what we send to a broker that names no limit


@dataclass(frozen=True, slots=True)
class Message:
    """A message arrived; `retained` if the broker had kept it for us. A large payload is a view."""

    topic: str
    payload: bytes | memoryview
    retained: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionMade:
    """Connected, for the first time or again."""


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection was lost or could not be made; `taken_over` if another client came with our id."""

    reason: str
    taken_over: bool = False
    remedy: str = ""  # what an operator has to do about it, where that is known
    passing: bool = field(default=False, compare=False)  # whether it may go well later though nothing is corrected
    # Whether the broker may not accept our own certificate: it has ended by our clock, or was refused for some reason.
    certificate: Literal["", "ended", "refused"] = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.reason}: {self.remedy}" if self.remedy else self.reason


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A publish was refused for good: not authorised, too large."""

    topic: str
    reason: str


Payload: TypeAlias = bytes | memoryview | tuple[bytes | memoryview, ...]  # several parts are sent as one
TransportEvent: TypeAlias = Message | ConnectionMade | ConnectionLost | Undelivered
Deliver: TypeAlias = Callable[[TransportEvent], None]  # called from the network thread: only ever puts on a queue


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes for us, retained, when we vanish without saying goodbye."""

    topic: str
    payload: bytes


def joined(payload: Payload) -> bytes:
    """A payload in one piece."""
    return b"".join(payload) if isinstance(payload, tuple) else bytes(payload)


class Transport(Protocol):
    """One client of a broker."""

    sent: int  # payload bytes accepted so far; what QoS 1 sends again is not counted
    received: int

    def start(self, deliver: Deliver, will: Will | None = None) -> None:
        """Connect in the background; returns at once, `ConnectionMade` comes as an event."""
        ...

    def subscribe(self, *filters: str) -> None:
        """Ask for what matches; subscriptions do not outlive a connection, so ask again after each `ConnectionMade`."""
        ...

    def unsubscribe(self, *filters: str) -> None: ...

    def publish(self, topic: str, payload: Payload, *, retain: bool = False, expires: int | None = None) -> None:
        """Queue a message; never blocks, keeps the order, survives a reconnect. An empty retained one clears.

        The broker forgets a message that `expires`, retained or not, after these seconds.
        """
        ...

    def largest(self) -> int:
        """Bytes of the largest packet that the broker takes, and that our line brings there in a second."""
        ...

    def backlog(self) -> int:
        """How many messages were accepted here and are not yet acknowledged by the broker."""
        ...

    def spread(self, seconds: float) -> None:
        """From now on, come back after a lost connection at a random place of our own within these seconds."""
        ...

    def flush(self, timeout: float) -> bool:
        """Wait until the backlog is empty; False if it is not by then."""
        ...

    def close(self) -> None:
        """Disconnect cleanly: the will is not sent, what is still queued is dropped."""
        ...
