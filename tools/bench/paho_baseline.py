"""The reference for the transport: the same bytes in the same chunks by bare paho clients, and nothing else.

A server publishes a model to all clients, each takes it in and sends as many bytes back; when all have come the
next round begins. No hashes, no receipts, no repair. `python -m tools.bench.paho_baseline URL NAME` is a
client, with `LINE CLIENTS` behind it a server that plays what it is told on its line (`peers/side.py`).
"""

import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from edgefl.base.errors import RunError
from edgefl.ops.bench.line import serve as serve_orders
from edgefl.wire.address import Address, parse

CHUNK = 120 * 1024
WINDOW = 20
PATIENCE = 60.0  # seconds for a round, and for all clients to come
_SIZE = struct.Struct("<Q")
HERE, DOWN, UP = "bare/here/", "bare/down", "bare/up/"


class Peer:
    """One paho client; `whole` hears from which topic how many bytes have come."""

    def __init__(self, address: Address, name: str, whole: Callable[[str, bytearray], None], *topics: str) -> None:
        self.whole, self.topics = whole, topics
        self.parts: dict[str, bytearray] = {}
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
        self.client.max_inflight_messages_set(WINDOW)
        self.client.on_socket_open = _no_delay
        self.client.on_connect = self._on_connect
        self.client.on_message = self._on_message
        self.client.connect(address.host, address.port, 60)

    def send(self, topic: str, data: bytes | bytearray, *, retain: bool = False) -> None:
        """Publish the data in chunks, each of which says how large the whole is."""
        head, view, step = _SIZE.pack(len(data)), memoryview(data), CHUNK - _SIZE.size
        for start in range(0, len(data), step):
            self.client.publish(topic, b"".join([head, view[start : start + step]]), 1, retain)

    def _on_connect(self, client: paho.Client, *_: Any) -> None:
        client.subscribe([(topic, 1) for topic in self.topics])

    def _on_message(self, _c: paho.Client, _u: Any, message: paho.MQTTMessage) -> None:
        payload, topic = message.payload, message.topic
        (size,) = _SIZE.unpack_from(payload)
        data = self.parts.setdefault(topic, bytearray())
        data += memoryview(payload)[_SIZE.size :]
        if len(data) >= size:
            self.whole(topic, self.parts.pop(topic))


class PahoServer:
    """The other end of all clients, in this process."""

    def __init__(self, address: Address, clients: int) -> None:
        self.clients, self.heard = clients, 0
        self.all_heard = threading.Event()
        self.peer = Peer(address, "bare-server", self._whole, f"{HERE}+", f"{UP}+")
        self.peer.client.loop_start()
        self._wait("clients to connect")

    def play(self, params: int, rounds: int, mark: Callable[[], None]) -> None:
        """Play the rounds, with a model of this number of float32 values."""
        model = bytes(4 * params)
        for _ in range(rounds):
            self.peer.send(DOWN, model)
            self._wait("answers")
            mark()

    def close(self) -> None:
        self.peer.client.disconnect()
        self.peer.client.loop_stop()

    def _whole(self, _topic: str, _data: bytearray) -> None:
        self.heard += 1
        if self.heard == self.clients:
            self.heard = 0
            self.all_heard.set()

    def _wait(self, what: str) -> None:
        if not self.all_heard.wait(PATIENCE):
            raise RunError(f"the bare clients: {self.heard} of {self.clients} {what} came in {PATIENCE:.0f} s")
        self.all_heard.clear()


def serve(address: Address, name: str) -> None:
    """A client: whatever comes, as many bytes go back."""
    peer = Peer(address, name, lambda _, data: peer.send(UP + name, data), DOWN)
    # Retained: a client may be here before the server listens.
    peer.client.on_subscribe = lambda *_: peer.send(HERE + name, b"here", retain=True)
    peer.client.loop_forever()


def _no_delay(_client: paho.Client, _userdata: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def serve_line(address: Address, line: str, clients: int) -> None:
    """A server in a process of its own."""
    server = PahoServer(address, clients)
    serve_orders(line, lambda order, mark: server.play(order["params"], order["rounds"], mark))
    server.close()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(parse(sys.argv[1]), sys.argv[2])
    else:
        serve_line(parse(sys.argv[1]), sys.argv[3], int(sys.argv[4]))
