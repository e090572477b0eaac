"""A device that was not updated is still understood, and still understands: messages as version 3 first wrote them."""

import json
import struct
from typing import Any, get_args

import msgpack
import numpy as np
import pytest
from golden import DIGEST, FRAMES, LAYOUT, LONG, NAMES, PAYLOADS, RETAINED, SIGNER, VECTOR, golden, written

from edgefl.job.run.work import unpack_answer
from edgefl.job.transforms.transform import VectorForm
from edgefl.wire import chunks, signed, tensors, topics
from edgefl.wire import messages as m
from edgefl.wire.frames import unpack
from edgefl.wire.signed import SigningContext
from edgefl.wire.signing import claim

LIMIT = 1 << 20
READERS = {
    **dict.fromkeys(("task", "evaluating", "enclosed", "receipt", "refusal", "renewed"), m.TO_DEVICE),
    **dict.fromkeys(("addresses", "renew", "request"), m.TO_DEVICE),
    **dict.fromkeys(("missing", "answer", "evaluated", "holding", "absent", "declined"), m.TO_COORDINATOR),
    **dict.fromkeys(("busy", "working", "faring", "renewal"), m.TO_COORDINATOR),
    "reply": m.TO_SERVER,
    "model": m.BROADCAST,
    "graphs": m.GRAPHS,
    "call": m.CALL,
}
GOLDEN = golden()


def test_every_kind_of_message_has_one_that_is_kept() -> None:
    kinds = {
        kind.model_fields["kind"].default
        for union in (m.ToDevice, m.ToCoordinator, m.ToServer)
        for kind in get_args(get_args(union)[0])
    }
    assert kinds | {"model", "graphs", "call", "enclosed", "evaluating", "evaluated", "faring"} == set(READERS), (
        "a new message needs an example in golden.py"
    )
    assert set(NAMES) == set(GOLDEN), "python tests/wire/golden.py"


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_of_version_3_still_says_the_same(name: str) -> None:
    message, _ = m.read(READERS[name], GOLDEN[name], LIMIT)
    assert message == FRAMES[name]


@pytest.mark.parametrize("name", RETAINED)
def test_what_version_3_retained_still_says_the_same(name: str) -> None:
    assert m.read_json(type(RETAINED[name]), GOLDEN[name]) == RETAINED[name]


def test_tensors_of_version_3_still_have_the_same_numbers() -> None:
    for name in ("answer", "model"):
        message, opened = m.read(READERS[name], GOLDEN[name], LIMIT)
        arrays = tensors.decode(message.tensors, opened.body)
        assert np.array_equal(arrays["delta"], VECTOR)
        assert arrays["extra/count"].tolist() == [3, 4]


def test_counts_of_version_3_still_say_the_same() -> None:
    message, opened = m.read(READERS["evaluated"], GOLDEN["evaluated"], LIMIT)
    seen = unpack_answer(message, opened.body, VectorForm(len(VECTOR))).seen
    assert seen is not None
    assert (seen.received.table.tolist(), seen.received.loss) == ([[3, 1], [0, 4]], 2.5)


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_vector_in_few_bytes_still_has_the_same_numbers(name: str) -> None:
    """And a seed still rounds it in the same way: a run must be the same model after an update of edgefl."""
    assert GOLDEN[name] == written(name)
    back = PAYLOADS[name].decode(GOLDEN[name], LAYOUT.size)
    kept = np.flatnonzero(back) if name == "topk" else slice(None)
    np.testing.assert_allclose(back[kept], LONG[kept], atol=1 / 127)
    assert back[-2:].tobytes() == LONG[-2:].tobytes()


def test_a_chunk_and_a_compressed_body_of_version_3_are_still_read() -> None:
    whole = chunks.Assembler(LIMIT).add(GOLDEN["chunk"])
    assert whole is not None
    assert whole[1] == GOLDEN["answer"]
    assert bytes(unpack(GOLDEN["compressed"], LIMIT).body) == b"the same again, " * 64


def test_a_manifest_that_version_3_signed_is_still_believed() -> None:
    claimed = claim(GOLDEN["signed"])
    claimed.prove()
    assert claimed.key == SIGNER.key
    assert m.read_json(m.Manifest, claimed.statement) == RETAINED["manifest"]


def test_an_envelope_that_version_3_sealed_is_still_believed() -> None:
    envelope = signed.opened(GOLDEN["envelope"])
    envelope.prove(SigningContext("up", "default", "digits", "a1b2", "pi-01"))
    assert (envelope.key, envelope.counter, envelope.run_id) == (SIGNER.key, 3 << 32, "a1b2")
    assert envelope.payload == GOLDEN["chunk"]


@pytest.mark.parametrize("name", [*FRAMES, *RETAINED])
def test_an_older_device_finds_everything_it_relies_on_in_what_is_written_now(name: str) -> None:
    before, now = (_fields(name, data) for data in (GOLDEN[name], written(name)))
    assert before.items() <= now.items()


def _fields(name: str, data: bytes) -> dict[str, Any]:
    """What stands in a message, read by hand as any version would."""
    if name in RETAINED:
        read: dict[str, Any] = json.loads(data)
        return read
    magic, version, flags, head, body = struct.unpack_from("<4sBBIQ", data)
    assert (magic, version, flags) == (b"EFLF", 1, 0)
    start = -(-(18 + head) // 64) * 64
    assert len(data) == start + body
    return {**msgpack.unpackb(data[18 : 18 + head]), "the body": data[start:]}


def test_the_topics_of_version_3_stay_where_they_are() -> None:
    assert topics.PROTOCOL == 3, "the file is named after it"
    assert topics.state("f", "j") == "edgefl/v1/f/j/state"
    assert topics.manifest("f", "j", "m") == "edgefl/v1/f/j/model/m/manifest"
    assert topics.chunk("f", "j", "m", 300) == "edgefl/v1/f/j/model/m/1/44"
    assert topics.down("f", "j", "d") == "edgefl/v1/f/j/dev/d/down"
    assert topics.up("f", "j", "d") == "edgefl/v1/f/j/dev/d/up"
    assert topics.presence("f", "d") == "edgefl/v1/f/presence/d"
    assert DIGEST.hex() in GOLDEN["manifest"].decode()
