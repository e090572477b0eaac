"""A broker in memory, for tests and single-process runs: what MQTT promises, and no more.

It keeps retained messages, sends wills and lets a second client take over a session.

* Without `order` a message is delivered on the thread that publishes it, before `publish` returns. If a delivery is
  already going on, that one delivers it afterwards; so a callback may publish without recursion.
* With `order` messages wait for `pump`, and `order(n)` picks which of n waiting streams goes next. A stream is one
  sender's messages to one receiver on one topic; these stay in order.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from edgefl.wire.transport import (
    LARGEST,
    ConnectionLost,
    ConnectionMade,
    Deliver,
    Message,
    Payload,
    TransportEvent,
    Will,
    joined,
)


def matches(filter: str, topic: str) -> bool:
    """Whether a topic falls under a filter with `+` and `#`."""
    pattern, levels = filter.split("/"), topic.split("/")
    if pattern[-1] == "#":
        pattern.pop()
        levels = levels[: len(pattern)]  # `a/#` takes in `a` itself
    return len(pattern) == len(levels) and all(w in ("+", level) for w, level in zip(pattern, levels, strict=True))


@dataclass(frozen=True, slots=True)
class _Retained:
    """A retained message, and whose it was: what comes later from the same sender must stay behind it."""

    sender: str
    payload: bytes
    until: float = inf  # on the broker's clock


class InMemoryClient:
    """A transport of a `InMemoryBroker`."""

    def __init__(self, broker: "InMemoryBroker", client_id: str) -> None:
        self.sent = 0
        self.received = 0
        self.id = client_id
        self.filters: dict[str, None] = {}
        self.deliver: Deliver | None = None
        self.will: Will | None = None
        self.online = False
        self.line = inf  # bytes per second to the broker, as far as its owner asks
        self.session = 0  # counts connections: what was on its way in an older one is lost
        self.outbox: list[tuple[str, bytes, bool, float]] = []  # what was published while there was no connection
        self._broker = broker

    def start(self, deliver: Deliver, will: Will | None = None) -> None:
        self.deliver, self.will = deliver, will
        self._broker.connect(self)

    def subscribe(self, *filters: str) -> None:
        self._broker.subscribe(self, filters)

    def unsubscribe(self, *filters: str) -> None:
        self._broker.unsubscribe(self, filters)

    def publish(self, topic: str, payload: Payload, *, retain: bool = False, expires: int | None = None) -> None:
        if not topic or "+" in topic or "#" in topic:
            raise ValueError(f"cannot publish to topic {topic!r}")
        self._broker.publish(self, topic, joined(payload), retain, inf if expires is None else expires)

    def largest(self) -> int:
        return int(min(LARGEST, self.line))

    def backlog(self) -> int:
        return len(self.outbox)

    def spread(self, seconds: float) -> None:
        """Connections come back when a test says so."""

    def flush(self, timeout: float) -> bool:  # noqa: ARG002  the broker takes everything at once, or is not there
        return not self.outbox

    def close(self) -> None:
        self._broker.disconnect(self)


@dataclass
class InMemoryBroker:
    """One broker, and the faults a test may ask of it: `kill`, `cut`, `restore`, `restart`."""

    order: Callable[[int], int] | None = None
    clock: Callable[[], float] = monotonic
    retained: dict[str, _Retained] = field(default_factory=dict)
    _clients: dict[str, InMemoryClient] = field(default_factory=dict)
    _news: deque[tuple[InMemoryClient, TransportEvent]] = field(default_factory=deque)
    _streams: dict[tuple[str, ...], deque[tuple[InMemoryClient, int, Message]]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _pumping: bool = False

    def client(self, client_id: str) -> InMemoryClient:
        """A new transport; when it starts, an older one with the same id loses its session."""
        return InMemoryClient(self, client_id)

    # What a test may do to the network.

    def kill(self, client_id: str) -> None:
        """The client's process dies: it hears nothing more, and its will is published."""
        with self._lock:
            client = self._clients.pop(client_id)
            client.deliver = None
            self._drop(client)
        self._settle()

    def cut(self, client_id: str) -> None:
        """The client's connection breaks: it is told, its will is published, its subscriptions are forgotten."""
        with self._lock:
            client = self._clients[client_id]
            self._drop(client)
            self._news.append((client, ConnectionLost("connection lost")))
        self._settle()

    def restore(self, client_id: str) -> None:
        """The client's connection is back, and what it published meanwhile arrives."""
        with self._lock:
            client = self._clients[client_id]
            self._join(client)
        self._settle()

    def restart(self) -> None:
        """The broker starts anew and has forgotten everything, wills included."""
        with self._lock:
            self.retained.clear()
            self._streams.clear()
            clients = list(self._clients.values())
            for client in clients:
                client.online = False
                client.session += 1
                client.filters.clear()
                self._news.append((client, ConnectionLost("connection lost")))
            for client in clients:
                self._join(client)
        self._settle()

    def pump(self) -> int:
        """Deliver until nothing waits; gives back how many events were delivered."""
        return self._deliver(messages=True)

    # What a client may do.

    def connect(self, client: InMemoryClient) -> None:
        with self._lock:
            older = self._clients.get(client.id)
            if older is not None:
                self._drop(older)
                self._news.append((older, ConnectionLost("Session taken over", taken_over=True)))
            self._clients[client.id] = client
            self._join(client)
        self._settle()

    def disconnect(self, client: InMemoryClient) -> None:
        with self._lock:
            if self._clients.get(client.id) is client:
                del self._clients[client.id]
            client.will = None
            self._drop(client)
            client.deliver = None

    def subscribe(self, client: InMemoryClient, filters: tuple[str, ...]) -> None:
        with self._lock:
            if not client.online:
                return
            for filter in filters:
                client.filters[filter] = None
                self._expire()
                for topic, kept in self.retained.items():
                    if matches(filter, topic):
                        self._queue(client, kept.sender, Message(topic, kept.payload, retained=True))
        self._settle()

    def unsubscribe(self, client: InMemoryClient, filters: tuple[str, ...]) -> None:
        with self._lock:
            for filter in filters:
                client.filters.pop(filter, None)

    def publish(self, client: InMemoryClient, topic: str, payload: bytes, retain: bool, expires: float = inf) -> None:
        with self._lock:
            client.sent += len(payload)
            if client.online:
                self._route(client.id, topic, payload, retain, expires)
            else:
                client.outbox.append((topic, payload, retain, expires))
        self._settle()

    def _settle(self) -> None:
        self._deliver(messages=self.order is None)

    def _deliver(self, *, messages: bool) -> int:
        with self._lock:
            if self._pumping:  # the thread that delivers will carry on with what is new
                return 0
            self._pumping = True
        delivered = 0
        try:
            while (next := self._next(messages)) is not None:
                client, event = next
                if client.deliver is not None:
                    client.deliver(event)
                    delivered += 1
        except BaseException:
            self._pumping = False
            raise
        return delivered

    # Under the lock.

    def _join(self, client: InMemoryClient) -> None:
        client.online = True
        client.session += 1
        self._news.append((client, ConnectionMade()))
        for topic, payload, retain, expires in client.outbox:
            self._route(client.id, topic, payload, retain, expires)
        client.outbox.clear()

    def _drop(self, client: InMemoryClient) -> None:
        if client.online:
            client.online = False
            client.session += 1
            client.filters.clear()
            if client.will is not None:
                self._route(client.id, client.will.topic, client.will.payload, retain=True)

    def _expire(self) -> None:
        now = self.clock()
        for topic in [topic for topic, kept in self.retained.items() if kept.until <= now]:
            del self.retained[topic]

    def _route(self, sender: str, topic: str, payload: bytes, retain: bool, expires: float = inf) -> None:
        if retain:
            self.retained.pop(topic, None)
            if payload:
                self.retained[topic] = _Retained(sender, payload, self.clock() + expires)
        for client in self._clients.values():
            if any(matches(filter, topic) for filter in client.filters):
                self._queue(client, sender, Message(topic, payload))

    def _queue(self, client: InMemoryClient, sender: str, message: Message) -> None:
        stream = () if self.order is None else (client.id, sender, message.topic)
        self._streams.setdefault(stream, deque()).append((client, client.session, message))

    def _next(self, messages: bool) -> tuple[InMemoryClient, TransportEvent] | None:
        with self._lock:
            if self._news:  # connections come and go before anything else is said
                return self._news.popleft()
            while messages and self._streams:
                names = list(self._streams)
                name = names[0 if self.order is None else self.order(len(names))]
                client, session, message = self._streams[name].popleft()
                if not self._streams[name]:
                    del self._streams[name]
                if client.session == session:
                    client.received += len(message.payload)
                    return client, message
            self._pumping = False  # inside the lock: a thread that queues after this delivers for itself
            return None
