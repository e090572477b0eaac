"""MQTT 5 packets as they stand on the line, and nothing copied that is large.

Small packets are cut out of one buffer, as many as a look at the socket brought; a large one gets memory of its own,
which the socket fills. Read and written here is what carries messages (PUBLISH, PUBACK); everything else is paho's.
"""

import struct
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from edgefl.base.errors import WireError

PUBLISH, PUBACK = 0x30, 0x40
AT_LEAST_ONCE, RETAIN = 0x02, 0x01
EXPIRY = 0x02  # the property of a message that expires, in seconds
SMALL = 64 << 10  # bytes; what is larger is not copied
_SHORT = struct.Struct(">H")
_EXPIRY = struct.Struct(">BBI")

Packet: TypeAlias = tuple[int, bytes | memoryview]  # its first byte, and what follows behind the length


class Incoming:
    """What a socket has brought: `room` says where the next bytes belong, `came` which packets are whole with them."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._buffer = memoryview(bytearray(SMALL))
        self._start = self._end = 0  # of what was not cut out yet
        self._command = 0
        self._large: memoryview | None = None
        self._filled = 0

    @property
    def room(self) -> memoryview:
        """Never empty."""
        return self._buffer[self._end :] if self._large is None else self._large[self._filled :]

    @property
    def missing(self) -> int:
        """Bytes that are certain to come: the rest of a packet, at least its first one."""
        return 1 if self._large is None else len(self._large) - self._filled

    def came(self, size: int) -> Iterator[Packet]:
        """Return the packets that these bytes complete."""
        if self._large is not None:
            self._filled += size
            if self._filled == len(self._large):
                whole, self._large = self._large, None
                yield self._command, whole
            return
        self._end += size
        while (head := _head(self._buffer[self._start : self._end])) is not None:
            length, begins = head
            if begins + length > self._largest:
                raise WireError("mqtt.too_large", f"a packet of {length} bytes; we said that we take {self._largest}")
            begins, self._command = self._start + begins, self._buffer[self._start]
            if begins + length <= self._end:
                self._start = begins + length
                yield self._command, bytes(self._buffer[begins : begins + length])
            elif length > SMALL // 2:
                self._large, self._filled = np.empty(length, np.uint8).data, self._end - begins
                self._large[: self._filled] = self._buffer[begins : self._end]
                self._start = self._end
            else:
                break
        self._close_up()

    def _close_up(self) -> None:
        """What is not whole yet moves to the front: it is small."""
        rest = self._end - self._start
        if self._start:
            self._buffer[:rest] = bytes(self._buffer[self._start : self._end])
            self._start, self._end = 0, rest


def _head(data: memoryview) -> tuple[int, int] | None:
    """How long the packet is that begins here, and where that begins which is counted; None: that has not come."""
    length = shift = 0
    for at in range(1, min(len(data), 5)):
        length |= (data[at] & 0x7F) << shift
        shift += 7
        if not data[at] & 0x80:
            return length, at + 1
    if len(data) >= 5:
        raise WireError("mqtt.malformed", "a packet whose length does not end")
    return None


def published(command: int, packet: bytes | memoryview) -> tuple[bytes, int, bytes | memoryview]:
    """Topic, number (0: no receipt is wanted) and payload of a PUBLISH; its properties say nothing that we need."""
    try:
        end = 2 + _SHORT.unpack_from(packet)[0]
        topic, number = bytes(packet[2:end]), 0
        if command & 0x06:
            number = _SHORT.unpack_from(packet, end)[0]
            end += 2
        properties, after = _length(packet, end)
    except (struct.error, IndexError):
        raise WireError("mqtt.malformed", "a message that is cut off") from None
    if after + properties > len(packet):
        raise WireError("mqtt.malformed", "a message that is cut off")
    return topic, number, packet[after + properties :]


def acknowledged(packet: bytes | memoryview) -> tuple[int, int]:
    """Number and reason of a PUBACK."""
    if len(packet) < 2:
        raise WireError("mqtt.malformed", "an acknowledgement of nothing")
    return _SHORT.unpack_from(packet)[0], packet[2] if len(packet) > 2 else 0


def publish(topic: bytes, number: int, size: int, *, retain: bool, expires: int | None) -> bytes:
    """Return a PUBLISH of QoS 1, up to its payload of this size."""
    properties = b"\0" if expires is None else _EXPIRY.pack(5, EXPIRY, expires)
    head = _SHORT.pack(len(topic)) + topic + _SHORT.pack(number) + properties
    return bytes([PUBLISH | AT_LEAST_ONCE | (RETAIN if retain else 0)]) + _written(len(head) + size) + head


def acknowledgement(number: int) -> bytes:
    """A PUBACK."""
    return bytes([PUBACK, 2]) + _SHORT.pack(number)


def _length(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number that stands here in seven bits a byte, and where it ends."""
    value = shift = 0
    for end in range(at, at + 4):
        value |= (data[end] & 0x7F) << shift
        shift += 7
        if not data[end] & 0x80:
            return value, end + 1
    raise WireError("mqtt.malformed", "a length that does not end")


def _written(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
