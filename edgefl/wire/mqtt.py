"""The transport over MQTT 5: a thin shell around paho-mqtt that nothing is lost in.

One thread owns the socket and everything of paho; the other methods put on a queue and wake it. While it sleeps, a
thread that publishes has the line instead (`_line`), and sends at once what the kernel takes. Every connection gets a
new paho client, so no state survives a disconnect but ours: the outbox, and what is in flight, which goes back to its
front. Measured traps that this file steers around: paho disregards the broker's limits, so the window and the largest
packet are watched here; one packet over the limit makes it reconnect and resend for ever; and Nagle's algorithm costs
44 ms per message on each side.
"""

import logging
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edgefl.base.errors import ConfigError
from edgefl.wire import local_socket
from edgefl.wire.address import NOT_RUNNING, PASSWORD, PORTS, START, Address
from edgefl.wire.certificates import CertificateTrouble, explain, refused
from edgefl.wire.lean_client import LeanClient
from edgefl.wire.reconnect import LONGEST_DELAY, Reconnect
from edgefl.wire.tls import Tls
from edgefl.wire.tls_socket import TlsSocket
from edgefl.wire.transport import (
    LARGEST,
    ConnectionLost,
    ConnectionMade,
    Deliver,
    Message,
    Payload,
    Undelivered,
    Will,
)
from edgefl.wire.window import SendWindow

log = logging.getLogger(__name__)

FILTERS = 8  # per SUBSCRIBE, the smallest limit of the public brokers
KEEPALIVE = 6  # seconds; Mosquitto 2.0 waits half as long again and looks every 6, so silence is seen within 17
TICK = 1.0  # seconds between looks at the keep-alive
QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux has it; it wears off, so set it again and again
NOBODY = "start the broker there, or correct its address"
LOST = "connection lost"
TAKEN_OVER = 0x8E  # MQTT 5 reason: another client connected with our id
FAILED = 0x80  # MQTT 5 reasons from here on
BAD_LOGIN = (0x86, 0x87)  # MQTT 5 reasons: bad user name or password, not authorized
NOT_NOW = (0x88, 0x89, 0x97, 0x9F)  # MQTT 5 reasons: unavailable, busy, quota, too many connections at once
REMIND = 600.0  # seconds until it is told again that every attempt fails for the same reason
Item: TypeAlias = tuple[str, Payload, bool, int | None]  # topic, payload, retain, seconds until it expires


def tls_context(ca: Path | None = None, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """TLS that trusts `ca` (or the system), and proves who we are with `certificate` and `key` if they are given."""
    if key is not None and key.exists() and key.stat().st_mode & 0o077:
        raise ConfigError(f"tls.key {key} can be read by others (mode {key.stat().st_mode & 0o777:o}): chmod 600 {key}")
    try:
        context = ssl.create_default_context(cafile=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sslsocket_class = TlsSocket
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as failed:  # a bad certificate is an OSError too
        files = ", ".join(str(path) for path in (ca, certificate, key) if path)
        raise ConfigError(f"cannot use the TLS files {files}: {failed.strerror or failed}") from None
    return context


def transport_of(address: Address) -> Literal["tcp", "unix"]:
    """What paho calls the way there."""
    return "unix" if address.socket else "tcp"


def place_of(address: Address) -> tuple[str, int]:
    """Where the broker is now: a socket in the file system moves with every start of its broker."""
    path = address.socket
    return (local_socket.place(path), PORTS["mqtt"]) if path else (address.host, address.port)


class MqttTransport:
    """One MQTT client; see `edgefl.wire.transport` for what it promises."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        *,
        keepalive: int = KEEPALIVE,
        window: int = 8,
        tls: Tls | None = None,
        addresses: Callable[[], Sequence[Address]] | None = None,
    ) -> None:
        self.sent = 0
        self.received = 0
        self._address = address  # that is tried, or is connected
        self._addresses = addresses or (lambda: (address,))  # all that there are at this moment; called on our thread
        self._id = client_id
        self._keepalive = keepalive
        self._window = window
        self._login = (address.username, address.password)
        self._files = tls or Tls()
        if _given(self._files) and not address.tls:
            raise ConfigError(f"broker {address} is plain but TLS files are given: write mqtts:// in its address")
        self._stamp = _stamp(self._files)
        self._tls = _context(self._files) if address.tls else None

        self._lock = threading.Condition(threading.Lock())  # guards `sent` and `_pending`
        self._pending = 0
        self._outbox: deque[Item] = deque()
        self._wishes: deque[tuple[bool, tuple[str, ...]]] = deque()  # to subscribe (True) or unsubscribe
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._pace = Reconnect(client_id)
        self._idle = False  # the network thread sleeps, or is about to: wake it
        self._line = threading.Lock()  # whose it is to send: the network thread's, unless it sleeps
        self._connected: LeanClient | None = None  # over the line, while it is served
        self._thread: threading.Thread | None = None

        # Touched by the network thread only.
        self._deliver: Deliver = lambda _: None
        self._will: Will | None = None
        self._flight = SendWindow[Item](window)
        self._asked: dict[int, tuple[str, ...]] = {}
        self._online = False
        self._greeted = False  # the connection in hand was accepted by the broker
        self._largest = LARGEST
        self._ended: ConnectionLost | None = None
        self._told: dict[ConnectionLost, float] = {}  # failures since the last connection, and when each was told

    # Any thread.

    def start(self, deliver: Deliver, will: Will | None = None) -> None:
        self._deliver, self._will = deliver, will
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{self._id}", daemon=True)
        self._thread.start()

    def subscribe(self, *filters: str) -> None:
        self._wish(True, filters)

    def unsubscribe(self, *filters: str) -> None:
        self._wish(False, filters)

    def publish(self, topic: str, payload: Payload, *, retain: bool = False, expires: int | None = None) -> None:
        if not topic or "+" in topic or "#" in topic:
            raise ValueError(f"cannot publish to topic {topic!r}")
        self._check()
        with self._lock:
            self.sent += _size(payload)
            self._pending += 1
            self._outbox.append((topic, payload, retain, expires))
        if not self._sent_at_once():
            self._wake()

    def largest(self) -> int:
        return int(min(self._largest, self._flight.speed))

    def backlog(self) -> int:
        return self._pending

    def spread(self, seconds: float) -> None:
        self._pace.spread = seconds

    def flush(self, timeout: float) -> bool:
        with self._lock:
            done = self._lock.wait_for(lambda: self._pending == 0 or self._failure is not None, timeout)
        self._check()
        return done

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._idle = True
            self._wake()
            if self._thread is not threading.current_thread():
                self._thread.join(2 * LONGEST_DELAY)

    def _wish(self, subscribed: bool, filters: tuple[str, ...]) -> None:
        self._check()
        for i in range(0, len(filters), FILTERS):
            self._wishes.append((subscribed, filters[i : i + FILTERS]))
        self._wake()

    def _sent_at_once(self) -> bool:
        """Whether all that may go has gone: to wake the network thread for a small message costs as much as it does.

        What goes wrong here is left to the network thread, which finds the same.
        """
        if not self._idle or not self._line.acquire(blocking=False):
            return False
        try:
            client = self._connected
            if client is None or not self._online:
                return False
            self._hand_over(client)
            return client.send_now()
        finally:
            self._line.release()

    def _wake(self) -> None:
        if self._idle:
            self._idle = False
            with suppress(OSError):  # it rings already, or the thread has ended
                self._bell.send(b"\0")

    def _check(self) -> None:
        if self._failure is not None:
            raise RuntimeError(f"the network thread of {self._id} died") from self._failure

    # The network thread.

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                began, self._greeted = time.monotonic(), False
                addresses = self._addresses()
                self._address = self._address if self._address in addresses else addresses[0]
                ended = self._connection()
                if self._closing.is_set():
                    break
                self._tell(ended if len(addresses) == 1 else replace(ended, reason=f"{self._address}: {ended.reason}"))
                if not self._greeted:  # the next one, and after the last the first
                    self._address = addresses[(addresses.index(self._address) + 1) % len(addresses)]
                lasted = time.monotonic() - began
                self._closing.wait(self._pace.lost(lasted) if self._greeted else self._pace.failed())
        except BaseException as failure:
            self._failure = failure  # the next call of this transport raises; the traceback shows now
            with self._lock:
                self._lock.notify_all()
            raise
        finally:
            self._bell.close()
            self._ear.close()

    def _tell(self, ended: ConnectionLost) -> None:
        """Once; who tries for days hears of the same failure again only now and then."""
        now = time.monotonic()
        if self._greeted:
            self._told.clear()
        elif (before := self._told.get(ended)) is not None and now - before < REMIND:
            return
        else:
            self._told[ended] = now
        self._deliver(ended)

    def _connection(self) -> ConnectionLost:
        """One connection from beginning to end; gives back why it ended."""
        self._ended = None
        client = self._client()
        try:
            hello = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho leaves it untyped
            hello.MaximumPacketSize = LARGEST
            client.connect(*place_of(self._address), self._keepalive, clean_start=True, properties=hello)
        except OSError as failed:
            return self._failed(failed)
        except UnicodeError:
            return ConnectionLost(f"host name '{self._address.host}' is unknown")
        self._line.acquire()
        try:
            self._serve(client)
        finally:
            self._idle = self._online = False
            self._connected = None
            self._line.release()
            if (sock := client.socket()) is not None:
                sock.close()
            self._outbox.extendleft(reversed(self._flight.unsettled()))
            self._flight = SendWindow(self._window)
            self._asked.clear()
        ended = self._ended or ConnectionLost(LOST, passing=True)
        # In TLS 1.3 the handshake ends before we are checked.
        if self._tls and not self._greeted and ended.reason == LOST and (wrong := refused(self._files)):
            return _untrusted(wrong)
        return ended

    def _failed(self, failed: OSError) -> ConnectionLost:
        if self._address.socket and isinstance(failed, ConnectionRefusedError | FileNotFoundError):
            return ConnectionLost(NOT_RUNNING, passing=True, remedy=START)
        if isinstance(failed, ConnectionRefusedError):
            return ConnectionLost("Connection refused", passing=True, remedy=NOBODY)
        if wrong := explain(failed, self._address, self._files):
            return _untrusted(wrong)
        return ConnectionLost(failed.strerror or str(failed), passing=not isinstance(failed, PermissionError))

    def _renew(self) -> None:
        """Certificates run out and are renewed: files that have changed are read again, without a restart."""
        stamp = _stamp(self._files)
        if self._tls is not None and stamp != self._stamp:
            with suppress(ConfigError):  # half written, perhaps; what we have may still do
                self._tls, self._stamp = _context(self._files), stamp

    def _client(self) -> LeanClient:
        way = transport_of(self._address)
        client = LeanClient(self._id, way, self._received, self._acknowledged)
        if way == "tcp":
            client.on_socket_open = _no_delay
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        username, password = self._login
        if username is not None:
            client.username_pw_set(username, password)
        self._renew()
        if self._tls is not None:
            client.tls_set_context(self._tls)
        if self._will is not None:
            client.will_set(self._will.topic, self._will.payload, qos=1, retain=True)
        return client

    def _serve(self, client: LeanClient) -> None:
        sock: Any = client.socket()  # Any: paho's own type leaves out what only TLS has
        self._connected = client
        pending = sock.pending if isinstance(sock, ssl.SSLSocket) else _none
        poll = select.poll()  # unlike select, it knows file descriptors above 1024
        poll.register(self._ear, select.POLLIN)
        ear, fd = self._ear.fileno(), sock.fileno()
        watched, blocked, looked = 0, False, time.monotonic()
        while client.socket() is not None:
            if self._closing.is_set():
                self._goodbye(client)
                return
            watch = select.POLLIN | (select.POLLOUT if blocked else 0)
            if watch != watched:
                poll.register(fd, watch)
                watched = watch
            self._idle = True  # before the look at the queues: who comes later rings the bell
            more = self._online and (self._wishes or (self._outbox and self._flight.open))
            hurry = pending() or (not blocked and (more or client.want_write()))
            ready = dict(poll.poll(0)) if hurry else self._slept(poll)
            self._idle = False
            if ear in ready:
                self._ear.recv(4096)
            if fd in ready or pending():
                if ready.get(fd, 0) & ~select.POLLOUT or pending():
                    client.loop_read()
                    _acknowledge(client, sock)
                blocked = blocked and not ready.get(fd, 0) & select.POLLOUT
            if self._online:
                self._hand_over(client)
            if client.want_write() and not blocked and client.socket() is not None:
                client.loop_write()
                blocked = client.want_write()
            now = time.monotonic()
            if now - looked >= TICK:
                client.loop_misc()
                looked = now

    def _slept(self, poll: "select.poll") -> dict[int, int]:
        """What is ready, after a while in which others may send."""
        self._line.release()
        try:
            return dict(poll.poll(TICK * 1000))
        finally:
            self._line.acquire()

    def _hand_over(self, client: LeanClient) -> None:
        """On the network thread, or on another one that has the line."""
        while self._wishes:
            subscribed, filters = self._wishes.popleft()
            if subscribed:
                _, mid = client.subscribe([(filter, SubscribeOptions(qos=1)) for filter in filters])
                self._asked[mid or 0] = filters
            else:
                client.unsubscribe(list(filters))
        while self._outbox and self._flight.open:
            item = self._outbox.popleft()
            topic, payload, retain, expires = item
            size = _size(payload)
            if (packet := size + len(topic.encode()) + 15) > self._largest:
                self._deliver(Undelivered(topic, f"{packet} bytes are more than the broker's {self._largest}"))
                self._settled()
                continue
            number = client.send(topic, payload, retain=retain, expires=expires)
            self._flight.sent(number, item, size, time.monotonic())

    def _settled(self) -> None:
        with self._lock:
            self._pending -= 1
            if self._pending == 0:
                self._lock.notify_all()

    def _goodbye(self, client: paho.Client) -> None:
        """Say so, at the end of what is on its way; a broker that does not listen is left after a second."""
        client.disconnect()
        until = time.monotonic() + TICK
        poll = select.poll()
        while (sock := client.socket()) is not None and (left := until - time.monotonic()) > 0:
            poll.register(sock.fileno(), select.POLLOUT)
            poll.poll(left * 1000)
            client.loop_write()

    # Called by paho, on the network thread.

    def _on_connect(self, _c: paho.Client, _u: Any, _f: Any, reason: ReasonCode, properties: Properties | None) -> None:
        if reason.is_failure:
            remedy = _login_remedy(*self._login) if reason.value in BAD_LOGIN else ""
            passing = reason.value in NOT_NOW
            self._ended = ConnectionLost(f"the broker refused: {reason}", passing=passing, remedy=remedy)
            return
        self._flight.room = min(self._window, getattr(properties, "ReceiveMaximum", self._window))
        self._largest = getattr(properties, "MaximumPacketSize", LARGEST)
        self._online = self._greeted = True
        self._deliver(ConnectionMade())

    def _on_disconnect(self, _c: paho.Client, _u: Any, flags: Any, reason: ReasonCode, _p: Any) -> None:
        self._online = False
        if self._ended is None:
            why = str(reason) if flags.is_disconnect_packet_from_server else LOST
            self._ended = ConnectionLost(why, taken_over=reason.value == TAKEN_OVER)

    def _received(self, topic: bytes, payload: bytes | memoryview, retained: bool) -> None:
        try:
            where = topic.decode()
        except UnicodeDecodeError:
            log.warning("ignored a message with a topic that is not text bytes=%d", len(payload))
            return
        self.received += len(payload)
        self._deliver(Message(where, payload, retained))

    def _acknowledged(self, number: int, reason: int) -> None:
        item = self._flight.acknowledged(number, time.monotonic())
        if item is None:
            log.debug("the broker acknowledges what was not sent number=%d", number)
            return
        if reason >= FAILED:
            self._deliver(Undelivered(item[0], _reason(reason)))
        self._settled()

    def _on_subscribe(self, _c: paho.Client, _u: Any, mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        for filter, reason in zip(self._asked.pop(mid, ()), reasons, strict=False):
            if reason.is_failure:
                self._deliver(Undelivered(filter, f"subscription refused: {reason}"))


def _untrusted(wrong: CertificateTrouble) -> ConnectionLost:
    return ConnectionLost(wrong.why, remedy=wrong.remedy, passing=wrong.passing, certificate=wrong.ours)


def _login_remedy(username: str | None, password: str | None) -> str:
    if username is None:
        return f"write a user into its address (mqtt://USER@host), and its password into the environment as {PASSWORD}"
    if password is None:
        return f"put the password of user '{username}' into the environment as {PASSWORD}"
    return f"correct the user '{username}' in its address, or its password {PASSWORD}"


def _reason(code: int) -> str:
    """In MQTT's own words, where it has some."""
    try:
        return str(ReasonCode(PacketTypes.PUBACK, identifier=code))
    except KeyError:
        return f"reason {code:#04x}"


def _given(files: Tls) -> bool:
    return bool(files.ca or files.certificate)


def _context(files: Tls) -> ssl.SSLContext:
    return tls_context(files.ca, files.certificate, files.key)


def _stamp(files: Tls) -> tuple[int, ...]:
    paths = (files.ca, files.certificate, files.key)
    return tuple(path.stat().st_mtime_ns if path and path.exists() else 0 for path in paths)


def _size(payload: Payload) -> int:
    parts = payload if isinstance(payload, tuple) else (payload,)
    return sum(memoryview(part).nbytes for part in parts)


def _no_delay(_client: paho.Client, _userdata: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _acknowledge(client: LeanClient, sock: Any) -> None:
    """Let the kernel acknowledge at once: a broker that leaves Nagle's algorithm on waits 44 ms for it."""
    if QUICKACK is not None and not client.want_write():  # what is written next acknowledges, too
        try:
            sock.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
        except OSError:  # closed by what was just read; or one in the file system, which has nothing of TCP
            return


def _none() -> int:
    return 0
