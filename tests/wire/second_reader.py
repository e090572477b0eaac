"""A second reader and writer of the wire, made from docs/protocol.md alone.

It imports nothing of edgefl, so it shows that the page is enough to write an agent in another language. The types of
fields are read from the tables of the page; constants stand here and in the page, and a test compares them.
"""

import json
import re
import struct
import sys
import unicodedata
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from hashlib import blake2b, sha256
from math import ceil, isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np
from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from second_streams import Stream

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"

TOPIC_ROOT = "edgefl/v1"
PROTOCOL = 3
GROUP = 256
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
RESERVED = "presence state"
SERVER, DIAGNOSIS = "server", "diagnosis"
FRAME_MAGIC, FRAME_VERSION = b"EFLF", 1
FRAME_COMPRESSED, FRAME_SEALED = 1, 2
FRAME_ALIGNED = 64
HEADER_LIMIT = 262144
ZSTD_WINDOW = 8388608
SMALL_FRAME = 262272
REPLY_FRAME = 65536
CALL_BODY = 1048576
MOST_TENSORS = 4096
CHUNK_MAGIC, CHUNK_VERSION = b"EC", 1
CHUNK = 122828
TOGETHER = 4
ENVELOPE_MAGIC, ENVELOPE_VERSION = b"ES", 1
MESSAGE_PREFIX = b"edgefl message 1\0"
MANIFEST_PREFIX = b"edgefl manifest 1\0"
KEY_TEXT, SEAL_TEXT = "ed25519:", "x25519:"
LIFE_BITS = 32
LATEST_LIFE = 4293918720
SEAL = 48
SEALING_KEY_INFO = b"edgefl sealing key 1"
SEALED_ANSWER_INFO = b"edgefl sealed answer 1"
SLOT, MARK = 36, 16
SLOT_PERSON = b"edgefl slot 1"
JSON_LIMIT = 16384
MANIFEST_LIMIT = 4194304
BUNDLE_VERSION = 2
RAW_TYPES = "<f2 <f4 <f8 <i4 <i8 <u4 <u8 |b1 |i1 |u1"

_FRAME = struct.Struct("<4sBBIQ")
_CHUNK = struct.Struct("<2sBB32sIIQ")
_ENVELOPE = struct.Struct("<2sBB32sQ64s")
_OWN = struct.Struct("<IQd")
_TOPK = struct.Struct("<IIBB")


class Refused(ValueError):
    """These bytes are not what the page describes."""


def must(true: object, why: str) -> None:
    if not true:
        raise Refused(why)


# ---- fields --------------------------------------------------------------------------------------------------------


class FieldRule(NamedTuple):
    """One row of a table of fields."""

    type: str
    default: str  # or "required"


def tables(page: str) -> dict[str, dict[str, FieldRule]]:
    """The tables of fields that stand under headings such as "#### `task`"."""
    found = {}
    for name, body in re.findall(r"^#### `(\w+)`.*?\n(.*?)(?=^#|\Z)", page, re.DOTALL | re.MULTILINE):
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+?) \| ([^|]+?) \|", body, re.MULTILINE)
        found[name] = {
            field: FieldRule(type.replace("`", ""), default.replace("`", "")) for field, type, default in rows
        }
    return found


FIELDS = tables(PAGE.read_text(encoding="utf-8"))
DEFAULTS = {"null": None, "false": False, "none": (), "0": 0, "1": 1, "3": PROTOCOL}


def default(rule: FieldRule) -> Any:
    """What stands for a field that is not there."""
    if rule.default == "empty":
        return b"" if rule.type.startswith("bin") else ""
    return DEFAULTS.get(rule.default, rule.default)


def checked(kind: str, said: Any) -> dict[str, Any]:
    """The fields of a message, with defaults for those that are not there; unknown ones are passed over."""
    must(isinstance(said, dict), f"{kind} is no map")
    for field, rule in FIELDS[kind].items():
        must(field in said or rule.default != "required", f"{kind}.{field} is missing")
        must(field not in said or fits(rule.type, said[field]), f"{kind}.{field} is no {rule.type}")
    return {field: said.get(field, default(rule)) for field, rule in FIELDS[kind].items()}


def fits(type: str, value: Any) -> bool:  # noqa: C901, PLR0911, PLR0912  one kind of type, one case
    """Whether a value is of a type, as the page writes types."""
    if type.endswith(" or null"):
        return value is None or fits(type.removesuffix(" or null"), value)
    if " or " in type and not type.startswith("list"):
        return any(fits(one, value) for one in type.split(" or "))
    word, _, rest = type.partition(" ")
    match word:
        case "name":
            return isinstance(value, str) and re.fullmatch(NAME, value) is not None
        case "code":
            return isinstance(value, str) and re.fullmatch(f"{NAME}(:{NAME})?", value) is not None
        case "empty":
            return value == ""
        case "bool":
            return isinstance(value, bool)
        case "str":
            low, high = bounds(rest)
            return isinstance(value, str) and low <= len(value) <= high
        case "line":
            breaks = {"Cc", "Cf", "Zl", "Zp"}
            return fits(f"str {rest}", value) and not any(unicodedata.category(c) in breaks for c in value)
        case "bin":
            low, high = bounds(rest)
            return isinstance(value, bytes) and low <= len(value) <= high
        case "hex":
            return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
        case "sealing":
            return isinstance(value, str) and re.fullmatch(f"{SEAL_TEXT}[A-Za-z0-9_-]{{43}}", value) is not None
        case "int":
            low, high = bounds(rest) if rest else (-(2**63), 2**64)
            return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        case "float":
            low, high = bounds(rest)
            return isinstance(value, float | int) and isfinite(value) and low <= value <= high
        case "above":
            low, high = bounds(rest)
            return isinstance(value, float | int) and low < value < high
        case "one":
            return value in rest.removeprefix("of ").split(", ")
        case "map":
            return isinstance(value, dict)
        case "list":
            count, _, inner = rest.partition(" of ")
            low, high = bounds(count)
            return isinstance(value, list | tuple) and low <= len(value) <= high and all(fits(inner, v) for v in value)
        case "table":
            return isinstance(value, dict) and is_whole(rest, value)
    raise AssertionError(type)


def is_whole(kind: str, value: dict[str, Any]) -> bool:
    try:
        checked(kind, value)
    except Refused:
        return False
    return True


def bounds(text: str) -> tuple[float, float]:
    """`32` means exactly so many, `0..2^31` from and to, `0..` has no end."""
    low, dots, high = text.partition("..")
    return number(low), number(high) if high else float("inf") if dots else number(low)


def number(text: str) -> float:
    base, power, exponent = text.partition("^")
    return int(base) ** int(exponent) if power else float(text) if "." in text or "e" in text else int(text)


# ---- frames --------------------------------------------------------------------------------------------------------


class Frame(NamedTuple):
    header: dict[str, Any]
    body: bytes


def padding(head: int) -> int:
    return -(_FRAME.size + head) % FRAME_ALIGNED


def frame(header: dict[str, Any], body: bytes = b"", *, compress: bool = False) -> bytes:
    """A frame that says this."""
    head, flags, size = msgpack.packb(header), 0, len(body)
    if compress and body:
        small = zstd.compress(body, level=1)
        if len(small) < 0.95 * size:
            body, flags = small, FRAME_COMPRESSED
    prefix = _FRAME.pack(FRAME_MAGIC, FRAME_VERSION, flags, len(head), size)
    return prefix + head + bytes(padding(len(head))) + body


def read_frame(data: bytes, limit: int, unseal: Any = None) -> Frame:
    """What a frame says; its body has at most `limit` bytes when it is open."""
    must(len(data) >= _FRAME.size, "too short for a frame")
    magic, version, flags, head, size = _FRAME.unpack_from(data)
    must(magic == FRAME_MAGIC and version == FRAME_VERSION, "no frame of this version")
    must(not flags & ~(FRAME_COMPRESSED | FRAME_SEALED), "unknown flags")
    must(head <= HEADER_LIMIT, "the header is too large")
    begin = _FRAME.size + head + padding(head)
    must(len(data) >= begin and not any(data[_FRAME.size + head : begin]), "no zeros before the body")
    header, body = read_header(data[_FRAME.size : _FRAME.size + head]), data[begin:]
    must(size <= limit and (limit or not flags), "the body is too large")
    if flags & FRAME_SEALED:
        must(unseal is not None and len(body) <= size + SEAL, "a sealed body")
        body = unseal(data[:begin], body)
    if flags & FRAME_COMPRESSED:
        body = decompressed(body, size)
    must(len(body) == size, "the body has another length")
    return Frame(header, body)


def read_header(data: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        must(all(isinstance(key, str) for key, _ in pairs) and len(dict(pairs)) == len(pairs), "keys of a map")
        return dict(pairs)

    try:
        header = msgpack.unpackb(data, object_pairs_hook=once, max_str_len=65536, max_array_len=65536, max_map_len=4096)
    except Refused:
        raise
    except (ValueError, msgpack.UnpackException) as error:
        raise Refused("the header is not msgpack") from error
    must(isinstance(header, dict), "the header is no map")
    return dict(header)


def decompressed(body: bytes, size: int) -> bytes:
    try:
        must(zstd.get_frame_info(body).decompressed_size == size, "another size in the zstd frame")
        options = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW.bit_length() - 1}
        opened = zstd.ZstdDecompressor(options=options)
        plain = opened.decompress(body, size + 1)
    except zstd.ZstdError as error:
        raise Refused("no zstd") from error
    must(opened.eof and not opened.unused_data, "something stands behind the body")
    return bytes(plain)


def message(kind: str, fields: dict[str, Any], body: bytes = b"", *, compress: bool = False) -> bytes:
    """The frame of a message; its fields are checked as those of a message that comes."""
    checked(kind, fields)
    return frame({"kind": kind, **fields}, body, compress=compress)


def read_message(data: bytes, limit: int = 0, unseal: Any = None) -> tuple[str, dict[str, Any], bytes]:
    """The kind of a message, its fields and its body."""
    header, body = read_frame(data, limit, unseal)
    kind = header.get("kind")
    must(kind in FRAMED, f"a message of kind {kind}")
    return str(kind), checked(str(kind), header), body


TO_DEVICES = {
    *("task", "receipt", "refusal", "missing", "renewed", "addresses", "renew", "request", "call", "model", "graphs")
}
TO_COORDINATORS = {"answer", "holding", "missing", "absent", "declined", "busy", "working", "renewal"}
TO_SERVERS = {"reply", "renewal"}
FRAMED = TO_DEVICES | TO_COORDINATORS | TO_SERVERS


# ---- chunks --------------------------------------------------------------------------------------------------------


def count_of(size: int) -> int:
    return max(1, -(-size // CHUNK))


def split(data: bytes, indexes: Any = None, together: int = 1) -> Iterator[bytes]:
    """The messages that carry these chunks of a frame, or all of them; up to `together` that follow one another."""
    known_as, count = blake3(data).digest(), count_of(len(data))
    left = sorted({index for index in (range(count) if indexes is None else indexes) if index < count})
    while left:
        first, number = left[0], 1
        while number < min(together, len(left)) and left[number] == first + number:
            number += 1
        left = left[number:]
        head = _CHUNK.pack(CHUNK_MAGIC, CHUNK_VERSION, 0, known_as, first, count, len(data))
        yield head + data[first * CHUNK : (first + number) * CHUNK]


class Assembler:
    """Puts frames of up to `limit` bytes together."""

    def __init__(self, limit: int) -> None:
        self.limit, self.open = limit, dict[bytes, tuple[int, dict[int, bytes]]]()

    def add(self, payload: bytes) -> bytes | None:
        """The frame, when the last of its chunks has come."""
        must(len(payload) >= _CHUNK.size, "too short for a chunk")
        magic, version, _, known_as, first, count, size = _CHUNK.unpack_from(payload)
        must((magic, version) == (CHUNK_MAGIC, CHUNK_VERSION), "no chunk of this version")
        must(size <= self.limit and count == count_of(size) and first < count, "its numbers do not fit")
        data = payload[_CHUNK.size :]
        number = min(count_of(len(data)), TOGETHER)
        must(len(data) == min(number * CHUNK, size - first * CHUNK), "a chunk of another length")
        known_size, parts = self.open.setdefault(known_as, (size, {}))
        must(known_size == size, "two sizes for one hash")
        for i in range(number):
            parts[first + i] = data[i * CHUNK : (i + 1) * CHUNK]
        if len(parts) < count:
            return None
        del self.open[known_as]
        whole = b"".join(parts[i] for i in range(count))
        must(blake3(whole).digest() == known_as, "the frame has another hash")
        return whole


def in_common(payload: bytes) -> bytes | None:
    """What all chunks of a frame share, if it has several: all in front of the data but the index."""
    if payload[:3] != CHUNK_MAGIC + bytes([CHUNK_VERSION]) or len(payload) < _CHUNK.size:
        return None
    return payload[:36] + payload[40:52] if int.from_bytes(payload[40:44], "little") > 1 else None


# ---- who said it ---------------------------------------------------------------------------------------------------


def key_text(raw: bytes) -> str:
    return KEY_TEXT + base64_text(raw)


def base64_text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def base64_bytes(text: str, size: int) -> bytes:
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    must(len(raw) == size and base64_text(raw) == text, "another way to write base64url")
    return raw


class Place(NamedTuple):
    """Where something is said."""

    kind: str
    fleet: str
    job: str
    run_id: str
    device: str


def statement(place: Place, key: bytes, counter: int, payload: bytes) -> bytes:
    """The bytes that an envelope signs."""
    what = in_common(payload) or sha256(payload).digest()
    return MESSAGE_PREFIX + bytes(msgpack.packb([*place, key, counter, what]))


def envelope(signer: Ed25519PrivateKey, place: Place, counter: int, payload: bytes) -> bytes:
    """A payload in its envelope."""
    key, run_id = signer.public_key().public_bytes_raw(), place.run_id.encode()
    signature = signer.sign(statement(place, key, counter, payload))
    return _ENVELOPE.pack(ENVELOPE_MAGIC, ENVELOPE_VERSION, len(run_id), key, counter, signature) + run_id + payload


class Opened(NamedTuple):
    key: bytes
    counter: int
    run_id: str
    payload: bytes


def open_envelope(data: bytes, kind: str, fleet: str, job: str = "", device: str = "*") -> Opened:
    """What an envelope holds, if its key signed it for this place."""
    must(len(data) >= _ENVELOPE.size, "too short for an envelope")
    magic, version, length, key, counter, signature = _ENVELOPE.unpack_from(data)
    must((magic, version) == (ENVELOPE_MAGIC, ENVELOPE_VERSION), "no envelope of this version")
    end = _ENVELOPE.size + length
    run_id, payload = data[_ENVELOPE.size : end].decode("ascii"), data[end:]
    verify(key, signature, statement(Place(kind, fleet, job, run_id, device), key, counter, payload))
    return Opened(key, counter, run_id, payload)


def verify(key: bytes, signature: bytes, signed: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except (InvalidSignature, ValueError) as error:
        raise Refused("the signature is not of this key") from error


def read_manifest(payload: bytes) -> tuple[bytes, dict[str, Any]]:
    """The key that signed a manifest, and what the manifest says."""
    tail = re.fullmatch(rb'(.*),"key":"([^"]{1,100})","signature":"([^"]{1,200})"\}', payload, re.DOTALL)
    must(tail and tail[2].startswith(KEY_TEXT.encode()), "no signature")
    assert tail is not None
    key = base64_bytes(tail[2].decode().removeprefix(KEY_TEXT), 32)
    verify(key, base64_bytes(tail[3].decode(), 64), MANIFEST_PREFIX + tail[1] + b"}")
    return key, read_json("manifest", tail[1] + b"}", MANIFEST_LIMIT)


def sign_manifest(signer: Ed25519PrivateKey, unsigned: bytes) -> bytes:
    key, signature = key_text(signer.public_key().public_bytes_raw()), signer.sign(MANIFEST_PREFIX + unsigned)
    return unsigned[:-1] + f',"key":"{key}","signature":"{base64_text(signature)}"}}'.encode()


def read_json(kind: str, payload: bytes, limit: int = JSON_LIMIT) -> dict[str, Any]:
    must(len(payload) <= limit, "too much JSON")
    return checked(kind, json.loads(payload))


# ---- seals ---------------------------------------------------------------------------------------------------------


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, info).derive(secret)


def seal(data: bytes, to: str, ephemeral: bytes) -> bytes:
    """A frame whose body only the owner of this key can read; `ephemeral` are 32 random bytes for this frame alone."""
    head = int.from_bytes(data[6:10], "little")
    begin = _FRAME.size + head + padding(head)
    before = data[:5] + bytes([data[5] | FRAME_SEALED]) + data[6:begin]
    theirs, ours = base64_bytes(to.removeprefix(SEAL_TEXT), 32), X25519PrivateKey.from_private_bytes(ephemeral)
    mine = ours.public_key().public_bytes_raw()
    once = hkdf(ours.exchange(X25519PublicKey.from_public_bytes(theirs)), mine + theirs, SEALED_ANSWER_INFO)
    return before + mine + ChaCha20Poly1305(once).encrypt(bytes(12), data[begin:], before)


class Unsealer:
    """The coordinator's side, from its Ed25519 key."""

    def __init__(self, secret: bytes) -> None:
        self.private = X25519PrivateKey.from_private_bytes(hkdf(secret, b"", SEALING_KEY_INFO))
        self.public = self.private.public_key().public_bytes_raw()
        self.key = SEAL_TEXT + base64_text(self.public)

    def __call__(self, before: bytes, body: bytes) -> bytes:
        theirs = body[:32]
        secret = self.private.exchange(X25519PublicKey.from_public_bytes(theirs))
        once = hkdf(secret, theirs + self.public, SEALED_ANSWER_INFO)
        return ChaCha20Poly1305(once).decrypt(bytes(12), body[32:], before)


# ---- calls ---------------------------------------------------------------------------------------------------------


def own_slot(call: dict[str, Any], fleet: str, device: str, installation: str) -> dict[str, Any] | None:
    """What a call tells one device alone; None if it is not meant."""
    task = call["task"]
    must(len(call["slots"]) % SLOT == 0, "slots of another size")
    place = msgpack.packb([fleet, task["job"], task["run_id"], call["number"], device])
    key = installation.encode()[:64]
    secret = blake2b(place, digest_size=SLOT, key=key, person=SLOT_PERSON).digest()
    for at in range(0, len(call["slots"]), SLOT):
        slot = call["slots"][at : at + SLOT]
        if slot[:MARK] == secret[:MARK]:
            own = bytes(a ^ b for a, b in zip(slot[MARK:], secret[MARK:], strict=True))
            counted, batches, seconds = _OWN.unpack(own)
            must(counted <= 2**31 and 0 <= seconds < float("inf"), "a slot with strange numbers")
            return {"counted": counted, "batches": batches or None, "seconds": seconds or None}
    return None


# ---- numbers -------------------------------------------------------------------------------------------------------

Layout = dict[str, Any]  # names, shapes, buffers


def sizes(layout: Layout) -> list[int]:
    """How many numbers each tensor that is trained has, and behind them those of all statistics together."""
    each = [prod(shape) for shape in layout["shapes"]]
    trained = len(each) - layout["buffers"]
    return [*each[:trained], sum(each[trained:])]


def encode(v: np.ndarray, codec: Any, layout: Layout, chance: Stream) -> tuple[str, bytes]:
    """The name of a codec, and a vector of the model as it writes it."""
    table = codec if isinstance(codec, dict) else {"codec": codec}
    match table["codec"]:
        case "float32":
            return "float32", v.astype("<f4").tobytes()
        case "float16":
            return "float16", np.clip(v, -65504, 65504).astype("<f2").tobytes()
        case "int8":
            return "int8", encode_int8(v, layout, chance)
        case "topk":
            return "topk", encode_topk(v, layout, table.get("share", 0.01), table.get("values", "float16"))
    raise Refused(f"a codec {codec}")


def decode(kind: str, payload: bytes, size: int) -> np.ndarray:
    """The vector behind a payload."""
    match kind:
        case "float32" | "float16":
            width = int(kind[5:]) // 8
            must(len(payload) == width * size, "another number of numbers")
            return np.frombuffer(payload, f"<f{width}").astype(np.float32)
        case "int8":
            return decode_int8(payload, size)
        case "topk":
            return decode_topk(payload, size)
    raise Refused(f"a codec {kind}")


def encode_int8(v: np.ndarray, layout: Layout, chance: Stream) -> bytes:
    *parts, exact = sizes(layout)
    scales, numbers, at = [], [], 0
    for length in parts:
        part, at = v[at : at + length], at + length
        largest = float(np.abs(part).max(initial=0.0))
        scale = np.float32(largest / 127 if isfinite(largest) else np.nan)
        scales.append(scale)
        if scale == 0 or not isfinite(scale):
            numbers.append(np.zeros(length, np.int8))
            continue
        for block in range(0, length, 32768):
            steps = np.clip(part[block : block + 32768] / scale, -127, 127).astype(np.float32)
            draws = b"".join(chance.next64().to_bytes(8, "little") for _ in range(ceil(len(steps) / 4)))
            chances = np.frombuffer(draws, "<u2")[: len(steps)].astype(np.float32) * np.float32(2**-16)
            numbers.append(np.floor(steps + chances).astype(np.int8))
    head = np.array([len(parts), exact, *parts], "<u4").tobytes() + np.array(scales, "<f4").tobytes()
    return head + b"".join(part.tobytes() for part in numbers) + v[at:].astype("<f4").tobytes()


def decode_int8(payload: bytes, size: int) -> np.ndarray:
    must(len(payload) >= 8, "no head")
    parts, exact = np.frombuffer(payload, "<u4", 2).tolist()
    inner = size - exact
    must(inner >= 0 and len(payload) == 8 + 8 * parts + inner + 4 * exact, "another length")
    lengths = np.frombuffer(payload, "<u4", parts, 8)
    must(int(lengths.sum()) == inner, "parts of another length")
    scales = np.frombuffer(payload, "<f4", parts, 8 + 4 * parts)
    numbers = np.frombuffer(payload, np.int8, inner, 8 + 8 * parts).astype(np.float32)
    tail = np.frombuffer(payload, "<f4", exact, 8 + 8 * parts + inner)
    return np.concatenate([numbers * np.repeat(scales, lengths), tail])


def encode_topk(v: np.ndarray, layout: Layout, share: float, values: str) -> bytes:
    *parts, exact = sizes(layout)
    inner = sum(parts)
    kept = ceil(share * inner)
    order = np.argsort(-np.abs(v[:inner]), kind="stable")[:kept]  # of equals the first
    places = np.sort(order)
    gaps = np.diff(places, prepend=-1) - 1
    widths = range(int(gaps.max(initial=0)).bit_length() + 1)
    low = min(widths, key=lambda w: ceil((int((gaps >> w).sum()) + kept) / 8) + ceil(kept * w / 8))
    quotients = "".join("0" * (gap >> low) + "1" for gap in gaps.tolist())
    remainders = "".join(str(gap >> bit & 1) for gap in gaps.tolist() for bit in range(low))
    half = values == "float16"
    numbers = np.clip(v[places], -65504, 65504).astype("<f2") if half else v[places].astype("<f4")
    packed = bits(quotients) + bits(remainders)
    return _TOPK.pack(kept, exact, low, half) + packed + numbers.tobytes() + v[inner:].astype("<f4").tobytes()


def bits(text: str) -> bytes:
    return bytes(int(text[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(text), 8))


def decode_topk(payload: bytes, size: int) -> np.ndarray:
    must(len(payload) >= _TOPK.size, "no head")
    kept, exact, low, half = _TOPK.unpack_from(payload)
    inner, width = size - exact, 2 if half else 4
    packed = len(payload) - _TOPK.size - width * kept - 4 * exact
    must(half <= 1 and kept <= inner and 0 <= packed <= ceil(size / 8), "another length")
    text = "".join(f"{byte:08b}" for byte in payload[_TOPK.size : _TOPK.size + packed])
    at, place, places = 0, -1, []
    second = 8 * (packed - ceil(kept * low / 8))
    must(second >= 0 and text[:second].count("1") == kept, "another number of places")
    for i in range(kept):
        one = text.index("1", at)
        remainder = sum(int(text[second + i * low + bit]) << bit for bit in range(low))
        place, at = place + 1 + ((one - at) << low) + remainder, one + 1
        must(place < inner, "a place beyond the numbers")
        places.append(place)
    v = np.zeros(size, np.float32)
    v[places] = np.frombuffer(payload, f"<f{width}", kept, _TOPK.size + packed)
    v[inner:] = np.frombuffer(payload, "<f4", exact, len(payload) - 4 * exact)
    return v


def read_tensors(tensors: Any, body: bytes) -> dict[str, np.ndarray]:
    """The arrays in a body."""
    arrays, at = dict[str, np.ndarray](), 0
    for one in (checked("tensor", described) for described in tensors):
        payload, at = body[at : at + one["bytes"]], at + one["bytes"]
        must(len(payload) == one["bytes"] and one["name"] not in arrays, "a tensor that is not there, or twice")
        size = prod(one["shape"])
        must(one["kind"] in {"int8", "topk"} or size <= 64 * len(payload) + 64, "too many numbers for its bytes")
        if one["kind"] == "raw":
            must(one["dtype"] in RAW_TYPES.split(), "a type of numbers that does not travel")
            must(size * np.dtype(one["dtype"]).itemsize == len(payload), "another number of numbers")
            flat = np.frombuffer(payload, one["dtype"])
        else:
            flat = decode(one["kind"], payload, size)
        arrays[one["name"]] = flat.reshape(one["shape"])
    must(at == len(body), "something stands behind the tensors")
    return arrays


# ---- graphs --------------------------------------------------------------------------------------------------------


def read_bundle(data: bytes) -> dict[str, Any]:
    """What a bundle of ONNX graphs holds."""
    must(sha256(data[32:]).digest() == data[:32], "the bundle has another hash")
    content: dict[str, Any] = msgpack.unpackb(data[32:], max_ext_len=0)
    must(content["version"] == BUNDLE_VERSION, "a bundle of another version")
    return content
