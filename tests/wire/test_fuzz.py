"""Whatever bytes come, a reader gives back a message or says which one is wrong; it never does anything else."""

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgefl.base.errors import ConfigError, EdgeflError, WireError
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.wire import chunks, tensors
from edgefl.wire.frames import pack, unpack
from edgefl.wire.messages import (
    TO_COORDINATOR,
    TO_DEVICE,
    Answer,
    JobState,
    Manifest,
    Presence,
    frame,
    read,
    read_json,
)

LIMIT = 1 << 20
few, some, many = (settings(deadline=None, max_examples=n) for n in (3, 60, 200))  # a busy machine is no finding
GOOD = frame(
    Answer(
        job="j",
        run_id="r",
        round=1,
        device="d",
        model="m",
        weight=1.0,
        steps=1,
        tensors=({"name": "delta", "kind": "float32", "shape": (4,), "bytes": 16},),
    ),
    (bytes(16),),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def mutated(draw: st.DrawFn, good: bytes) -> bytes:
    """A good message with some bytes changed, cut off or added."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["change", "cut", "add"])):
            case "change" if data:
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at:]
            case _:
                data[at:at] = draw(st.binary(max_size=6))
    return bytes(data)


@contextmanager
def refused(kind: type[EdgeflError], *words: str) -> Iterator[None]:
    """Nothing happens in here, or this error, of one line and with one of these words."""
    try:
        yield
    except kind as error:
        message = f"{getattr(error, 'code', '')} {error}"
        assert any(word in message for word in words), message
        assert "\n" not in message


def reads(data: bytes) -> None:
    for kind in (TO_COORDINATOR, TO_DEVICE):
        with refused(WireError, "wire."):
            message, opened = read(kind, data, LIMIT)
            if isinstance(message, Answer):
                tensors.decode(message.tensors, opened.body)


@some
@given(st.binary(max_size=200))
@example(b"")
@example(b"EFLF\x01\x00" + b"\xff" * 12)
def test_any_bytes_are_a_frame_or_are_refused(data: bytes) -> None:
    reads(data)


@given(mutated(GOOD))
@many
def test_a_damaged_frame_is_refused_or_still_a_message(data: bytes) -> None:
    reads(data)


@some
@given(
    st.dictionaries(st.text(max_size=8), VALUES, max_size=6),
    st.binary(max_size=32),
    st.sampled_from(["answer", "task", "receipt", "holding", "missing", "?"]),
)
def test_any_header_is_a_message_or_is_refused(header: dict[str, object], body: bytes, kind: str) -> None:
    reads(pack({**header, "kind": kind}, (body,)))


@some
@given(mutated(pack({"kind": "x"}, (bytes(500),), compress=True)))
def test_a_damaged_compressed_body_never_grows_beyond_the_limit(data: bytes) -> None:
    with refused(WireError, "wire."):
        assert len(unpack(data, 600).body) <= 600


@some
@given(st.lists(mutated(chunks.chunk(GOOD, chunks.digest(GOOD), 0)) | st.binary(max_size=80), max_size=6))
def test_any_chunks_make_the_frame_they_announce_or_nothing(messages: list[bytes]) -> None:
    assembler = chunks.Assembler(LIMIT)
    for message in messages:
        try:
            whole = assembler.add(message)
        except WireError:
            continue
        assert whole is None or chunks.digest(bytes(whole[1])) == whole[0]
    assert len(assembler.underway()) <= 2


@some
@given(st.integers(0, 9), st.permutations(range(9)), st.lists(st.integers(0, 8), max_size=9))
def test_chunks_in_any_order_and_any_number_make_one_frame(start: int, order: list[int], twice: list[int]) -> None:
    data = bytes(range(256)) * ((8 * chunks.CHUNK) // 256 + 1 + start)
    known_as, assembler = chunks.digest(data), chunks.Assembler(1 << 30)
    indexes = [i for i in (*twice, *order) if i < chunks.count(len(data))]
    frames = [assembler.add(chunks.chunk(data, known_as, index)) for index in indexes]
    assert sum(whole is not None for whole in frames) >= 1
    assert all(whole is None or bytes(whole[1]) == data for whole in frames)


@given(st.integers(2, 40))
@few
def test_a_thousand_transfers_that_never_end_take_the_room_of_two(size: int) -> None:
    assembler = chunks.Assembler(1 << 30)
    for number in range(1000):
        frame_size = size * chunks.CHUNK
        head = chunks._HEAD.pack(chunks.MAGIC, chunks.VERSION, 0, number.to_bytes(32, "big"), 0, size, frame_size)
        assembler.add(head + bytes(chunks.CHUNK))
    assert len(assembler.underway()) == 2


@some
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@example(b'{"online": 1e999}')
@example(b"[" * 5000)
def test_any_json_is_a_message_or_is_refused(payload: bytes) -> None:
    for kind in (Presence, JobState, Manifest):
        with refused(WireError, "wire.malformed"):
            read_json(kind, payload)


@some
@given(
    st.dictionaries(
        st.sampled_from(["run", "task", "rounds", "wire", "agent", "data", "algorithm", "x"]), VALUES, max_size=4
    )
)
def test_any_table_is_a_configuration_or_one_line_about_what_is_wrong(table: dict[str, object]) -> None:
    for kind in (RunFile, AgentFile):
        with refused(ConfigError, "fuzz.toml"):
            parse(kind, table, "fuzz.toml", environment={})
