"""paho's client with a data path of our own.

Connecting, subscribing and the keep-alive are paho's. The part that carries messages is our own: paho copies a payload
six times on its way in. On its way out it copies the rest again whenever the kernel takes only a part; here the kernel
fills the memory that a message is read from, and takes it from where the sender has it.
"""

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.exception import MalformedPacket

from edgefl.base.errors import WireError
from edgefl.wire import local_socket, packets
from edgefl.wire.packets import Incoming
from edgefl.wire.tls_socket import RECORD
from edgefl.wire.transport import LARGEST, Payload

DISCONNECT = 0xE0
LOOKS = 16  # at the socket, before something may be written again
BUFFERS = 64  # handed to the kernel at a time
RARELY, AT_MOST = 16 << 10, 64 << 10  # bytes: when more than those are certain to come, we sleep until these are there
BUSY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Received = Callable[[bytes, bytes | memoryview, bool], None]  # topic, payload, and whether the broker had kept it
Acknowledged = Callable[[int, int], None]  # the number of what was sent, and the broker's reason


class LeanClient(paho.Client):
    """One connection. A message that came is told before the broker is told that it has come."""

    def __init__(
        self, client_id: str, way: Literal["tcp", "unix"], received: Received, acknowledged: Acknowledged
    ) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=paho.MQTTv5, transport=way)
        self._received, self._acknowledged = received, acknowledged
        self._incoming = Incoming(LARGEST)
        self._outgoing: deque[memoryview] = deque()
        self._leaves = self._blocked = False
        self._awaited = 1  # bytes that must be there before we are woken

    def send(self, topic: str, payload: Payload, *, retain: bool, expires: int | None) -> int:
        """The number under which this message will be acknowledged."""
        number = self._mid_generate()
        parts = [memoryview(part) for part in (payload if isinstance(payload, tuple) else (payload,))]
        size = sum(part.nbytes for part in parts)
        head = packets.publish(topic.encode(), number, size, retain=retain, expires=expires)
        self._outgoing.extend((memoryview(head), *(part for part in parts if part.nbytes)))
        return number

    def send_now(self) -> bool:
        """Whether the kernel took all that there is to send; what is wrong with the line shows in `loop_write`."""
        with suppress(OSError):
            self._pour(self.socket())
        return not self._outgoing

    # ---- what paho would do otherwise --------------------------------------------------------------------------

    def _create_unix_socket_connection(self) -> socket.socket:
        """Connect to a socket in the file system; unlike paho, leave nothing open if that fails."""
        return local_socket.connected(self._host)

    def want_write(self) -> bool:
        return bool(self._outgoing)

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:  # noqa: ARG002
        for _ in range(LOOKS):
            sock: Any = self.socket()
            if sock is None:
                return MQTTErrorCode.MQTT_ERR_NO_CONN
            room = self._incoming.room
            try:
                size = sock.recv_into(room)
            except BUSY:
                break
            except OSError:
                size = 0
            if not size:
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
            self._heard()
            try:
                rc = self._take(size)
            except (WireError, MalformedPacket):
                rc = MQTTErrorCode.MQTT_ERR_PROTOCOL
            if rc:
                return self._loop_rc_handle(rc)
            if size < len(room):
                break
        self._sleep_until(self._incoming.missing)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def loop_write(self) -> MQTTErrorCode:
        sock: Any = self.socket()
        if sock is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        try:
            self._pour(sock)
        except OSError:
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        if self._leaves and not self._outgoing:
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)  # it is we who lose it
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _packet_queue(self, command: int, packet: bytes | bytearray, *_: Any, **__: Any) -> MQTTErrorCode:
        self._outgoing.append(memoryview(packet))
        self._leaves = self._leaves or command == DISCONNECT
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    # ---- inside ------------------------------------------------------------------------------------------------

    def _take(self, size: int) -> MQTTErrorCode:
        for command, packet in self._incoming.came(size):
            match command & 0xF0:
                case packets.PUBLISH:
                    self._message(command, packet)
                case packets.PUBACK:
                    self._acknowledged(*packets.acknowledged(packet))
                case _:
                    self._in_packet["command"], self._in_packet["remaining_length"] = command, len(packet)
                    self._in_packet["packet"] = bytearray(packet)
                    if rc := self._packet_handle():
                        return rc
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _message(self, command: int, packet: bytes | memoryview) -> None:
        topic, number, payload = packets.published(command, packet)
        self._received(topic, payload, bool(command & packets.RETAIN))
        if number:
            self._outgoing.append(memoryview(packets.acknowledgement(number)))

    def _pour(self, sock: Any) -> None:
        """Into the kernel what it takes at the moment."""
        try:
            while self._outgoing and sock is not None:
                self._sent(sock.sendmsg(list(islice(self._outgoing, BUFFERS))))
        except BUSY:
            self._blocked = True

    def _sent(self, size: int) -> None:
        if self._blocked:
            self._heard()  # the kernel has room again, because the other side took something
        self._blocked, self._last_msg_out = False, time.monotonic()
        while size:
            first = self._outgoing.popleft()
            if size < len(first):
                self._outgoing.appendleft(first[size:])
                return
            size -= len(first)

    def _heard(self) -> None:
        """The other side lives."""
        self._last_bytes_received = time.monotonic()

    def _sleep_until(self, missing: int) -> None:
        """Be woken when the rest of a large message is there, not by each of its pieces."""
        sock: Any = self.socket()
        if isinstance(sock, ssl.SSLSocket):
            missing -= RECORD  # as much of it may be here already: a record that is not whole, which OpenSSL holds
        # Not until all of it is there: on a slow line that is longer than a connection may be silent.
        awaited = min(missing, AT_MOST) if missing > RARELY else 1
        if awaited != self._awaited and sock is not None and sock.family != socket.AF_UNIX:
            with suppress(OSError):  # closed by what was just read
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)
            self._awaited = awaited
