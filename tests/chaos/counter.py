"""An independent counter: hears everything that is said at the broker, and reads it without any code of ours."""

import struct
import threading
from collections import Counter
from typing import Any

import msgpack
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

CHUNK = struct.Struct("<2sBB32sIIQ")
ECHO = "edgefl/v1/witness/echo"
ENVELOPE = struct.Struct("<2sBB32sQ64s")
FRAME = struct.Struct("<4sBBIQ")


class Witness:
    """Counts answers on their way up and receipts on their way down."""

    def __init__(self, port: int, user: str | None = None, password: str | None = None) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()  # (device, round): how often a whole answer was heard
        self.receipts: dict[tuple[str, int], list[str]] = {}  # (device, round): verdicts
        self.accepted: set[tuple[str, int, bytes]] = set()
        self.again = 0  # chunks of answers that were heard more than once
        self._parts: dict[tuple[str, bytes], dict[int, bytes]] = {}
        self._seen: Counter[tuple[str, bytes, int]] = Counter()
        self._standing: set[str] = set()
        self._ready, self._echo = threading.Event(), threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="witness", protocol=mqtt.MQTTv5)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = self._connected
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.on_message = self._heard
        self._client.username_pw_set(user, password)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        assert self._ready.wait(30), "the witness could not subscribe"

    def standing(self, filter: str) -> set[str]:
        """The topics at which the broker keeps something now."""
        self._standing.clear()
        self._echo.clear()
        for _ in range(60):  # a subscription is lost if the witness is not yet back at a broker that was killed
            self._client.subscribe([(filter, 1), (ECHO, 1)])
            self._client.publish(ECHO, b"said after the subscription", 1)
            if self._echo.wait(1):
                break
        assert self._echo.is_set(), "the broker did not tell what it keeps"
        self._client.unsubscribe([filter, ECHO])
        return set(self._standing)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(self, client: mqtt.Client, *_: Any) -> None:
        client.subscribe([("edgefl/v1/+/+/dev/+/up", 1), ("edgefl/v1/+/+/dev/+/down", 1)])

    def _heard(self, _client: mqtt.Client, _userdata: Any, message: mqtt.MQTTMessage) -> None:
        if message.topic == ECHO:
            self._echo.set()
            return
        if message.retain:
            self._standing.add(message.topic)
            return
        if "/dev/" not in message.topic:
            return
        device, way = message.topic.split("/")[5:7]
        name = ENVELOPE.unpack_from(message.payload)[2]  # how long that of the run is
        chunk = bytes(message.payload[ENVELOPE.size + name :])
        _, _, _, digest, index, _, size = CHUNK.unpack_from(chunk)
        data = chunk[CHUNK.size :]
        if len(data) < size:
            self._seen[device, digest, index] += 1
            self.again += self._seen[device, digest, index] > 1
        parts = self._parts.setdefault((device, digest), {})
        parts[index] = data  # one chunk, or several that follow one another
        if sum(map(len, parts.values())) < size:
            return
        frame = b"".join(parts[index] for index in sorted(parts))
        del self._parts[device, digest]
        head = FRAME.unpack_from(frame)[3]
        header = msgpack.unpackb(frame[FRAME.size : FRAME.size + head])
        if way == "up" and header["kind"] == "answer":
            self.answers[device, header["round"]] += 1
        if way == "down" and header["kind"] == "receipt":
            self.receipts.setdefault((device, header["round"]), []).append(header["verdict"])
            if header["verdict"] == "accepted":
                self.accepted.add((device, header["round"], header["digest"]))
