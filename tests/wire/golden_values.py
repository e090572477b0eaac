"""What the golden messages say, as JSON: golden_v3_values.json, for readers of the wire in other languages.

Decoded by the second reader alone, which knows nothing of our own code. `python tests/wire/golden_values.py` writes it.
"""

import json
from pathlib import Path
from typing import Any

import second_reader as second
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from second_streams import Stream

FILE = Path(__file__).with_name("golden_v3_values.json")
GOLDEN = Path(__file__).with_name("golden_v3.json")
SECRET = bytes(range(32))
FLEET, LIMIT = "default", 1 << 20
JSON_KINDS = {
    "presence": "presence",
    "resting": "presence",
    "measured": "presence",
    "answering": "presence",
    "state": "state",
}
MANIFESTS = {"manifest", "tables"}
PAYLOADS = {"int8": 411, "topk": 411}  # numbers of the vector
STREAMS = ((7, 3, "pi-01"), (7, 3, "pi-01", "codec"), (7, "pi-01", "held back"), (0, 1, "device-00"))


def plain(value: Any) -> Any:
    """Return the value with bytes as hexadecimal text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def said(name: str, data: bytes) -> dict[str, Any]:  # noqa: PLR0911  one kind of entry, one case
    """Return what one golden entry says."""
    if name in JSON_KINDS:
        return {"what": f"JSON of `{JSON_KINDS[name]}`", "fields": plain(json.loads(data))}
    if name in MANIFESTS:
        return {"what": "JSON of `manifest`, not signed yet", "fields": plain(json.loads(data))}
    if name == "signed":
        key, fields = second.read_manifest(data)
        return {"what": "`manifest`, signed", "key": key.hex(), "fields": plain(fields)}
    if name in PAYLOADS:
        numbers = second.decode(name, data, PAYLOADS[name])
        return {"what": f"payload of the codec `{name}`", "numbers": [float(number) for number in numbers]}
    if name == "envelope":
        opened = second.open_envelope(data, "up", FLEET, "digits", "pi-01")
        return {"what": "envelope around `chunk`", "where": ["up", FLEET, "digits", "pi-01"], **plain(opened._asdict())}
    if name == "chunk":
        return {"what": "chunk 0 of 1 of the frame `answer`"}
    kind, fields, body = second.read_message(data, LIMIT)
    return {"what": f"frame of the message `{kind}`", "fields": plain(fields), "body": body.hex()}


def streams() -> list[dict[str, Any]]:
    """Return the first draws of a few random streams; each kind of draw begins with a fresh stream."""
    return [
        {
            "seed": seed,
            "name": list(name),
            "64 bits": [f"{draw.next64():016x}" for draw in [Stream(seed, *name)] for _ in range(4)],
            "32 bits": [f"{draw.next32():08x}" for draw in [Stream(seed, *name)] for _ in range(4)],
            "permutations of 10": [draw.permutation(10) for draw in [Stream(seed, *name)] for _ in range(2)],
        }
        for seed, *name in STREAMS
    ]


def values() -> dict[str, Any]:
    """Return the content of the file."""
    entries = {name: bytes.fromhex(text) for name, text in json.loads(GOLDEN.read_text(encoding="utf-8")).items()}
    public = Ed25519PrivateKey.from_private_bytes(SECRET).public_key().public_bytes_raw()
    return {
        "key": {"private": SECRET.hex(), "public": public.hex()},
        "entries": {name: said(name, data) for name, data in entries.items()},
        "streams": streams(),
    }


def text() -> str:
    """Return the file as text."""
    return json.dumps(values(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
