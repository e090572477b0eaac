"""Who did what to this operator's fleets: an append-only file that shows whether it was changed afterwards.

    {"number": 12, "at": "2026-11-19T02:00:00Z", "who": "ann", "origin": "10.0.0.7", "what": "run.cancel",
     "fleet": "north", "subject": "night-17", "outcome": "done", "about": "", "before": "sha256 of the line before",
     "key": "ed25519:...", "signature": "..."}

Each line names the hash of the line before it and is signed, so none can be changed, taken out or put in between
without the key. That lines are missing at the end shows by `audit.head`, or by a head that was written down elsewhere
(`edgefl server audit --head`). Commands and server append one after the other, under a lock.
"""

import base64
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError

from edgefl.base.errors import ConfigError, StoreError
from edgefl.base.printable import printable
from edgefl.fleet.members import FleetRecord
from edgefl.system import portable
from edgefl.system.disk import Disk, FolderDisk
from edgefl.system.store import make_private
from edgefl.wire import key_file, signing
from edgefl.wire.signing import Signer

log = logging.getLogger(__name__)

NAME, HEAD, KEY, LOCK = "audit.log", "audit.head", "audit.key", "audit.lock"
PREFIX = b"edgefl audit 1\0"  # what this key signs can never be taken for something else
NONE = "0" * 64  # stands for the line before the first
LONGEST = 500  # characters of a text
TAIL = 64 << 10  # bytes at the end in which the last line is


class AuditEntry(FleetRecord):
    """A line. What the server did by itself has an empty `who`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    at: datetime
    who: str
    origin: str = ""  # an address, or the user and the machine
    what: str
    fleet: str = ""
    subject: str = ""
    outcome: str = "done"
    about: str = ""
    sequence: int | None = None  # of a fact of the server, which is written once
    before: str
    key: str
    signature: str


@dataclass(frozen=True, slots=True)
class Deed:
    """What is to be written down."""

    who: str
    what: str
    origin: str = ""
    fleet: str = ""
    subject: str = ""
    outcome: str = "done"
    about: str = ""
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The last line: its number and hash."""

    number: int = 0
    hash: str = NONE

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> "AuditHead":
        number, colon, digest = text.strip().partition(":")
        if not colon or not number.isdigit() or len(digest) != len(NONE):
            raise ConfigError(f"'{text[:80]}' is no head of an audit log; it looks like 12:4f0a... ")
        return cls(int(number), digest)


class AuditLog:
    """The file, to be appended to by any process of its owner."""

    def __init__(
        self, disk: Disk, signer: Signer, lock: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> None:
        self.disk, self.signer, self._lock = disk, signer, lock

    @classmethod
    def opened(cls, folder: Path) -> "AuditLog":
        """The log in this folder, with its key; both are made at the first time."""
        make_private(folder)
        lost = "keep the old file: a new key begins a new log"
        signer = key_file.opened(folder / KEY, "the audit log's", elsewhere="let this user read it", lost=lost)
        return cls(FolderDisk(folder), signer, lambda: locked(folder))

    def write(self, deed: Deed, wall: float) -> None:
        """After this returns, the line survives a power cut. A fact of the server that has its line gets no other."""
        with self._lock():
            head, last_sequence = self._end()
            if deed.sequence is not None and deed.sequence <= last_sequence:
                return
            at = datetime.fromtimestamp(wall, timezone.utc)
            texts = {key: printable(value)[:LONGEST] for key, value in asdict(deed).items() if isinstance(value, str)}
            line = {
                "number": head.number + 1,
                "at": at.isoformat().replace("+00:00", "Z"),
                **texts,
                **({"sequence": deed.sequence} if deed.sequence is not None else {}),
                "before": head.hash,
                "key": self.signer.key,
            }
            signature = self.signer.signature(PREFIX + _plain(line))
            raw = _plain({**line, "signature": base64.b64encode(signature).decode()}) + b"\n"
            if self.disk.size(NAME) is None:
                self.disk.write(NAME, raw)
            else:
                self.disk.append(NAME, raw)
            self.disk.overwrite(HEAD, str(AuditHead(head.number + 1, _hash(raw))).encode(), synced=False)

    def head(self) -> AuditHead:
        """The last line that is whole."""
        with self._lock():
            return self._end()[0]

    def entries(self) -> Iterator[AuditEntry]:
        """Every line, the oldest first; those that cannot be read are left out."""
        for raw in (self.disk.read(NAME) or b"").splitlines(keepends=True):
            if (entry := _entry(raw)) is not None:
                yield entry

    def _end(self) -> tuple[AuditHead, int]:
        """The last whole line, and the last number of a fact of the server; a line that a power cut tore goes."""
        size = self.disk.size(NAME)
        if not size:
            return AuditHead(), 0
        start = max(0, size - TAIL)
        tail = self.disk.read(NAME, start) or b""
        if not tail.endswith(b"\n"):
            whole = tail.rfind(b"\n") + 1
            if not whole and start:
                raise StoreError(f"{self.disk.where(NAME)}: its end is no line; move it away, and a new one is begun")
            self.disk.truncate(NAME, start + whole)
            tail = tail[:whole]
        lines = tail.splitlines(keepends=True)
        last = _entry(lines[-1]) if lines else None
        if last is None:
            if not lines and not start:
                return AuditHead(), 0
            raise StoreError(f"{self.disk.where(NAME)}: its last line is damaged; move it away, and a new one is begun")
        entries = (_entry(raw) for raw in reversed(lines))
        sequence = next((one.sequence for one in entries if one is not None and one.sequence is not None), 0)
        return AuditHead(last.number, _hash(lines[-1])), sequence


def verify(disk: Disk, key: str, head: AuditHead | None = None) -> str:
    """Return what is wrong with an audit log; empty if nothing is. `head` is one that was written down elsewhere."""
    last, heads = AuditHead(), {AuditHead()}
    for raw in (disk.read(NAME) or b"").splitlines(keepends=True):
        if fault := _fault(raw, last, key):
            return f"line {last.number + 1} {fault}"
        last = AuditHead(last.number + 1, _hash(raw))
        heads.add(last)
    if head is not None:
        return "" if head in heads else f"it does not contain the head {head}: it was cut off, or is another log"
    noted = _noted(disk)
    if noted is not None and noted.number > last.number:
        return f"it ends at line {last.number}, and {HEAD} names a later one: lines at the end are missing"
    return ""


def _fault(raw: bytes, last: AuditHead, key: str) -> str:
    """What is wrong with a line that follows this one."""
    entry = _entry(raw)
    if entry is None:
        return "is damaged"
    if entry.number != last.number + 1 or entry.before != last.hash:
        return "does not follow the line before it: lines were taken out, put in or changed"
    if entry.key != key:
        return f"was signed with another key, {entry.key}"
    return "" if _is_signed(raw, entry) else "is not what its key signed"


def _noted(disk: Disk) -> AuditHead | None:
    """The head that was noted last; None if there is none, or a power cut tore it."""
    try:
        return AuditHead.parse((disk.read(HEAD) or b"").decode())
    except (ConfigError, UnicodeDecodeError):
        return None


def _is_signed(raw: bytes, entry: AuditEntry) -> bool:
    line = json.loads(raw)
    line.pop("signature", None)
    try:
        signature = base64.b64decode(entry.signature, validate=True)
        return signing.verified(signing.key_bytes(entry.key), signature, PREFIX + _plain(line))
    except ValueError:
        return False


def _entry(raw: bytes) -> AuditEntry | None:
    try:
        return AuditEntry.model_validate_json(raw)
    except ValidationError:
        return None


def _plain(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode()


def _hash(raw: bytes) -> str:
    return sha256(raw).hexdigest()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the log in this folder while the block runs: no line is added meanwhile."""
    with (folder / LOCK).open("a+") as file:
        portable.close_to_others(file.fileno())
        portable.lock(file.fileno())
        yield
