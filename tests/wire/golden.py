"""One message of every kind, and how they stand in golden_v3.json: as version 3 of the protocol first wrote them.

`python tests/wire/golden.py` adds messages that are new; it never writes one again, because devices in the field
will go on saying them the way they are there.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel

from edgefl.base.seeds import stream
from edgefl.base.vector import Layout
from edgefl.wire import chunks, tensors
from edgefl.wire import messages as m
from edgefl.wire.codecs import Float32, codec
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer

FILE = Path(__file__).with_name("golden_v3.json")
DIGEST = bytes(range(32))
SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(DIGEST))
VECTOR = np.array([1.5, -2.0, 0.25, 3e-5], np.float32)
TENSORS, PARTS, _ = tensors.encode({"delta": VECTOR, "extra/count": np.array([3, 4], np.int64)}, Float32())

SEEN = {"received/table": np.array([[3, 1], [0, 4]]), "received/loss": np.array(2.5), "received/sums": np.zeros((4, 0))}
COUNTED, COUNTS, _ = tensors.encode(SEEN, Float32())

FRAMES: dict[str, BaseModel] = {
    "task": m.Assignment(
        job="digits",
        run_id="a1b2",
        round=7,
        attempt=1,
        model="0011223344556677",
        previous="8899aabbccddeeff",
        graphs="ffeeddccbbaa9988",
        overtime=True,
        counted=6,
        batches=50,
        seconds=12.5,
    ),
    "receipt": m.Receipt(job="digits", round=7, digest=DIGEST, verdict="accepted", reason="late, kept by policy"),
    "refusal": m.Refusal(code="device.duplicate", reason="two of them", installation="9f"),
    "missing": m.Missing(digest=DIGEST, indexes=(0, 7, 300)),
    "answer": m.Answer(
        job="digits",
        run_id="a1b2",
        round=7,
        device="pi-01",
        model="0011223344556677",
        weight=120.0,
        steps=50,
        seconds_per_step=0.125,
        tensors=TENSORS,
    ),
    "holding": m.Holding(job="digits", run_id="a1b2", round=7, digest=DIGEST, size=123456),
    "absent": m.Absent(job="digits", model="0011223344556677"),
    "declined": m.DeclinedMessage(job="digits", round=7, reason="no data"),
    "busy": m.BusyMessage(job="digits", round=7, reason="at work on round 3 of another run"),
    "working": m.Working(job="digits", round=7, steps=21),
    "renewal": m.Renewal(job="digits", request="-----BEGIN CERTIFICATE REQUEST-----"),
    "renewed": m.Renewed(certificate="-----BEGIN CERTIFICATE-----"),
    "addresses": m.Addresses(number=2, brokers=("mqtts://new.local:8883", "mqtts://old.local:8883")),
    "renew": m.Renew(job="digits", run_id="a1b2"),
    "model": m.Broadcast(job="digits", round=7, tensors=TENSORS),
    "graphs": m.Graphs(job="digits"),
}
FRAMES["enclosed"] = FRAMES["task"].model_copy(update={"enclosed": m.Enclosed(manifest=b"{}", frame=b"a small model")})
VITALS = m.WireVitals(
    temperature=61.5,
    throttled=False,
    load=0.25,
    memory_free=1 << 31,
    memory_total=1 << 32,
    disk_free=10**10,
    disk_total=3 * 10**10,
    battery=0.5,
    charging=True,
)
FRAMES["faring"] = FRAMES["working"].model_copy(update={"vitals": VITALS})
FRAMES["evaluating"] = FRAMES["task"].model_copy(update={"purpose": "evaluate", "evaluates": 10, "held_back": 0.2})
FRAMES["evaluated"] = FRAMES["answer"].model_copy(update={"purpose": "evaluate", "steps": 0, "tensors": COUNTED})
FRAMES["call"] = m.Call(task=FRAMES["task"].model_copy(update={"counted": 0, "batches": None, "seconds": None}),
                        number=7, slots=bytes(range(36)) * 2, manifest=b"{}")  # fmt: skip
FRAMES["request"] = m.DeviceRequest(id="0a1b", what="doctor", by="anna on base")
FRAMES["reply"] = m.Reply(
    id="0a1b",
    findings=(m.Examined(what="clock", level="wrong", text="1970-01-01 00:00 UTC", remedy="set it"),),
    lines=("12:00:00 connected",),
    vitals=VITALS,
)
RETAINED: dict[str, m.Presence | m.JobState | m.Manifest] = {
    "presence": m.Presence(
        protocol=1,
        online=True,
        installation="9f",
        birth=3,
        host="pi",
        version="0.1.0",
        samples=120,
        back_end="onnxruntime",
    ),
    "resting": m.Presence(
        online=False, installation="9f", birth=3, resting="rests: 84.0 °C, at most 70", vitals=VITALS
    ),
    "measured": m.Presence(
        online=True, installation="9f", birth=3, version="0.1.0", samples=120, arch="aarch64", memory_mb=905
    ),
    "answering": m.Presence(online=True, installation="9f", birth=3, answers=True),
    "state": m.JobState(protocol=1, job="digits", run_id="a1b2", phase="training", round=7, spread=2.5),
    "manifest": m.Manifest(
        protocol=1,
        job="digits",
        run_id="a1b2",
        round=7,
        digest=DIGEST.hex(),
        size=123456,
        layout=m.Shape.of(Layout(("w", "b", "seen"), ((2, 3), (3,), ()), 1)),
        algorithm={"name": "fedavg", "lr": 0.1, "batches": 50},
        network="cnn",
        sample=(1, 8, 8),
        classes=10,
        loss="cross_entropy",
        codec="float16",
        seed=7,
        compress=True,
    ),
}
RETAINED["tables"] = RETAINED["manifest"].model_copy(
    update={"codec": {"codec": "topk", "share": 0.01, "values": "float16"}, "down": "int8"}
)
LAYOUT = Layout(("w", "b", "seen"), ((20, 20), (9,), (2,)), 1)
LONG = np.concatenate([np.arange(400) * 37 % 101 / 50 - 1, np.arange(9) / 512, [7.25, 1e-9]]).astype(np.float32)
PAYLOADS = {"int8": codec("int8"), "topk": codec({"codec": "topk", "share": 0.05})}


def written(name: str) -> bytes:
    """The message as this version writes it."""
    if name in RETAINED:
        return RETAINED[name].model_dump_json().encode()
    if name == "chunk":
        frame = written("answer")
        return chunks.chunk(frame, chunks.digest(frame), 0)
    if name in PAYLOADS:
        return bytes(PAYLOADS[name].encode(LONG, LAYOUT, stream(7, 3, "pi-01", "codec"))[0])
    if name in ("signed", "envelope"):
        speaker = Speaker(SIGNER, "default", 3)
        sealed = speaker.seal("up", written("chunk"), job="digits", run_id="a1b2", device="pi-01")
        return SIGNER.sign(written("manifest")) if name == "signed" else sealed
    if name == "compressed":
        return m.frame(m.Graphs(job="digits"), (b"the same again, " * 64,), compress=True)
    parts = {"answer": PARTS, "model": PARTS, "evaluated": COUNTS, "graphs": (b"bundle",), "call": (b"a model",)}.get(
        name, ()
    )
    return m.frame(FRAMES[name], parts)


NAMES = (*FRAMES, *RETAINED, *PAYLOADS, "chunk", "compressed", "signed", "envelope")


def golden() -> dict[str, bytes]:
    """Every message as it was written when its kind was new."""
    held: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return {name: bytes.fromhex(text) for name, text in held.items()}


def main() -> int:
    known = golden()
    new = {name: written(name) for name in NAMES if name not in known}
    lines = {name: data.hex() for name, data in {**known, **new}.items()}
    FILE.write_text(json.dumps(lines, indent=1) + "\n")
    print(f"{len(new)} new: {', '.join(new) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
