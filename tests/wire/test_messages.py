"""What is said: every message survives its frame, and what a stranger says is checked at the door."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.errors import WireError
from edgefl.base.vector import Layout
from edgefl.wire import messages as m
from edgefl.wire.frames import pack

LIMIT = 1 << 20
TENSOR = {"name": "delta", "kind": "float32", "shape": [2], "bytes": 8}
ANSWER = {
    "kind": "answer",
    "job": "j",
    "run_id": "r",
    "round": 3,
    "device": "pi-1",
    "model": "m",
    "weight": 12.0,
    "steps": 4,
    "tensors": [TENSOR],
}
DIGEST = bytes(range(32))
TO_DEVICE = [
    m.Assignment(job="j", run_id="r", round=1, attempt=0, model="m", batches=3, seconds=1.5),
    m.Receipt(job="j", round=1, digest=DIGEST, verdict="accepted"),
    m.Refusal(code="x", reason="because"),
    m.Missing(digest=DIGEST, indexes=(0, 7)),
]
TO_COORDINATOR = [
    m.Answer.model_validate(ANSWER),
    m.Missing(digest=DIGEST, indexes=()),
    m.Absent(job="j", model="m"),
    m.DeclinedMessage(job="j", round=1, reason="no data"),
    m.Working(job="j", round=1, steps=5),
]
RETAINED = [
    m.Presence(online=True, installation="i", birth=3),
    m.JobState(job="j", run_id="r", phase="training", round=2),
    m.Shape.of(Layout(("w", "b"), ((2, 3), (3,)), 1)),
]


def refused(header, kind=m.TO_COORDINATOR):
    with pytest.raises(WireError) as caught:
        m.read(kind, pack(header), LIMIT)
    assert caught.value.code == "wire.malformed"
    return str(caught.value)


@pytest.mark.parametrize("message", TO_DEVICE, ids=lambda message: message.kind)
def test_what_a_device_is_told_arrives(message):
    assert m.read(m.TO_DEVICE, m.frame(message), LIMIT)[0] == message


@pytest.mark.parametrize("message", TO_COORDINATOR, ids=lambda message: message.kind)
def test_what_a_device_says_arrives(message):
    body = b"body" if isinstance(message, m.Answer) else b""
    arrived, opened = m.read(m.TO_COORDINATOR, m.frame(message, (body,), compress=True), LIMIT)
    assert arrived == message
    assert bytes(opened.body) == body


@pytest.mark.parametrize("message", [*TO_DEVICE, *TO_COORDINATOR[1:]], ids=lambda message: message.kind)
@pytest.mark.parametrize("body", [b"x", bytes(1 << 16)], ids=["plain", "compressed"])
def test_only_answers_and_models_have_a_body(message, body):
    kind = m.TO_DEVICE if message in TO_DEVICE else m.TO_COORDINATOR
    with pytest.raises(WireError) as caught:
        m.read(kind, m.frame(message, (body,), compress=True), LIMIT)
    assert caught.value.code == "wire.too_large"


@pytest.mark.parametrize("message", RETAINED, ids=lambda message: type(message).__name__)
def test_what_is_retained_survives_json(message):
    assert m.read_json(type(message), message.model_dump_json().encode()) == message


def test_a_layout_survives_the_wire():
    layout = Layout(("w", "b"), ((2, 3), (3,)), 1)
    assert m.Shape.of(layout).layout() == layout


def test_keys_of_a_newer_peer_are_ignored():
    answer, _ = m.read(m.TO_COORDINATOR, pack({**ANSWER, "mood": "fine"}), LIMIT)
    assert answer == TO_COORDINATOR[0]


@pytest.mark.parametrize("key", [key for key in ANSWER if key != "kind"])
def test_everything_we_rely_on_is_required(key):
    assert key in refused({k: v for k, v in ANSWER.items() if k != key})


@pytest.mark.parametrize("kind", ["task", "model", "", None, 7])
def test_a_kind_that_is_not_for_us_is_refused(kind):
    refused({**ANSWER, "kind": kind})


@pytest.mark.parametrize("weight", [0, -1, 2**63, float("nan"), float("inf"), "many", None])
def test_a_weight_must_be_a_positive_number_within_reason(weight):
    assert "weight" in refused({**ANSWER, "weight": weight})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("round", -1),
        ("round", 2**40),
        ("steps", -1),
        ("steps", 2**63),
        ("seconds_per_step", float("nan")),
        ("job", ""),
        ("device", "x" * 65),
        ("tensors", [{**TENSOR, "shape": [-1]}]),
        ("tensors", [{**TENSOR, "shape": [1] * 17}]),
        ("tensors", [{**TENSOR, "bytes": -8}]),
        ("tensors", "delta"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_its_key(key, value):
    assert key in refused({**ANSWER, key: value})


@pytest.mark.parametrize("digest", [b"", bytes(31), bytes(33), 7])
def test_a_digest_has_32_bytes(digest):
    refused({"kind": "missing", "digest": digest, "indexes": []})


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 5000,
        msgpack.packb({}),
        b'{"job": "j", "run_id": "r", "phase": "dancing", "round": 1}',
    ],
)
def test_json_that_says_something_else_is_malformed(payload):
    with pytest.raises(WireError, match="JobState: ") as caught:
        m.read_json(m.JobState, payload)
    assert caught.value.code == "wire.malformed"


@pytest.mark.parametrize(
    "payload",
    [
        b'{"names": ["a", "a"], "shapes": [[1], [1]]}',
        b'{"names": ["a"], "shapes": []}',
        b'{"names": ["a"], "shapes": [[1]], "buffers": 2}',
    ],
)
def test_a_layout_that_contradicts_itself_is_the_peer_s_fault(payload):
    with pytest.raises(WireError, match="layout"):
        m.read_json(m.Shape, payload)


@given(st.dictionaries(st.sampled_from(sorted(ANSWER)), st.none() | st.integers(-5, 5) | st.text() | st.binary()))
def test_a_spoilt_answer_is_an_answer_or_refused(spoilt):
    try:
        answer, _ = m.read(m.TO_COORDINATOR, pack({**ANSWER, **spoilt}), LIMIT)
    except WireError:
        return
    assert isinstance(answer, m.Answer)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", float("nan")),
        ("temperature", 1e9),
        ("load", float("inf")),
        ("load", -1.0),
        ("memory_free", -1),
        ("disk_total", 2**60),
        ("battery", 1.5),
        ("throttled", "perhaps"),
        ("charging", {"deep": 1}),
    ],
)
def test_vitals_that_no_machine_has_are_refused(name, value):
    working = {"kind": "working", "job": "j", "round": 1, "steps": 5}
    assert f"working.vitals.{name}" in refused(working | {"vitals": {name: value}})
    assert m.read(m.TO_COORDINATOR, pack(working | {"vitals": {"of_tomorrow": 1}}), LIMIT)[0].vitals == m.WireVitals()
