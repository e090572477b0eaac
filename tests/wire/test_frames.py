"""Frames: what goes in comes out, and nothing a stranger sends can do more than be refused."""

import pickle
import struct
import sys
import tracemalloc

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgefl.base.errors import WireError
from edgefl.wire.frames import ALIGNED, COMPRESSED, HEADER_LIMIT, MAGIC, PIECE, VERSION, pack, unpack

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT = 1 << 20
PREFIX = struct.Struct("<4sBBIQ")

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
headers = st.dictionaries(st.text(max_size=8), values, max_size=5)


def raw(head, body=b"", *, magic=MAGIC, version=VERSION, flags=0, head_size=None, body_size=None):
    """A frame as a stranger would make it."""
    sizes = (len(head) if head_size is None else head_size, len(body) if body_size is None else body_size)
    padding = bytes(-(PREFIX.size + sizes[0]) % ALIGNED)
    return PREFIX.pack(magic, version, flags, *sizes) + head + padding + body


def refused(data, limit=LIMIT):
    """The code of the refusal, which must not have cost memory."""
    tracemalloc.start()
    try:
        with pytest.raises(WireError) as caught:
            unpack(data, limit)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    return caught.value.code


@given(headers, st.lists(st.binary(max_size=200), max_size=3), st.booleans())
def test_what_was_packed_is_unpacked(header, parts, compress):
    opened = unpack(pack(header, parts, compress=compress), LIMIT)
    assert opened.header == header
    assert bytes(opened.body) == b"".join(parts)


def test_a_body_that_shrinks_is_compressed_and_one_that_does_not_is_not():
    zeros, noise = bytes(10_000), np.random.default_rng(0).bytes(10_000)
    assert len(pack({}, [zeros], compress=True)) < 200
    assert pack({}, [noise], compress=True) == pack({}, [noise])


@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 5_000_000])
def test_a_large_body_comes_out_of_its_pieces_and_takes_its_own_size(size):
    noise = np.random.default_rng(0).integers(0, 9, size, np.uint8).tobytes()
    packed = pack({}, [noise], compress=True)
    tracemalloc.start()
    opened = unpack(packed, size)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(packed) < size * 0.6
    assert opened.body == noise
    assert most < size + 4 * PIECE


def test_the_body_is_not_copied():
    data = pack({"a": 1}, [b"body"])
    assert unpack(data, LIMIT).body.obj is data


def test_an_empty_payload_is_truncated():
    assert refused(b"") == "wire.truncated"


@pytest.mark.parametrize("body", [b"", b"12345678"])
def test_a_frame_cut_at_any_byte_is_truncated(body):
    good = pack({"kind": "answer", "round": 3}, [body])
    assert {refused(good[:length]) for length in range(len(good))} == {"wire.truncated"}


def test_a_compressed_frame_cut_at_any_byte_is_refused():
    good = pack({"kind": "answer"}, [bytes(range(9)) * 99], compress=True)
    assert {refused(good[:length]) for length in range(len(good))} <= {"wire.truncated", "wire.malformed"}


def test_bytes_after_the_body_are_refused():
    assert refused(pack({}, [b"x"]) + b"y") == "wire.truncated"


def test_a_frame_of_another_version_is_told_which_one_we_speak():
    with pytest.raises(WireError, match="frame version 2; this side speaks 1") as caught:
        unpack(raw(b"\x80", version=2), LIMIT)
    assert caught.value.code == "wire.version"


def test_a_flag_we_do_not_know_is_refused():
    assert refused(raw(b"\x80", flags=4)) == "wire.malformed"


@pytest.mark.parametrize(
    "payload",
    [
        pickle.dumps({"kind": "answer"}),
        b"PK\x03\x04" + bytes(40),  # a .pt file is a zip
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000,), }",
        b'{"kind": "answer", "round": 1}',
    ],
    ids=["pickle", "pt", "npy of 40 GB", "json"],
)
def test_other_formats_are_refused_by_their_first_bytes(payload):
    assert refused(payload) == "wire.magic"


@pytest.mark.parametrize("sizes", [{"head_size": 2**32 - 1}, {"head_size": HEADER_LIMIT + 1}, {"body_size": 2**60}])
def test_huge_lengths_are_refused_before_memory_is_taken(sizes):
    assert refused(raw(b"\x80", **sizes)) == "wire.too_large"


def test_the_limit_itself_is_allowed():
    assert len(unpack(pack({}, [bytes(100)]), limit=100).body) == 100
    assert refused(pack({}, [bytes(101)]), limit=100) == "wire.too_large"


# ---- zstd ----------------------------------------------------------------------------------------------------------

BOMB = zstd.compress(bytes(256 << 20))


@pytest.mark.parametrize("claimed", [1, len(BOMB), LIMIT])
def test_a_bomb_that_hides_its_size_is_refused(claimed):
    assert len(BOMB) < 64 << 10
    assert refused(raw(b"\x80", BOMB, flags=COMPRESSED, body_size=claimed)) == "wire.too_large"


def test_a_bomb_that_tells_its_size_is_refused():
    assert refused(raw(b"\x80", BOMB, flags=COMPRESSED, body_size=256 << 20)) == "wire.too_large"


def test_a_bomb_that_lies_in_its_own_header_too_is_refused():
    """The content size in the zstd header says 1000, the blocks behind it hold more."""
    honest, longer = zstd.compress(bytes(1000)), zstd.compress(bytes(2000))
    body = honest[:4] + longer[4:].replace(struct.pack("<H", 2000 - 256), struct.pack("<H", 1000 - 256), 1)
    assert zstd.get_frame_info(body).decompressed_size == 1000
    assert refused(raw(b"\x80", body, flags=COMPRESSED, body_size=1000)) == "wire.malformed"


def test_compressed_bytes_that_do_not_tell_their_size_are_refused():
    body = zstd.compress(bytes(1000), options={zstd.CompressionParameter.content_size_flag: 0})
    assert refused(raw(b"\x80", body, flags=COMPRESSED, body_size=1000)) == "wire.too_large"


def test_bytes_that_are_not_compressed_but_say_so_are_refused():
    assert refused(raw(b"\x80", b"plain", flags=COMPRESSED, body_size=5)) == "wire.malformed"


@pytest.mark.parametrize("more", [b"x", zstd.compress(b"x"), zstd.compress(b"")], ids=["bytes", "a frame", "nothing"])
def test_what_follows_a_compressed_body_is_refused(more):
    body = zstd.compress(bytes(1000))
    assert len(unpack(raw(b"\x80", body, flags=COMPRESSED, body_size=1000), LIMIT).body) == 1000
    assert refused(raw(b"\x80", body + more, flags=COMPRESSED, body_size=1000)) == "wire.malformed"


@pytest.mark.parametrize("window", [24, 27, 31])
def test_a_compressed_body_that_wants_to_look_back_further_than_anybody_needs_is_refused(window):
    """A zstd header may ask for a window, and so for memory, of gigabytes, however little it holds."""
    size, last_of_one_byte = 100_000, 0b011
    block = struct.pack("<I", size << 3 | last_of_one_byte)[:3] + b"\0"
    body = b"\x28\xb5\x2f\xfd" + bytes([0x80, (window - 10) << 3]) + struct.pack("<I", size) + block
    assert zstd.get_frame_info(body).decompressed_size == size
    assert refused(raw(b"\x80", body, flags=COMPRESSED, body_size=size)) == "wire.malformed"


def test_a_body_whose_checksum_is_wrong_is_refused():
    body = zstd.compress(bytes(1000), options={zstd.CompressionParameter.checksum_flag: 1})
    assert len(unpack(raw(b"\x80", body, flags=COMPRESSED, body_size=1000), LIMIT).body) == 1000
    wrong = body[:-1] + bytes([body[-1] ^ 1])
    assert refused(raw(b"\x80", wrong, flags=COMPRESSED, body_size=1000)) == "wire.malformed"


def test_what_the_earlier_binding_compressed_is_still_read():
    """Written through the `zstandard` package, which came before: spools and runs of that time must open."""
    body = "28b52ffd6000014d02000404" + bytes(range(64)).hex() + "010040efa08628"
    opened = unpack(raw(b"\x80", bytes.fromhex(body), flags=COMPRESSED, body_size=512), LIMIT)
    assert bytes(opened.body) == bytes(range(64)) * 8


# ---- msgpack -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"\x91" * 5000 + b"\x90",
        b"\x81\xa1a" * 5000 + b"\x80",
        b"\x82\xa1a\x01\xa1a\x02",
        b"\x81\xa1m\x82\xa1a\x01\xa1a\x02",
        b"\x81\x01\x02",
        b"\x81\xc4\x01a\x02",
        b"\x81\x90\x02",
        msgpack.packb([1, 2]),
        msgpack.packb("kind"),
        b"",
        b"\xc1",
        b"\x81\xa1a",
        b"\x81\xa2\xff\xfe\x01",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\x81\xa1a\xc6\xff\xff\xff\xff",
        b"\x80\x80",
    ],
    ids=[
        "5000 lists deep",
        "5000 maps deep",
        "key twice",
        "key twice further down",
        "number as key",
        "bytes as key",
        "list as key",
        "list",
        "word",
        "nothing",
        "never used",
        "cut",
        "not UTF-8",
        "map of 4 billion",
        "list of 4 billion",
        "4 GB of bytes",
        "two headers",
    ],
)
def test_a_header_that_is_not_one_plain_map_is_malformed(head):
    assert refused(raw(head)) == "wire.malformed"


@given(st.binary(max_size=60), st.binary(max_size=40), st.sampled_from([0, COMPRESSED]))
@example(b"\x81\xa1t\xd6\xff\xff\xff\xff\xff", b"", 0)  # a timestamp
@example(b"\x81\xa1t\xc7\x0c\xff" + b"\xff" * 12, b"", 0)  # a timestamp that no calendar has
@example(b"\x81\xa1t\xd4\x05x", b"", 0)  # a type of somebody's own
def test_whatever_comes_is_a_frame_or_refused(head, body, flags):
    try:
        opened = unpack(raw(head, body, flags=flags), LIMIT)
    except WireError:
        return
    assert isinstance(opened.header, dict)


@given(st.binary(max_size=80))
def test_any_bytes_at_all_are_a_frame_or_refused(data):
    with pytest.raises(WireError):
        unpack(data, LIMIT)


def test_the_body_begins_aligned_whatever_the_header():
    for length in range(70):
        data = pack({"a": "x" * length}, [b"body"])
        assert data.index(b"body") % ALIGNED == 0
        assert unpack(data, LIMIT).body == b"body"


def test_bytes_between_header_and_body_must_be_zero():
    data = bytearray(raw(b"\x80", b"body"))
    data[data.index(b"body") - 1] = 1
    assert refused(bytes(data)) == "wire.malformed"
