"""Messages that Mosquitto had no room for, as it tells under $SYS: what has changed, every ten seconds."""

from queue import Empty, SimpleQueue
from time import monotonic

from edgefl.wire.address import Address
from edgefl.wire.opening import open_transport
from edgefl.wire.transport import Message, TransportEvent

DROPPED, UPTIME = "$SYS/broker/publish/messages/dropped", "$SYS/broker/uptime"
PATIENCE = 15.0  # seconds until it must have told how long it is up
SAME = 1.0  # seconds in which it tells everything else that has changed


class Losses:
    """Listens from the broker's first minute on: a count that does not change is not repeated, and soon forgotten."""

    def __init__(self, address: Address) -> None:
        self._told: SimpleQueue[TransportEvent] = SimpleQueue()
        self._transport = open_transport(address, "bench-losses", suffix=False)
        self._transport.start(self._told.put)
        self._transport.subscribe(DROPPED, UPTIME)

    def count(self) -> int | None:
        """How many there were until now; None, if the broker does not tell."""
        old, until, dropped = self._told.qsize(), monotonic() + PATIENCE, None
        while monotonic() < until:
            try:
                event = self._told.get(timeout=1.0)
            except Empty:
                continue
            old -= 1
            if isinstance(event, Message) and event.topic == DROPPED:
                dropped = int(bytes(event.payload))
            elif isinstance(event, Message) and old < 0:
                until = min(until, monotonic() + SAME)
        return dropped

    def close(self) -> None:
        """Stop listening."""
        self._transport.close()
