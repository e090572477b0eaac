"""Chunks: any order, any number of times, the same frame; anything else is refused and costs no memory."""

import struct
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.base.errors import WireError
from edgefl.wire import chunks
from edgefl.wire.chunks import CHUNK, HEAD, TOGETHER, Assembler, digest, read, split

LIMIT = 8 * CHUNK
HEADER = struct.Struct("<2sBB32sIIQ")
FRAME = bytes(range(256)) * (2 * CHUNK // 256 + 1)  # three chunks, the last one short
THREE = list(split(FRAME, digest(FRAME)))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 7)


def raw(data=b"", *, magic=b"EC", version=1, known_as=bytes(32), index=0, count=1, size=None):
    return HEADER.pack(magic, version, 0, known_as, index, count, len(data) if size is None else size) + data


def code(message, limit=LIMIT):
    with pytest.raises(WireError) as caught:
        Assembler(limit).add(message)
    return caught.value.code


# ---- what is right -------------------------------------------------------------------------------------------------


def test_a_message_is_never_larger_than_120_kib():
    assert [len(message) for message in THREE] == [120 * 1024, 120 * 1024, HEAD + len(FRAME) - 2 * CHUNK]


@pytest.mark.parametrize(("size", "count"), [(0, 1), (1, 1), (CHUNK, 1), (CHUNK + 1, 2), (10 * CHUNK, 10)])
def test_a_frame_has_as_many_chunks_as_it_needs(size, count):
    assert chunks.count(size) == count
    assert len(list(split(bytes(size), bytes(32)))) == count


@settings(max_examples=200)
@given(st.binary(max_size=60), st.randoms(use_true_random=False), st.integers(0, 5), st.sampled_from(TOGETHER))
def test_chunks_in_any_order_and_repeated_make_the_same_frame(frame, random, repeats, together):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK", 7)
        messages = list(split(frame, digest(frame), together))
        assert assembled(messages, random, repeats) == [(digest(frame), frame)]


@settings(max_examples=100)
@given(st.binary(min_size=30, max_size=120), st.randoms(use_true_random=False))
def test_chunks_that_went_together_fit_with_those_that_went_alone(frame, random):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK", 7)
        assembler, known_as = Assembler(1000), digest(frame)
        for message in random.sample(list(split(frame, known_as, 4)), 1):
            assembler.add(message)
        gaps = assembler.missing(known_as)
        rest = [chunks.chunk(frame, known_as, *run) for run in chunks.runs(gaps, random.choice(TOGETHER))]
        assert [assembler.add(message) for message in rest][-1] == (known_as, frame)


@given(st.lists(st.integers(0, 30), unique=True), st.sampled_from(TOGETHER))
def test_a_run_holds_what_follows_one_another_and_no_more_than_one_message_takes(indexes, together):
    runs = list(chunks.runs(indexes, together))
    assert [index for first, number in runs for index in range(first, first + number)] == indexes
    assert all(1 <= number <= together for _, number in runs)


@pytest.mark.parametrize(("largest", "number"), [(128 << 10, 1), (256 << 10, 2), (1 << 20, 4), (1 << 28, 4), (0, 1)])
def test_a_message_carries_as_many_chunks_as_the_broker_takes(largest, number):
    assert chunks.together(largest) == number
    assert number * CHUNK + HEAD + chunks.AROUND <= max(largest, 128 << 10)


def test_more_chunks_than_go_together_are_refused():
    frame = bytes(6 * CHUNK)
    assert code(chunks.chunk(frame, digest(frame), 0, 5)) == "wire.truncated"


def assembled(messages, random: Random, repeats):
    """What an assembler gives for these messages, shuffled, some of them twice before the last one is in."""
    order = random.sample(messages, len(messages))
    *before, last = order
    before += random.choices(before, k=repeats) if before else []
    random.shuffle(before)
    assembler = Assembler(limit=1000)
    return [done for message in (*before, last) if (done := assembler.add(message)) is not None]


def test_two_frames_may_come_mixed(small):
    a, b = b"a" * 20, b"b" * 20
    assembler, done = Assembler(100), []
    for pair in zip(split(a, digest(a)), split(b, digest(b)), strict=True):
        done += [whole for message in pair if (whole := assembler.add(message))]
    assert done == [(digest(a), a), (digest(b), b)]


def test_what_is_missing_can_be_asked_for():
    assembler = Assembler(LIMIT)
    assembler.add(THREE[1])
    assert assembler.missing(digest(FRAME)) == [0, 2]
    assert assembler.underway() == (digest(FRAME),)
    assert assembler.share() == pytest.approx(1 / 3)
    assembler.add(THREE[2])
    assert assembler.add(THREE[0]) == (digest(FRAME), FRAME)
    assert (assembler.missing(digest(FRAME)), assembler.underway(), assembler.share()) == ([], (), None)


def test_one_chunk_of_a_frame_can_be_made_again():
    assert chunks.chunk(FRAME, digest(FRAME), 2) == THREE[2]


def test_a_sender_that_begins_anew_gives_up_its_oldest_transfer(small):
    frames = [b"%010d" % i for i in range(1000)]
    assembler = Assembler(limit=100, transfers=2)
    for frame in frames:
        assembler.add(next(split(frame, digest(frame))))
    assert assembler.underway() == tuple(digest(frame) for frame in frames[-2:])


# ---- what is wrong -------------------------------------------------------------------------------------------------


def test_a_chunk_cut_at_any_byte_of_its_head_is_truncated():
    assert {code(THREE[0][:length]) for length in range(HEAD)} == {"wire.truncated"}


@pytest.mark.parametrize("message", [THREE[0][:-1], THREE[0] + b"x", THREE[2][:-1], raw(b"abc", size=4), raw(size=1)])
def test_a_chunk_with_too_few_or_too_many_bytes_is_truncated(message):
    assert code(message) == "wire.truncated"


def test_other_bytes_and_other_versions_are_named():
    assert code(raw(b"x", magic=b"\x80\x04")) == "wire.magic"
    assert code(raw(b"x", version=2)) == "wire.version"


@pytest.mark.parametrize(
    "numbers",
    [
        {"index": 7, "count": 5, "size": 5 * CHUNK},
        {"index": 5, "count": 5, "size": 5 * CHUNK},
        {"index": 0, "count": 5, "size": 4 * CHUNK},
        {"index": 0, "count": 0, "size": 0},
        {"index": 0, "count": 2**32 - 1, "size": CHUNK},
        {"index": 2**32 - 1, "count": 2, "size": 2 * CHUNK},
    ],
)
def test_numbers_that_contradict_each_other_are_malformed(numbers):
    assert code(raw(bytes(CHUNK), **numbers)) == "wire.malformed"


@pytest.mark.parametrize("size", [LIMIT + 1, 2**40, 2**64 - 1])
def test_a_frame_above_the_limit_is_refused_before_memory_is_taken(size):
    message = raw(b"x", index=0, count=min(chunks.count(size), 2**32 - 1), size=size)
    tracemalloc.start()
    try:
        assert code(message) == "wire.too_large"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_two_sizes_for_one_digest_are_malformed(small):
    frame = b"a" * 20
    assembler = Assembler(100)
    assembler.add(next(split(frame, digest(frame))))
    with pytest.raises(WireError, match="two sizes for one digest") as caught:
        assembler.add(raw(b"b" * 7, known_as=digest(frame), count=2, size=14))
    assert caught.value.code == "wire.malformed"


def test_a_frame_that_is_not_what_it_was_announced_as_is_corrupt_and_may_be_sent_again():
    assembler = Assembler(LIMIT)
    spoilt = THREE[0][:-1] + b"?"
    for message in (spoilt, THREE[1]):
        assert assembler.add(message) is None
    with pytest.raises(WireError) as caught:
        assembler.add(THREE[2])
    assert caught.value.code == "wire.corrupt"
    assert assembler.underway() == ()
    assert [assembler.add(message) for message in THREE][-1] == (digest(FRAME), FRAME)


def test_a_single_chunk_is_checked_too():
    assert code(raw(b"abc", known_as=bytes(32))) == "wire.corrupt"
    assert Assembler(LIMIT).add(raw(b"abc", known_as=digest(b"abc"))) == (digest(b"abc"), b"abc")


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_at_all_are_refused_or_read(data, begins_well):
    try:
        part = read(b"EC\x01\x00" + data if begins_well else data, LIMIT)
    except WireError:
        return
    assert part.index < part.count
