"""docs/protocol.md is enough to read and write the wire: what was made from it agrees with ours, byte for byte."""

import ast
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import second_device
import second_reader as second
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from golden import DIGEST, FRAMES, LAYOUT, LONG, RETAINED, SIGNER, VECTOR, golden
from pydantic import BaseModel, ValidationError
from second_streams import Stream

from coordinator.decide import round_actions
from coordinator.shell import guards, outbox, publisher
from device_agent.decide import session
from device_agent.shell.model_cache import STALLED
from device_agent.shell.service import OPEN, QUIET
from edgefl.base import seeds
from edgefl.base.errors import WireError
from edgefl.base.vector import Layout
from edgefl.job.config.schema import Guards
from edgefl.job.run import reported_loss
from edgefl.learn.data.held_back import rows_set_aside
from edgefl.learn.models.onnx import bundle
from edgefl.learn.training.divergence import EXPLODED
from edgefl.wire import calls, chunks, codecs, frames, sealing, signed, signing, tensors, topics
from edgefl.wire import messages as m
from edgefl.wire.calls import Callee
from edgefl.wire.codec_int8 import BLOCK, LEVELS
from edgefl.wire.mqtt import KEEPALIVE
from edgefl.wire.reconnect import FIRST_DELAY, LONGEST_DELAY, Pause
from edgefl.wire.signed import SigningContext, Speaker
from edgefl.wire.transport import LARGEST

GOLDEN = golden()
LIMIT = 1 << 20
BESIDE = Path(second.__file__).parent
OURS = {"edgefl", "device_agent", "coordinator", "gateway"}
MODELS: dict[str, type[BaseModel]] = {
    "presence": m.Presence,
    "state": m.JobState,
    "manifest": m.Manifest,
    "shape": m.Shape,
    "rows": m.RowForm,
    "rowfield": m.RowField,
    "vitals": m.WireVitals,
    "model": m.Broadcast,
    "tensor": m.Tensor,
    "graphs": m.Graphs,
    "task": m.Assignment,
    "enclosed": m.Enclosed,
    "call": m.Call,
    "receipt": m.Receipt,
    "refusal": m.Refusal,
    "missing": m.Missing,
    "renewed": m.Renewed,
    "addresses": m.Addresses,
    "renew": m.Renew,
    "request": m.DeviceRequest,
    "reply": m.Reply,
    "examined": m.Examined,
    "answer": m.Answer,
    "holding": m.Holding,
    "absent": m.Absent,
    "declined": m.DeclinedMessage,
    "busy": m.BusyMessage,
    "working": m.Working,
    "renewal": m.Renewal,
}
CONSTANTS = {
    "TOPIC_ROOT": topics.ROOT,
    "PROTOCOL": topics.PROTOCOL,
    "NAME": topics.NAME,
    "RESERVED": " ".join(sorted(topics._RESERVED)),
    "SERVER": topics.SERVER,
    "DIAGNOSIS": topics.DIAGNOSIS,
    "GROUP": topics.GROUP,
    "FRAME_MAGIC": frames.MAGIC,
    "FRAME_VERSION": frames.VERSION,
    "FRAME_COMPRESSED": frames.COMPRESSED,
    "FRAME_SEALED": frames.SEALED,
    "FRAME_ALIGNED": frames.ALIGNED,
    "HEADER_LIMIT": frames.HEADER_LIMIT,
    "SMALL_FRAME": m.SMALL,
    "CALL_BODY": m.CALLED,
    "REPLY_FRAME": m.REPLY,
    "MOST_TENSORS": m.MOST_TENSORS,
    "ZSTD_WINDOW": 2**frames.WINDOW,
    "CHUNK_MAGIC": chunks.MAGIC,
    "CHUNK_VERSION": chunks.VERSION,
    "CHUNK": chunks.CHUNK,
    "TOGETHER": chunks.TOGETHER[0],
    "ENVELOPE_MAGIC": signed.MAGIC,
    "ENVELOPE_VERSION": signed.VERSION,
    "MESSAGE_PREFIX": signed.PREFIX,
    "MANIFEST_PREFIX": signing.PREFIX,
    "KEY_TEXT": signing.KIND,
    "SEAL_TEXT": sealing.KIND,
    "LIFE_BITS": signed.LIFE,
    "LATEST_LIFE": signed.LATEST,
    "SEAL": frames.SEAL,
    "SEALING_KEY_INFO": b"edgefl sealing key 1",  # what it derives is compared below, as is the next one
    "SEALED_ANSWER_INFO": b"edgefl sealed answer 1",
    "SLOT": m.SLOT,
    "MARK": calls.MARK,
    "SLOT_PERSON": calls._PERSON,
    "JSON_LIMIT": m.Presence.limit,
    "MANIFEST_LIMIT": m.Manifest.limit,
    "BUNDLE_VERSION": bundle.VERSION,
    "RAW_TYPES": " ".join(sorted(tensors._DTYPES)),
}
PAGE = second.PAGE.read_text(encoding="utf-8")
GUARDS, WORDS = Guards(), ("no", "one", "two", "three")
LAYOUT_TABLE = {"names": list(LAYOUT.names), "shapes": [list(shape) for shape in LAYOUT.shapes], "buffers": 1}


def section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


# ---- it is a second reader -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["second_reader.py", "second_streams.py", "second_device.py"])
def test_the_second_reader_imports_nothing_of_ours(name: str) -> None:
    beside = {"second_reader", "second_streams", "second_device"}
    others = {"msgpack", "numpy", "blake3", "cryptography", "paho", "backports", "compression", "onnxruntime"}
    for node in ast.walk(ast.parse((BESIDE / name).read_text(encoding="utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            modules = [node.module or ""]
        for module in modules:
            top = module.partition(".")[0]
            assert top not in OURS
            assert top in beside | others | set(sys.stdlib_module_names), module
        if isinstance(node, ast.Name):
            assert node.id not in {"__import__", "exec", "eval"}
        if isinstance(node, ast.Attribute):
            assert node.attr != "import_module"


# ---- the page, the second reader and the program say the same ------------------------------------------------------


def as_written(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    text = value.decode() if isinstance(value, bytes) else value
    return '"' + text.replace("\0", "\\0").replace("|", "\\|") + '"'


def test_constants_are_those_of_the_page_and_of_the_program() -> None:
    page = dict(re.findall(r"^\| `(\w+)` \| `(.+)` \|$", section("Constants"), re.MULTILINE))
    theirs = {name: value for name, value in vars(second).items() if name in page}
    assert {name: as_written(value) for name, value in theirs.items()} == page
    assert {name: as_written(value) for name, value in CONSTANTS.items()} == page


def test_every_constant_of_the_second_reader_stands_in_the_page() -> None:
    page = set(re.findall(r"^\| `(\w+)` \|", section("Constants"), re.MULTILINE))
    constants = {
        name for name, value in vars(second).items() if name.isupper() and isinstance(value, int | str | bytes)
    }
    assert constants == page


def test_layouts_of_bytes_add_up() -> None:
    """The offsets that the page shows are those at which things stand."""
    for title, struct in (
        ("Envelope", second._ENVELOPE),
        ("Chunk", second._CHUNK),
        ("Frame", second._FRAME),
    ):
        rows = [(int(a), int(b)) for a, b in re.findall(r"^ +(\d+) +(\d+)  \S", section(title), re.MULTILINE)]
        assert [start for start, _ in rows] == [sum(size for _, size in rows[:i]) for i in range(len(rows))]
        assert sum(size for _, size in rows) == struct.size, title
    assert (second._ENVELOPE.size, second._CHUNK.size, second._FRAME.size) == (signed._HEAD.size, chunks.HEAD, 18)


def test_the_topics_of_the_page_are_those_of_the_program() -> None:
    shown = re.findall(r"^\| `(edgefl/v1/\S+)` \|", section("Topics"), re.MULTILINE)
    names = {"fleet": "f", "job": "j", "device": "d", "site": "s", "id": "m", "group": "1", "i": "44"}
    assert [topic.format(**names) for topic in shown] == [
        topics.presence("f", "d"),
        topics.state("f", "j"),
        topics.manifest("f", "j", "m"),
        topics.chunk("f", "j", "m", 300),
        topics.round("f", "j"),
        topics.down("f", "j", "d"),
        topics.up("f", "j", "d"),
        topics.down("f", topics.SERVER, "d"),
        topics.up("f", topics.SERVER, "d"),
        topics.site("f", "s"),
    ]


def test_every_message_has_a_row_and_a_table_of_fields() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", section("Messages"), re.MULTILINE))
    assert rows == second.FRAMED | {"presence", "state", "manifest"}
    assert set(second.FIELDS) == set(MODELS)
    bodies = r"^\| `(\w+)` .* \| (?:yes|the model, if it is small) \|$"
    with_body = set(re.findall(bodies, section("Messages"), re.MULTILINE))
    assert with_body == {kind.model_fields["kind"].default for kind in m.WITH_BODY}


@pytest.mark.parametrize("kind", MODELS)
def test_a_table_has_the_fields_of_the_program_and_their_defaults(kind: str) -> None:
    fields = {
        name: field for name, field in MODELS[kind].model_fields.items() if name != "kind" or kind in {"tensor", "rows"}
    }
    assert set(second.FIELDS[kind]) == set(fields)
    for name, field in fields.items():
        rule = second.FIELDS[kind][name]
        assert (rule.default == "required") == field.is_required(), name
        assert field.is_required() or second.default(rule) == field.default, name


EDGES: list[Any] = [
    *(None, True, False, "", "a", "a.b", "a:b", "a/b", "-a", "\n", "e" * 64, "f" * 65, "x" * 255, "x" * 256),
    *("x" * 2001, "0" * 64, "x25519:" + "A" * 43, "x25519:" + "A" * 42, "train", "describe"),
    *("gathering", "accepted", "heads"),
    *(-1, 0, 1, 2**24 + 1, 2**31, 2**31 + 1, 2**40 + 1, 2**53, 2**53 + 1, 10_000, 10_001, 600.0, 600.5),
    *(0.5, 0.0, 1e-10, 1e6, 1.1e6, 1e12, 1.1e12, 201.0, -101.0),
    *(b"", b"x" * 31, b"x" * 32, b"x" * 36, b"x" * 37, b"x" * 65537),
    *([], ["a"], [1], [-1], [0] * 9, [[1]], {}, [{"name": "a"}]),
]  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_both_take_the_same_values_of_each_field(kind: str) -> None:
    """Ours is asked field by field; where it takes a value of another type for the right one, it need not be asked."""
    example = sample_of(kind)
    for field, rule in second.FIELDS[kind].items():
        for value in EDGES:
            if not plainly(rule.type, value):
                continue
            if (kind, field) in {("call", "slots"), ("shape", "shapes"), ("shape", "names"), ("shape", "buffers")}:
                continue  # fields that must agree with each other
            assert second.fits(rule.type, value) == accepted(kind, {**example, field: value}), (field, value)


def accepted(kind: str, fields: dict[str, Any]) -> bool:
    try:
        MODELS[kind].model_validate(fields)
    except ValidationError:
        return False
    return True


def plainly(described: str, value: Any) -> bool:
    """Whether the value is of the sort that the type is about, so that limits alone decide."""
    sorts: dict[str, tuple[Any, ...]] = {
        "int": (int,), "float": (int, float), "above": (int, float), "bool": (bool,), "bin": (bytes,), "map": (dict,),
        "list": (list,), "table": (), "null": (type(None),),
    }  # fmt: skip
    words = [one.split()[0] for one in described.split(" or ")]
    allowed = tuple(sort for word in words for sort in sorts.get(word, (str,)))
    return isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))


def sample_of(kind: str) -> dict[str, Any]:
    """A message of this kind that is as it should be."""
    if kind in FRAMES and kind != "enclosed":
        return FRAMES[kind].model_dump()
    if kind in RETAINED:
        return RETAINED[kind].model_dump()
    parts: dict[str, dict[str, Any]] = {
        "shape": {"names": ["a"], "shapes": [[1]]},
        "rows": {"kind": "heads"},
        "rowfield": {"name": "a", "shape": [1], "whole": False, "learnt": False},
        "vitals": {},
        "examined": {"what": "clock", "level": "ok", "text": "it is right"},
        "tensor": {"name": "a", "kind": "raw", "shape": [1], "bytes": 4},
        "enclosed": {"manifest": b"", "frame": b""},
    }
    return parts[kind]


# ---- golden messages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMES)
def test_a_golden_frame_is_read_as_ours_reads_it_and_written_again(name: str) -> None:
    kind, fields, body = second.read_message(GOLDEN[name], LIMIT)
    ours = plain(FRAMES[name].model_dump(exclude={"kind"}))
    if kind == "call":
        fields["task"], ours["task"] = second.checked("task", fields["task"]), {**ours["task"]}
        ours["task"].pop("kind")
    assert plain(fields) == ours
    assert second.frame(second.read_frame(GOLDEN[name], LIMIT).header, body) == GOLDEN[name]


@pytest.mark.parametrize("name", RETAINED)
def test_golden_json_is_read_as_ours_reads_it(name: str) -> None:
    kinds = dict.fromkeys(("resting", "measured", "answering"), "presence")
    kind = {**kinds, "tables": "manifest"}.get(name, name)
    assert plain(second.read_json(kind, GOLDEN[name], second.MANIFEST_LIMIT)) == plain(RETAINED[name].model_dump())


def plain(value: Any) -> Any:
    """Lists and tuples are the same thing on the wire."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def test_golden_arrays_have_their_numbers() -> None:
    for name in ("answer", "model"):
        _, fields, body = second.read_message(GOLDEN[name], LIMIT)
        arrays = second.read_tensors(fields["tensors"], body)
        assert arrays["delta"].tobytes() == VECTOR.tobytes()
        assert arrays["extra/count"].tolist() == [3, 4]
    _, fields, body = second.read_message(GOLDEN["evaluated"], LIMIT)
    assert second.read_tensors(fields["tensors"], body)["received/table"].tolist() == [[3, 1], [0, 4]]


@pytest.mark.parametrize(("name", "codec"), [("int8", "int8"), ("topk", {"codec": "topk", "share": 0.05})])
def test_golden_payloads_of_codecs_are_read_and_written_with_the_same_draws(name: str, codec: Any) -> None:
    ours = codecs.codec(codec)
    assert second.encode(LONG, codec, LAYOUT_TABLE, Stream(7, 3, "pi-01", "codec")) == (name, GOLDEN[name])
    assert second.decode(name, GOLDEN[name], LAYOUT.size).tobytes() == ours.decode(GOLDEN[name], LAYOUT.size).tobytes()


@pytest.mark.parametrize("codec", ["float32", "float16", "int8", {"codec": "topk", "share": 0.02, "values": "float32"}])
def test_codecs_write_what_ours_write_of_a_larger_vector(codec: Any) -> None:
    layout = Layout(("a", "b", "zero", "seen"), ((70_001,), (3, 5), (4,), (6,)), 1)
    v = np.random.default_rng(1).normal(size=layout.size).astype(np.float32)
    v[70_016:70_020] = 0
    table = {"names": list(layout.names), "shapes": [list(shape) for shape in layout.shapes], "buffers": 1}
    ours = codecs.codec(codec)
    payload, seen = ours.encode(v, layout, seeds.stream(1, 2, "d", "codec"))
    kind, theirs = second.encode(v, codec, table, Stream(1, 2, "d", "codec"))
    assert theirs == bytes(payload)
    assert second.decode(kind, theirs, layout.size).tobytes() == seen.tobytes()


def test_a_golden_chunk_and_a_golden_compressed_body_are_read() -> None:
    assert second.Assembler(LIMIT).add(GOLDEN["chunk"]) == GOLDEN["answer"]
    assert list(second.split(GOLDEN["answer"])) == [GOLDEN["chunk"]]
    assert second.read_message(GOLDEN["compressed"], LIMIT)[2] == b"the same again, " * 64
    written = second.frame({"kind": "graphs", "job": "digits"}, b"the same again, " * 64, compress=True)
    assert frames.unpack(written, LIMIT).body == b"the same again, " * 64


def test_a_golden_manifest_and_a_golden_envelope_are_believed_and_signed_again() -> None:
    private = Ed25519PrivateKey.from_private_bytes(DIGEST)
    key, manifest = second.read_manifest(GOLDEN["signed"])
    assert (second.key_text(key), plain(manifest)) == (SIGNER.key, plain(RETAINED["manifest"].model_dump()))
    assert second.sign_manifest(private, GOLDEN["manifest"]) == GOLDEN["signed"]
    opened = second.open_envelope(GOLDEN["envelope"], "up", "default", "digits", "pi-01")
    assert (opened.key, opened.counter, opened.run_id) == (key, 3 << second.LIFE_BITS, "a1b2")
    assert opened.payload == GOLDEN["chunk"]
    place = second.Place("up", "default", "digits", "a1b2", "pi-01")
    assert second.envelope(private, place, 3 << 32, GOLDEN["chunk"]) == GOLDEN["envelope"]
    with pytest.raises(second.Refused, match="signature"):
        second.open_envelope(GOLDEN["envelope"], "up", "default", "digits", "pi-02")


# ---- what has no golden message ------------------------------------------------------------------------------------


def test_a_frame_in_chunks_has_one_signature_for_both() -> None:
    private, place = Ed25519PrivateKey.from_private_bytes(DIGEST), second.Place("up", "f", "j", "r", "d")
    data = bytes(range(256)) * 2500
    theirs = [second.envelope(private, place, 5 << 32, one) for one in second.split(data, together=4)]
    pieces = (chunks.parts(data, chunks.digest(data), at, 4) for at in range(0, chunks.count(len(data)), 4))
    ours = [
        head + bytes(part) for head, part in Speaker(SIGNER, "f", 5).seal_frame(pieces, job="j", run_id="r", device="d")
    ]
    assert theirs == ours
    assembler, read = second.Assembler(1 << 20), None
    for one in reversed(ours):
        read = assembler.add(second.open_envelope(one, "up", "f", "j", "d").payload) or read
    assert read == data
    for one in theirs:
        signed.opened(one).prove(SigningContext("up", "f", "j", "r", "d"))


def test_a_sealed_body_opens_on_the_other_side() -> None:
    frame = m.frame(FRAMES["answer"], (b"secret numbers!!" * 2,))
    opener, unsealer = sealing.Opener(SIGNER), second.Unsealer(DIGEST)
    assert opener.key == unsealer.key
    theirs = second.seal(frame, opener.key, bytes(range(1, 33)))
    assert theirs == bytes(sealing.sealed(frame, opener.key, lambda _: bytes(range(1, 33))))
    assert second.read_frame(theirs, LIMIT, unsealer).body == b"secret numbers!!" * 2


def test_a_slot_of_a_call_is_found_by_its_device_alone() -> None:
    task = FRAMES["task"].model_copy(update={"counted": 0, "batches": None, "seconds": None})
    called = [Callee("a", "one", 6, 50, 12.5), Callee("b", "x" * 64), Callee("c", "three", 2**31)]
    data = m.frame(calls.call("f", task, 2**40, called, b"{}"), (b"a model",))
    kind, fields, body = second.read_message(data, second.CALL_BODY)
    assert (kind, body) == ("call", b"a model")
    assert second.own_slot(fields, "f", "a", "one") == {"counted": 6, "batches": 50, "seconds": 12.5}
    assert second.own_slot(fields, "f", "b", "x" * 64) == {"counted": 0, "batches": None, "seconds": None}
    assert second.own_slot(fields, "f", "c", "three") == {"counted": 2**31, "batches": None, "seconds": None}
    assert second.own_slot(fields, "f", "d", "one") is None


@pytest.mark.parametrize(
    "name",
    [(7, 3, "pi-01"), (0, 0, "a"), (-5, 2**31, "device-00", "codec"), (2**70, 1, "x.y_z-1", "held back")],
)
def test_random_streams_are_those_of_numpy(name: tuple[Any, ...]) -> None:
    theirs, ours = Stream(*name), seeds.stream(*name)
    for count in (0, 1, 2, 7, 64, 1000, 4097):
        assert theirs.permutation(count) == ours.permutation(count).tolist()
        assert theirs.next64() == int(ours.integers(0, 2**64 - 1, dtype=np.uint64, endpoint=True))


@pytest.mark.parametrize(("n", "share"), [(1, 0.5), (7, 0.5), (100, 0.2), (101, 0.999)])
def test_the_same_samples_are_set_aside(n: int, share: float) -> None:
    assert second_device.trained_on(n, share, 5, "pi-01") == rows_set_aside(n, share, 5, "pi-01")[0].tolist()


def test_the_numbers_that_the_page_shows_of_a_stream_are_its_numbers() -> None:
    page, shown = section("Random streams"), Stream(7, 3, "pi-01")
    assert f"{shown.next64():#x}, then {shown.next64():#x}" in page
    fresh = Stream(7, 3, "pi-01")
    for _ in range(2):
        assert f"`{' '.join(map(str, fresh.permutation(10)))}`" in page
    for constant in ("INIT_A", "MULT_A", "INIT_B", "MULT_B", "MIX_LEFT", "MIX_RIGHT", "MULTIPLIER"):
        assert f"{getattr(sys.modules['second_streams'], constant):#x}" in page


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"EFLX" + data[4:],
        lambda data: data[:4] + b"\2" + data[5:],
        lambda data: data[:5] + b"\4" + data[6:],
        lambda data: data[:300] + b"\1" + data[301:],  # between header and body
    ],
    ids=["cut off", "longer", "magic", "version", "flags", "zeros"],
)
def test_a_frame_that_is_not_as_the_page_says_is_refused_by_both(change: Any) -> None:
    with pytest.raises(second.Refused):
        second.read_frame(change(GOLDEN["answer"]), LIMIT)
    with pytest.raises(WireError):
        frames.unpack(change(GOLDEN["answer"]), LIMIT)


def test_a_changed_chunk_is_refused() -> None:
    with pytest.raises(second.Refused, match="hash"):
        second.Assembler(LIMIT).add(GOLDEN["chunk"][:-1] + b"!")


@pytest.mark.parametrize(
    "sentence",
    [
        f"a Maximum Packet Size of at least {LARGEST:,}; our agents announce just that",
        f"and a keep-alive of {KEEPALIVE} s",
        f"If nothing comes for {STALLED:g} s, say `absent`",
        f"After {WORDS[session.DISBELIEF]} manifests that cannot be believed, decline",
        f"say it again after {Pause('').first:g} s, then ever later, up to {Pause('').longest:g} s",
        f"announce again, after {Pause('').first:g} s and ever later up to {Pause('').longest:g} s;",
        f"`{m.NOT_IN_RUN}` means only that this run is for others",
        f"(ours: {FIRST_DELAY:g} to {LONGEST_DELAY:g} s)",
        f"Every {OPEN:g} s with work, every {QUIET:g} s without",
        f"with {chunks.AROUND} bytes to spare: every public broker takes {(chunks.CHUNK + chunks.HEAD) // 1024} KiB",
        f"half a second ({round_actions.CONFIRM:g} s)",
        f"finite; the delta's length at most {EXPLODED:g} times (1 + the model's);",
        f"in `extra/…` at most {guards.LARGEST:g} |",
        f"{GUARDS.messages_per_minute:g} a minute besides answers, {GUARDS.megabytes_per_minute:,.0f} MB a minute",
        f"with {WORDS[GUARDS.strikes]} of them within {GUARDS.quarantine_seconds:g} s the device is not heard",
        f"is not heard for {GUARDS.quarantine_seconds:g} s (the run file",
        f"if it has more than {reported_loss.SAMPLES}",
        f"| {WORDS[chunks.Assembler(0).transfers]}; a third takes the place of the oldest |",
        f"-{LEVELS}..{LEVELS}, a chance is added",
        f"in blocks of {BLOCK:,}",
        f"beyond ±{codecs.FLOAT16_MAX:.0f} to that edge",
    ],
)
def test_numbers_in_sentences_are_those_of_the_program(sentence: str) -> None:
    assert sentence in re.sub(r"\s+", " ", PAGE)


def test_what_expires_at_the_broker_does_after_as_many_hours_as_the_page_says() -> None:
    hours = dict(re.findall(r"^\| `edgefl/v1/(\S+)` \|.*?\| (\d+) h[^|]*\|", section("Topics"), re.MULTILINE))
    models, state = publisher.EXPIRES // 3600, outbox.FINISHED_EXPIRES // 3600
    assert [int(hours[key]) for key in hours] == [state, models, models]


@pytest.mark.parametrize(("size", "fine"), [(65_536, True), (65_537, False)])
def test_strings_and_lists_in_a_header_have_the_limits_of_the_page(size: int, fine: bool) -> None:
    assert "strings 65,536 bytes, lists 65,536, maps 4,096 entries" in section("What a receiver enforces")
    for header in ({"a": "x" * size}, {"a": [0] * size}, {str(i): 0 for i in range(4096 if fine else 4097)}):
        for read in (lambda data: second.read_frame(data, 0), lambda data: frames.unpack(data, 0)):
            if fine:
                read(second.frame(header))
                continue
            with pytest.raises((second.Refused, WireError)):
                read(second.frame(header))
