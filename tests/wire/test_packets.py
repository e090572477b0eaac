"""Packets cut out of whatever pieces a socket brings; large ones are not copied, and nonsense is refused."""

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt._packet import decode_publish
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.properties import Properties

from edgefl.base.errors import WireError
from edgefl.wire import packets
from edgefl.wire.packets import PUBLISH, SMALL, Incoming, acknowledged, acknowledgement, publish, published

LARGEST = 1 << 20


def fed(stream: bytes, cuts: list[int], largest: int = LARGEST) -> list[tuple[int, bytes]]:
    """What comes of a stream that the socket gives in pieces of these sizes, in turn."""
    incoming, came, at, turn = Incoming(largest), list[tuple[int, bytes]](), 0, 0
    while at < len(stream):
        room = incoming.room
        piece = stream[at : at + min(len(room), cuts[turn % len(cuts)])]
        room[: len(piece)] = piece
        came += [(command, bytes(packet)) for command, packet in incoming.came(len(piece))]
        at, turn = at + len(piece), turn + 1
    return came


def message(
    topic: bytes, payload: bytes, number: int = 7, *, retain: bool = False, expires: int | None = None
) -> bytes:
    return publish(topic, number, len(payload), retain=retain, expires=expires) + payload


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([0, 1, 100, 127, 128, 5000, SMALL // 2, SMALL, SMALL + 1, 200_000]), min_size=1, max_size=6
    ),
    st.lists(st.sampled_from([1, 2, 3, 999, 16_384, 65_536, 300_000]), min_size=1, max_size=4),
)
def test_what_was_sent_comes_in_its_order_however_it_was_cut(sizes, cuts):
    if min(cuts) < 100 and sum(sizes) > 20_000:
        cuts = [*cuts, 65_536]
    payloads = [np.random.default_rng(size).bytes(size) for size in sizes]
    came = fed(b"".join(message(b"a/b", payload) for payload in payloads), cuts)
    assert [bytes(published(*packet)[2]) for packet in came] == payloads


@given(
    st.text(min_size=1, max_size=20).map(str.encode),
    st.binary(max_size=50),
    st.integers(1, 65535),
    st.booleans(),
    st.none() | st.integers(0, 2**32 - 1),
)
def test_a_message_is_what_paho_reads_and_reads_the_same_here(topic, payload, number, retain, expires):
    ((command, packet),) = fed(message(topic, payload, number, retain=retain, expires=expires), [4])
    theirs = decode_publish(command, packet, MQTTProtocolVersion.MQTTv5)
    assert (theirs.topic, theirs.payload, theirs.mid, theirs.retain) == (topic, payload, number, retain)
    assert getattr(theirs.properties, "MessageExpiryInterval", None) == expires
    assert isinstance(theirs.properties, Properties)
    assert published(command, packet) == (topic, number, payload)


def test_a_large_message_is_read_where_the_socket_put_it():
    stream, incoming = message(b"t", bytes(range(256)) * 2000), Incoming(LARGEST)
    room = incoming.room
    room[:] = stream[: len(room)]
    assert list(incoming.came(len(room))) == []
    assert incoming.missing == len(stream) - len(room) == len(incoming.room)
    rest = incoming.room
    rest[:] = stream[len(room) :]
    ((command, packet),) = incoming.came(len(rest))
    payload = published(command, packet)[2]
    assert isinstance(payload, memoryview)
    rest[-1] = 77
    assert payload[-1] == 77, "the very same memory"
    assert incoming.missing == 1


def test_an_acknowledgement_says_what_and_why():
    ((_, packet),) = fed(acknowledgement(513), [1])
    assert acknowledged(packet) == (513, 0)
    assert acknowledged(b"\x02\x01\x87\x00") == (513, 0x87)


def test_a_packet_larger_than_what_we_take_is_refused_before_there_is_memory_for_it():
    with pytest.raises(WireError, match="we take 1000"):
        fed(message(b"t", bytes(1000)), [100], largest=1000)


@pytest.mark.parametrize(
    "packet",
    [b"", b"\0", b"\0\5abc", b"\0\1t", b"\0\1t\0", b"\0\1t\0\1", b"\0\1t\0\1\x05", b"\0\1t\0\1\xff\xff\xff\xff"],
)
def test_a_message_that_is_cut_off_is_refused(packet):
    with pytest.raises(WireError) as caught:
        published(PUBLISH | 2, packet)
    assert caught.value.code == "mqtt.malformed"


def test_a_length_without_an_end_is_refused():
    with pytest.raises(WireError, match="does not end"):
        fed(b"\x30\xff\xff\xff\xff\x01", [6])


@given(st.binary(min_size=1, max_size=300), st.integers(1, 50))
def test_any_bytes_at_all_are_cut_into_packets_or_refused(stream, cut):
    with suppress(WireError):
        for command, packet in fed(stream, [cut], largest=4096):
            if command & 0xF0 == PUBLISH:
                assert len(published(command, packet)[2]) <= len(stream)
            elif command & 0xF0 == packets.PUBACK:
                assert acknowledged(packet)[0] < 1 << 16


def test_the_number_is_two_bytes_in_the_order_of_the_network():
    assert struct.unpack(">H", acknowledgement(258)[2:]) == (258,)
