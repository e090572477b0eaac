"""A broker in virtual time, and the lines that lead to it: what MQTT promises over TCP, and no more.

    client ── up: latency + bytes ──▶ broker ── down: latency + bytes ──▶ client

* A line carries one thing after another in each direction and keeps their order; between lines there is none.
* A publish waits in the client's outbox until the broker has acknowledged it. When a connection breaks, what was not
  acknowledged is sent again over the next one: so a message may come twice, and is never lost on its way up.
* Sessions are clean: what was on its way down, and all subscriptions, are gone with the connection.
* A client that was cut off comes back by itself, at the pace of `edgefl.wire.reconnect`.
* A connection may be dead without a sign of it (`silent`): the broker then sends the will after a while.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf

from edgefl.sim.world import Process, World
from edgefl.system.hardware.line import Line
from edgefl.wire.reconnect import Reconnect
from edgefl.wire.topic_tree import TopicTree
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

UNNOTICED = 9.0  # seconds until a client sees that its connection is dead: one and a half keep-alives
SILENCE = 17.0  # seconds until the broker does


@dataclass(slots=True)
class _Item:
    """A publish, and when its sender hears that it is at the broker."""

    topic: str
    payload: bytes
    retain: bool
    expires: float
    acknowledged: float = inf


@dataclass(frozen=True, slots=True)
class _RetainedMessage:
    """A retained message: when it came, and whose it was, because what its sender says next must stay behind it."""

    number: int
    sender: str
    topic: str
    payload: bytes
    until: float


class _Connection:
    """One connection of a client: alive while bytes get across."""

    __slots__ = ("alive", "client", "down_free", "filters", "number", "since", "up_free")

    def __init__(self, client: "VirtualClient", number: int, now: float) -> None:
        self.client, self.number, self.since, self.alive = client, number, now, True
        self.up_free = self.down_free = now  # when the line has carried all that was given to it
        self.filters: dict[str, None] = {}


class VirtualClient:
    """A transport of a `VirtualBroker`."""

    def __init__(self, broker: "VirtualBroker", client_id: str, line: Line) -> None:
        self.sent = self.received = 0
        self.id, self.line = client_id, line
        self.will: Will | None = None
        self.connection: _Connection | None = None  # as far as this side knows
        self._accepted: _Connection | None = None  # by the broker, who may not have been heard yet
        self.blocked = 0.0  # until when nothing gets across its line
        self._broker, self._world = broker, broker.world
        self._deliver: Deliver | None = None
        self._outbox: deque[_Item] = deque()
        self._flying: deque[_Item] = deque()
        self._pace = Reconnect(client_id)
        self._failure = ""  # the last one told: the same is not told again and again
        self._lingers = 0.0

    # ---- what its owner may do: see `edgefl.wire.transport` ------------------------------------------------

    def start(self, deliver: Deliver, will: Will | None = None) -> None:
        self._deliver, self.will = deliver, will
        self._world.later(self.line.latency, self._connect)

    def subscribe(self, *filters: str) -> None:
        self._wish(self._broker.subscribe, filters)

    def unsubscribe(self, *filters: str) -> None:
        self._wish(self._broker.unsubscribe, filters)

    def publish(self, topic: str, payload: Payload, *, retain: bool = False, expires: int | None = None) -> None:
        if not topic or "+" in topic or "#" in topic:
            raise ValueError(f"cannot publish to topic {topic!r}")
        data = joined(payload)
        self.sent += len(data)
        self._outbox.append(_Item(topic, data, retain, inf if expires is None else expires))
        self._send()

    def largest(self) -> int:
        return int(min(self._broker.largest, self.line.up))

    def backlog(self) -> int:
        self._settle()
        return len(self._outbox) + len(self._flying)

    def spread(self, seconds: float) -> None:
        self._pace.spread = seconds

    def flush(self, timeout: float) -> bool:
        """Return at once: what is on its way may still arrive within that time, though the client is closed."""
        self._lingers = self._world.now + timeout
        return self.backlog() == 0

    def close(self) -> None:
        connection = self._leave()
        self._outbox.clear()
        self._flying.clear()
        if connection is None:
            return
        arrives = connection.up_free + self.line.latency
        if arrives <= self._lingers:
            self._world.at(arrives, partial(self._broker.goodbye, connection))
        else:
            self._broker.goodbye(connection)

    # ---- what happens to it ------------------------------------------------------------------------------------

    def vanish(self, silent: bool) -> None:
        """End its process; or its machine, `silent`: then nothing tells the broker."""
        connection = self._leave()
        if connection is not None:
            self._broker.broken(connection, notices=SILENCE if silent else 0.0)

    def _leave(self) -> _Connection | None:
        left, self._accepted, self.connection, self._deliver = self._accepted, None, None, None
        return left

    def broken(self, reason: str = "connection lost", *, taken_over: bool = False) -> None:
        """The connection is no more, which this side notices now; it will try again."""
        if self.connection is None:
            return
        lasted = self._world.now - self.connection.since
        self.connection = self._accepted = None
        self._settle()
        self._outbox.extendleft(reversed(self._flying))
        self._flying.clear()
        self._tell(ConnectionLost(reason, taken_over=taken_over))
        self._world.later(self._pace.lost(lasted) + self.line.latency, self._connect)

    def unheard(self) -> None:
        """Nothing gets across from now on, whether this side knows it or not: no acknowledgement either."""
        for item in self._flying:
            if item.acknowledged > self._world.now:
                item.acknowledged = inf

    def _connect(self) -> None:
        """A CONNECT arrives at the broker, or would."""
        if self._deliver is None or self.connection is not None:
            return
        if failure := self._broker.unreachable(self):
            if failure != self._failure:
                self._failure = failure
                self._tell(ConnectionLost(failure))
            self._world.later(self._pace.failed() + self.line.latency, self._connect)
            return
        self._accepted = connection = self._broker.accept(self)
        self._world.later(self.line.latency, partial(self._connected, connection))

    def _connected(self, connection: _Connection) -> None:
        if self._deliver is None or self._accepted is not connection:
            return
        self.connection, self._failure = connection, ""
        connection.up_free = self._world.now
        if not connection.alive:  # it broke before we knew of it
            self.broken()
            return
        self._tell(ConnectionMade())
        self._send()

    def _wish(self, ask: Callable[[_Connection, tuple[str, ...]], None], filters: tuple[str, ...]) -> None:
        if self.connection is not None:
            arrives = max(self.connection.up_free, self._world.now) + self.line.latency
            self._world.at(arrives, partial(ask, self.connection, filters))

    def _settle(self) -> None:
        """Forget what is acknowledged."""
        while self._flying and self._flying[0].acknowledged <= self._world.now:
            self._flying.popleft()

    def _send(self) -> None:
        self._settle()
        connection = self.connection
        while connection is not None and self._outbox:
            item = self._outbox.popleft()
            self._pass_on(connection, item)
            self._flying.append(item)

    def _pass_on(self, connection: _Connection, item: _Item) -> None:
        """Give a publish to the line that leads to the broker."""
        self._world.at(self._arrival(connection, item), partial(self._broker.arrived, connection, item))

    def _arrival(self, connection: _Connection, item: _Item) -> float:
        """Return when a publish that is given to the line now is at the broker."""
        connection.up_free = max(connection.up_free, self._world.now) + len(item.payload) / self.line.up
        return connection.up_free + self.line.latency

    def _tell(self, event: TransportEvent) -> None:
        if self._deliver is not None:
            self._deliver(event)

    def hear(self, connection: _Connection, message: Message) -> None:
        """A message has come down the line."""
        if connection.alive and self.connection is connection:
            self.received += len(message.payload)
            self._tell(message)


class VirtualBroker:
    """One broker, which takes packets up to `largest` bytes."""

    transport: type[VirtualClient] = VirtualClient

    def __init__(self, world: World, *, largest: int = LARGEST) -> None:
        self.world, self.largest = world, largest
        self.retained: dict[str, _RetainedMessage] = {}
        self._topics: TopicTree[str] = TopicTree()  # of what is retained
        self._filters: TopicTree[_Connection] = TopicTree()
        self._clients: dict[str, VirtualClient] = {}  # by their ids, the newest of each
        self._sessions: dict[str, _Connection] = {}  # by the client's id, as far as this side knows
        self._numbers = count()

    def client(self, client_id: str, line: Line = Line(), process: Process | None = None) -> VirtualClient:  # noqa: B008 - frozen
        """A new transport; it dies with its process."""
        client = self._clients[client_id] = self.transport(self, client_id, line)
        if process is not None:
            process.at_death.append(client.vanish)
        return client

    def cut(self, client_id: str, *, seconds: float = 0.0, silent: bool = False) -> None:
        """A client's connection breaks, and none can be made for these seconds; `silent`: neither side is told."""
        self._clients[client_id].blocked = self.world.now + seconds
        if (connection := self._sessions.get(client_id)) is not None:
            self.cut_connection(connection, silent=silent)

    # ---- connections -------------------------------------------------------------------------------------------

    def unreachable(self, client: VirtualClient) -> str:
        """Why this client cannot connect, if it cannot."""
        return "no route to host" if self.world.now < client.blocked else ""

    def accept(self, client: VirtualClient) -> _Connection:
        older = self._sessions.pop(client.id, None)
        if older is not None:
            older.alive = False
            self._forget(older)
            if older.client is not client:
                self._notices(older, "Session taken over", taken_over=True)
            self._send_will(older)
        connection = self._sessions[client.id] = _Connection(client, next(self._numbers), self.world.now)
        return connection

    def goodbye(self, connection: _Connection) -> None:
        """The client has said goodbye: no will. Over a dead connection that is not heard."""
        if connection.alive:
            connection.alive = False
            self._forget(connection)

    def cut_connection(self, connection: _Connection, *, silent: bool = False) -> None:
        if connection.alive:
            self.broken(connection, notices=SILENCE if silent else 0.0)
            if silent:
                self.world.later(UNNOTICED, partial(self._notices, connection))
            else:
                self._notices(connection)

    def broken(self, connection: _Connection, notices: float) -> None:
        """Nothing gets across any more, which the broker sees after these seconds."""
        connection.alive = False
        connection.client.unheard()
        if notices:
            self.world.later(notices, partial(self._gone, connection))
        else:
            self._gone(connection)

    def _gone(self, connection: _Connection) -> None:
        if self._sessions.get(connection.client.id) is connection:
            self._forget(connection)
            self._send_will(connection)

    def _forget(self, connection: _Connection) -> None:
        if self._sessions.get(connection.client.id) is connection:
            del self._sessions[connection.client.id]
        for filter in connection.filters:
            self._filters.remove(filter, connection)
        connection.filters.clear()

    def _send_will(self, connection: _Connection) -> None:
        client = connection.client
        if will := client.will:
            self._route(client.id, _Item(will.topic, will.payload, retain=True, expires=inf))

    def _notices(self, connection: _Connection, reason: str = "connection lost", *, taken_over: bool = False) -> None:
        if connection.client.connection is connection:
            connection.client.broken(reason, taken_over=taken_over)

    # ---- messages ----------------------------------------------------------------------------------------------

    def subscribe(self, connection: _Connection, filters: tuple[str, ...]) -> None:
        if not connection.alive:
            return
        for filter in filters:
            connection.filters[filter] = None
            self._filters.add(filter, connection)
            kept = (self.retained[topic] for topic in self._topics.under(filter))
            for one in sorted(kept, key=lambda one: one.number):
                if one.until > self.world.now:
                    self._down(connection, one.sender, Message(one.topic, one.payload, retained=True))

    def unsubscribe(self, connection: _Connection, filters: tuple[str, ...]) -> None:
        for filter in filters:
            if connection.filters.pop(filter, False) is None:
                self._filters.remove(filter, connection)

    def arrived(self, connection: _Connection, item: _Item) -> None:
        """A publish is at the broker, unless its connection broke under way."""
        if connection.alive:
            self.acknowledge(connection, item)
            self._route(connection.client.id, item)

    def acknowledge(self, connection: _Connection, item: _Item) -> None:
        """Say that it is here."""
        if connection.alive:
            item.acknowledged = self.world.now + connection.client.line.latency

    def _route(self, sender: str, item: _Item) -> None:
        if item.retain:
            if self.retained.pop(item.topic, None) is not None:
                self._topics.remove(item.topic, item.topic)
            if item.payload:
                until = self.world.now + item.expires
                self.retained[item.topic] = _RetainedMessage(
                    next(self._numbers), sender, item.topic, item.payload, until
                )
                self._topics.add(item.topic, item.topic)
        message = Message(item.topic, item.payload)
        subscribers = set(self._filters.matching(item.topic))  # once, however many of its filters fit
        for connection in sorted(subscribers, key=lambda one: one.number) if len(subscribers) > 1 else subscribers:
            self._down(connection, sender, message)

    def _down(self, connection: _Connection, sender: str, message: Message) -> None:  # noqa: ARG002 - for faults
        """Give a message to the line that leads to a client."""
        line = connection.client.line
        begins = max(connection.down_free, self.world.now)
        connection.down_free = begins + len(message.payload) / line.down
        self.world.at(connection.down_free + line.latency, partial(connection.client.hear, connection, message))
