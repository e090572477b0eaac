"""A broker in virtual time that fails on purpose: a test may restart it, and decide over each message with `Faults`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from edgefl.base.errors import EdgeflError
from edgefl.sim.network import VirtualBroker, VirtualClient, _Connection, _Item
from edgefl.sim.world import World
from edgefl.wire.topic_tree import TopicTree
from edgefl.wire.transport import LARGEST, Message


@dataclass(frozen=True, slots=True)
class Passing:
    """A message at the beginning of its way to the broker (`up`), or from there to one client (`down`)."""

    way: Literal["up", "down"]
    client: str  # at the other end of the line
    sender: str
    topic: str
    payload: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a message.

    `delay`: on its way up it holds up all that is behind it; on its way down it waits at the broker, and only its own
    stream (sender, topic, receiver) waits with it: others overtake. `breaks`: the connection breaks, before it is
    across or right after, before it is acknowledged. `copies` other than one are more than MQTT ever does: with
    none the broker has said that it has the message, and loses it; of a last will that is all that can happen to it.
    """

    delay: float = 0.0
    breaks: Literal["", "before", "after"] = ""
    copies: int = 1


ACROSS = Fate()
Faults: TypeAlias = Callable[[Passing], Fate]


class FaultyClient(VirtualClient):
    """A transport whose messages to the broker have a fate."""

    _broker: "FaultyBroker"

    def _pass_on(self, connection: _Connection, item: _Item) -> None:
        broker = self._broker
        fate = broker.fate(Passing("up", self.id, self.id, item.topic, item.payload))
        connection.up_free = max(connection.up_free, self._world.now) + fate.delay
        arrives = self._arrival(connection, item)
        arrived = broker.arrived_unacknowledged if fate.breaks else broker.arrived
        for _ in range(fate.copies if fate.breaks != "before" else 0):
            self._world.at(arrives, partial(arrived, connection, item))
        if not fate.copies:
            self._world.at(arrives, partial(broker.acknowledge, connection, item))
        if fate.breaks:
            self._world.at(arrives, partial(broker.cut_connection, connection))


class FaultyBroker(VirtualBroker):
    """A broker that may be restarted; `faults` decides over each message.

    `brutal` allows what no broker does over a good connection.
    """

    transport = FaultyClient

    def __init__(
        self, world: World, faults: Faults | None = None, *, brutal: bool = False, largest: int = LARGEST
    ) -> None:
        super().__init__(world, largest=largest)
        self.faults, self.brutal = faults, brutal
        self.up = True
        self._streams: dict[tuple[int, str, str], float] = {}  # those that a fault holds back, and until when

    def stop(self) -> None:
        """The broker is gone with all it knew, wills included; clients come back when it does."""
        self.up = False
        self.retained.clear()
        self._topics, self._filters = TopicTree(), TopicTree()
        sessions, self._sessions = self._sessions, {}
        for connection in sessions.values():
            connection.alive = False
            connection.client.unheard()
            self._notices(connection)

    def begin(self) -> None:
        """It is there again, and knows nothing."""
        self.up = True

    def connection(self, client_id: str) -> int | None:
        """The number of a client's connection, if it has one that both sides know of."""
        connection = self._sessions.get(client_id)
        well = connection is not None and connection.alive and connection.client.connection is connection
        return connection.number if connection is not None and well else None

    def unreachable(self, client: VirtualClient) -> str:
        return super().unreachable(client) or ("" if self.up else "connection refused")

    def fate(self, passing: Passing) -> Fate:
        """Return what becomes of this message."""
        if self.faults is None:
            return ACROSS
        fate = self.faults(passing)
        if fate.copies != 1 and not self.brutal:
            raise EdgeflError("a message at QoS 1 is lost or doubled with its connection only: break it, or be brutal")
        return fate

    def arrived_unacknowledged(self, connection: _Connection, item: _Item) -> None:
        """A publish is at the broker, which does not get to say so."""
        if connection.alive:
            self._route(connection.client.id, item)

    def _send_will(self, connection: _Connection) -> None:
        client = connection.client
        if (will := client.will) and self.fate(Passing("up", client.id, client.id, will.topic, will.payload)).copies:
            super()._send_will(connection)

    def _down(self, connection: _Connection, sender: str, message: Message) -> None:
        if self.faults is None:
            super()._down(connection, sender, message)
            return
        fate = self.fate(Passing("down", connection.client.id, sender, message.topic, message.payload))
        stream = connection.number, sender, message.topic
        leaves = max(self.world.now + fate.delay, self._streams.get(stream, 0.0))
        if leaves > self.world.now:
            self._streams[stream] = leaves
        for _ in range(fate.copies if fate.breaks != "before" else 0):
            self.world.at(leaves, partial(super()._down, connection, sender, message))
        if fate.breaks:
            self.world.at(leaves, partial(self._break_behind, connection))

    def _break_behind(self, connection: _Connection) -> None:
        """Break the connection when all that it was given has come across."""
        self.world.at(connection.down_free + connection.client.line.latency, partial(self.cut_connection, connection))
