"""A crowd of emulated devices in one process: each has its own connection and no thread, because all share one loop.

The little MQTT 5 they need is spoken here by hand, which keeps a thousand of them light and makes them independent of
the client library that the product uses. They come back after a lost connection by the product's own pacing.
"""

import asyncio
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from time import monotonic

from puppet import answer, noise

from edgefl.base.errors import WireError
from edgefl.wire import chunks, signed, topics
from edgefl.wire.messages import TO_DEVICE, Assignment, JobState, Presence, Receipt, read, read_json
from edgefl.wire.reconnect import Reconnect
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, PING, DISCONNECT = 0x10, 0x20, 0x30, 0x40, 0x82, 0xC0, 0xE0
KEEPALIVE = 30  # seconds
LARGEST = 1 << 24


def _text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def _packet(kind: int, body: bytes = b"") -> bytes:
    size, length = bytearray(), len(body)
    while True:
        length, low = divmod(length, 128)
        size.append(low | (128 if length else 0))
        if not length:
            return bytes([kind, *size]) + body


async def _receive(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind = (await reader.readexactly(1))[0]
    length = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return kind, await reader.readexactly(length)


class Emulated:
    """One device: announces itself, answers every task, comes back when it is cut off."""

    def __init__(self, name: str, job: str, size: int) -> None:
        self.name, self.job, self.size = name, job, size
        self.pace = Reconnect(name)
        self.assembler = chunks.Assembler(LARGEST)
        self.connected: list[float] = []  # when, each time
        self.accepted = 0
        self.speaker, self.run = Speaker(Signer.new(), "default", 1), ""
        self._number = 0
        self._writer: asyncio.StreamWriter | None = None

    async def live(self, host: str, port: int) -> None:
        while True:
            began, connections = monotonic(), len(self.connected)
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._connection(host, port)
            self._writer = None
            lost = len(self.connected) > connections
            await asyncio.sleep(self.pace.lost(monotonic() - began) if lost else self.pace.failed())

    async def _connection(self, host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        heart = None
        try:
            writer.write(self._hello())
            kind, body = await _receive(reader)
            if kind != CONNACK or body[1]:
                return
            self._writer = writer
            self.connected.append(monotonic())
            heart = asyncio.create_task(self._beat(writer))
            mine = topics.down("default", self.job, self.name), topics.state("default", self.job)
            filters = b"".join(_text(filter) + b"\x01" for filter in mine)
            writer.write(_packet(SUBSCRIBE, struct.pack(">HB", self._next(), 0) + filters))
            self.publish(topics.presence("default", self.name), self._presence(online=True), retain=True)
            while True:
                kind, body = await _receive(reader)
                if kind & 0xF0 == PUBLISH:
                    self._heard(kind, body)
                await writer.drain()
        finally:
            if heart is not None:
                heart.cancel()
            writer.transport.abort()

    async def _beat(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(KEEPALIVE / 2)
            writer.write(_packet(PING))

    def _hello(self) -> bytes:
        flags = 0x02 | 0x04 | 0x08 | 0x20  # a clean start; a will, at least once, retained
        will = b"\0" + _text(topics.presence("default", self.name)) + _text(self._presence(online=False))
        head = _text("MQTT") + struct.pack(">BBHB", 5, flags, KEEPALIVE, 0)
        return _packet(CONNECT, head + _text(self.name) + will)

    def _presence(self, *, online: bool) -> bytes:
        presence = Presence(online=online, installation=self.name, birth=1, samples=10)
        return self.speaker.seal("presence", presence.model_dump_json().encode(), device=self.name)

    def _next(self) -> int:
        self._number = self._number % 65535 + 1
        return self._number

    def _heard(self, kind: int, body: bytes) -> None:
        (length,) = struct.unpack_from(">H", body)
        topic, at = body[2 : 2 + length].decode(), 2 + length
        if kind & 0x06 and self._writer is not None:
            self._writer.write(_packet(PUBACK, body[at : at + 2]))
            at += 2
        payload = body[at + 1 + body[at] :]  # none of the properties matters; they are short
        envelope = signed.opened(payload)
        if topic.endswith("/state"):
            self.pace.spread = read_json(JobState, envelope.payload).spread
            return
        self.run = envelope.run_id
        with suppress(WireError):
            whole = self.assembler.add(envelope.payload)
            message = read(TO_DEVICE, whole[1], LARGEST)[0] if whole else None
            if isinstance(message, Receipt):
                self.accepted += message.verdict == "accepted"
            if isinstance(message, Assignment):
                self._say(answer(self, message, {"delta": noise(self.size, message.round)}))

    def _say(self, data: bytes) -> None:
        for part in chunks.split(data, chunks.digest(data)):
            sealed = self.speaker.seal("up", part, job=self.job, run_id=self.run, device=self.name)
            self.publish(topics.up("default", self.job, self.name), sealed)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, expires: int | None = None) -> None:
        """At least once, if the connection lives; a task that was not answered is given again."""
        if self._writer is not None:
            head = _text(topic) + struct.pack(">HB", self._next(), 0)
            self._writer.write(_packet(PUBLISH | 0x02 | retain, head + payload))


class Crowd(AbstractContextManager["Crowd"]):
    """All of them, in one loop, while the `with` block lasts."""

    def __init__(self, names: Iterable[str], host: str, port: int, *, job: str, size: int) -> None:
        self.devices = [Emulated(name, job, size) for name in names]
        self._where = host, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        lives = [self._loop.create_task(device.live(*self._where)) for device in self.devices]
        self._loop.run_forever()
        for life in lives:
            life.cancel()
        self._loop.run_until_complete(asyncio.gather(*lives, return_exceptions=True))
        self._loop.close()

    def wait(self, met: Callable[[Emulated], bool], patience: float) -> Mapping[str, Emulated]:
        """Until every device meets it, or patience ends; those that do not."""
        pause, until = threading.Event(), monotonic() + patience
        while (left := {d.name: d for d in self.devices if not met(d)}) and monotonic() < until:
            pause.wait(0.05)
        return left
