"""Claims: with one word many devices ask to become members, until a day, and each waits for a person to accept it.

    fleet claim ─▶ a word ─▶ devices ask ─▶ waiting ─ fleet accept ─▶ accepted ─ the device asks again ─▶ a member
                                               └───── fleet reject ─▶ rejected

`claims.json` in the fleet's folder holds the hash of each word's secret and who has asked. A device whose serial number
stands in the claim's list is accepted at once, each number once. Whatever is asked for, a claim makes new members only:
never one in the place of another, never a site.
"""

import base64
import binascii
import csv
import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from edgefl.base.errors import ConfigError, RemoteError
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.kit import Pem
from edgefl.fleet.members import LIMIT, FleetRecord, check_device, device_names
from edgefl.system.json_text import parse_json
from edgefl.system.store import write_atomically

PREFIX = "edgefl1c-"  # of the word: 1 is the version of its format
LONGEST = 1024  # characters of a word
NAME = "claims.json"
MOST = 100  # claims at a time
DEVICES = 10_000  # of one claim
REJECTED = 1000  # that are remembered
SERIALS = 4 << 20  # bytes of a list of serial numbers
ID = 8  # characters of a key or hash by which a person names it

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Serial = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._-]*$")]
HostName = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._-]*$")]


class ClaimWord(FleetRecord):
    """What the word says."""

    hosts: Annotated[tuple[str, ...], Field(min_length=1, max_length=8)]
    port: Annotated[int, Field(ge=1, le=65535)]
    authority: Hex  # SHA-256 of its certificate
    secret: Annotated[str, Field(min_length=16, max_length=64)]

    def text(self) -> str:
        """As it is typed."""
        return PREFIX + base64.urlsafe_b64encode(self.model_dump_json().encode()).decode().rstrip("=")


class FleetClaim(FleetRecord):
    """How many devices may become members with a word, and until when."""

    devices: Annotated[int, Field(ge=1, le=DEVICES)]
    until: datetime
    serials: Mapping[str, str] = {}  # whose devices need no person, and the names that they get


class Applicant(FleetRecord):
    """A device that has asked; known by its key for messages."""

    claim: Hex
    name: str  # that it asks for, or was given
    serial: Serial
    host: HostName
    request: Pem
    since: datetime
    address: str = ""  # from where it came first
    state: Literal["waiting", "accepted", "joined", "rejected"] = "waiting"
    membership: str = ""  # JSON, once it has joined


class ClaimBook(FleetRecord):
    """All claims by the hash of their secret, all applicants by their key."""

    claims: Mapping[Hex, FleetClaim] = {}
    applicants: Mapping[str, Applicant] = {}

    def of(self, claim: str, *states: str) -> list[Applicant]:
        """Return the applicants of a claim that are in one of these states."""
        return [one for one in self.applicants.values() if one.claim == claim and one.state in states]

    def put(self, key: str, applicant: Applicant) -> "ClaimBook":
        return self.model_copy(update={"applicants": {**self.applicants, key: applicant}})


def read_word(text: str) -> ClaimWord:
    """The claim of this word."""
    try:
        if len(text) > LONGEST or not text.startswith(PREFIX):
            raise ValueError
        raw = text.removeprefix(PREFIX)
        return ClaimWord.model_validate(parse_json(base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4))))
    except (ValueError, binascii.Error):  # a ValidationError is a ValueError
        raise ConfigError("--claim: this is no claim, or not the whole of it; copy it again") from None


def issue(
    fleet: FleetAdministration, devices: int, until: datetime, now: datetime, serials: Mapping[str, str]
) -> ClaimWord:
    """Make a claim for this number of devices, and return its word."""
    if until <= now:
        raise ConfigError(f"--until {until:%Y-%m-%d %H:%M} is over: say a day that comes")
    secret = secrets.token_urlsafe(24)
    with fleet.folder.changing():
        book = tidy(read(fleet), now)
        if len(book.claims) >= MOST:
            raise ConfigError(f"there are {MOST} claims: `edgefl fleet claim --withdraw ID` ends one")
        claim = FleetClaim(devices=devices, until=until, serials=serials)
        _write(fleet, book.model_copy(update={"claims": {**book.claims, _hash(secret): claim}}))
    settings = fleet.settings
    return ClaimWord(
        hosts=tuple(one.host for one in settings.brokers),
        port=settings.enrolment_port,
        authority=fleet.authority.fingerprint,
        secret=secret,
    )


def withdraw(fleet: FleetAdministration, id: str, now: datetime) -> None:
    """End a claim: no device becomes a member by it any more, and those that wait are forgotten."""
    with fleet.folder.changing():
        book = tidy(read(fleet), now)
        if len(known := [one for one in book.claims if one.startswith(id)]) != 1 or not id:
            ids = ", ".join(one[:ID] for one in book.claims) or "none"
            raise ConfigError(f"there is no claim '{id}' ({ids}): `edgefl fleet claims` lists them")
        claims = {key: claim for key, claim in book.claims.items() if key != known[0]}
        left = {key: one for key, one in book.applicants.items() if one.claim != known[0]}
        _write(fleet, book.model_copy(update={"claims": claims, "applicants": left}))


def apply(fleet: FleetAdministration, secret: str, key: str, asks: Applicant, now: datetime) -> Applicant:
    """Return how it stands with a device that asks, for the first time or again. Call it within `changing()`.

    Raise `RemoteError` if its word does not count, or if no more may wait.
    """
    book = tidy(read(fleet), now)
    digest = _hash(secret)
    match = [one for one in book.claims if hmac.compare_digest(one, digest)]
    if not match:
        raise RemoteError("claim.unknown", "this claim is not known, was withdrawn, or has expired")
    claim = book.claims[match[0]]
    known = book.applicants.get(key)
    if known is not None and known.claim == match[0]:
        return known
    if any(one.key == key for one in fleet.members.members.values()):
        raise RemoteError("claim.member", "this key belongs to a member already, or to one that was revoked")
    if len(book.of(match[0], "waiting")) >= 2 * claim.devices:
        raise RemoteError("claim.full", f"{2 * claim.devices} devices wait already: accept or reject some")
    applicant = asks.model_copy(update={"claim": match[0]})
    name = claim.serials.get(asks.serial, "")
    if name and not _why_not(fleet, book, match[0], name) and not _has_come(book, match[0], asks.serial):
        applicant = applicant.model_copy(update={"name": name, "state": "accepted"})
    _write(fleet, book.put(key, applicant))
    return applicant


def joined(fleet: FleetAdministration, key: str, applicant: Applicant, membership: str) -> None:
    """It is a member now. Call it within `changing()`."""
    update = {"state": "joined", "membership": membership}
    _write(fleet, read(fleet).put(key, applicant.model_copy(update=update)))


def settle(
    fleet: FleetAdministration, which: str, verdict: Literal["accepted", "rejected"], now: datetime, name: str = ""
) -> str:
    """Accept or reject a device that waits, named by its name or the first letters of its key; the name it gets."""
    with fleet.folder.changing():
        book = tidy(read(fleet), now)
        waiting = {key: one for key, one in book.applicants.items() if one.state in {"waiting", "accepted"}}
        match = [key for key, one in waiting.items() if which and which in (one.name, short(key))]
        if not match:
            raise ConfigError(f"no device '{which}' waits: `edgefl fleet claims` lists those that do")
        if len(match) > 1:
            raise ConfigError(f"{len(match)} devices call themselves '{which}': name one by its id, {_ids(match)}")
        applicant = waiting[match[0]]
        given = check_device(name or applicant.name)
        if verdict == "accepted" and (why := _why_not(fleet, book, applicant.claim, given, match[0])):
            raise ConfigError(f"'{given}' cannot be accepted: {why}")
        _write(fleet, book.put(match[0], applicant.model_copy(update={"state": verdict, "name": given})))
    return given


def waiting(fleet: FleetAdministration, now: datetime) -> Iterator[tuple[str, Applicant]]:
    """Those that a person has to accept, by the id of their key, longest waiting first."""
    book = tidy(read(fleet), now)
    rows = ((short(key), one) for key, one in book.applicants.items() if one.state == "waiting")
    yield from sorted(rows, key=lambda row: row[1].since)


def short(key: str) -> str:
    """Return a few letters by which a person tells keys apart."""
    return key.removeprefix("ed25519:")[:ID]


def tidy(book: ClaimBook, now: datetime) -> ClaimBook:
    """Return the book without what is over: claims, and who asked with them and never became a member."""
    claims = {key: one for key, one in book.claims.items() if one.until > now}
    left = {key: one for key, one in book.applicants.items() if one.claim in claims}
    rejected = [key for key, one in left.items() if one.state == "rejected"]
    forgotten = set(rejected[: max(0, len(rejected) - REJECTED)])
    return ClaimBook(claims=claims, applicants={key: one for key, one in left.items() if key not in forgotten})


def read(fleet: FleetAdministration) -> ClaimBook:
    """The book as it stands on disk."""
    path = fleet.folder.path / NAME
    try:
        if path.stat().st_size > LIMIT:
            raise ConfigError(f"{path}: larger than {LIMIT >> 20} MiB, so not one of our files")
        return ClaimBook.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return ClaimBook()
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path}: cannot be read; delete it and give new claims ({type(error).__name__})") from None


def serials(path: Path) -> dict[str, str]:
    """The names of devices by their serial numbers, from a file with lines `serial,name`."""
    try:
        if path.stat().st_size > SERIALS:
            raise ConfigError(f"--serials {path}: larger than {SERIALS >> 20} MiB, so no list of {DEVICES} devices")
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row and row != ["serial", "name"]]
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(f"--serials {path}: cannot be read ({error})") from None
    for number, row in enumerate(rows, 1):
        if len(row) != 2 or not row[0].strip():
            raise ConfigError(f"--serials {path}: row {number} is {','.join(row)!r}; each is serial,name")
    names = {row[0].strip(): row[1].strip() for row in rows}
    if len(names) < len(rows):
        raise ConfigError(f"--serials {path}: a serial number stands there twice")
    if names:
        device_names(",".join(names.values()))  # which refuses a name that stands there twice
    return names


def _why_not(fleet: FleetAdministration, book: ClaimBook, claim: str, name: str, key: str = "") -> str:
    """Why a device may not get this name by this claim; empty if it may."""
    if name in fleet.members.members:
        return f"'{name}' is, or was, a member: give it another name (--as NAME)"
    given = {one.name for other, one in book.applicants.items() if one.state == "accepted" and other != key}
    if name in given:
        return f"another device that was accepted is called '{name}' (--as NAME gives another name)"
    others = sum(
        one.claim == claim and one.state in {"accepted", "joined"}
        for other, one in book.applicants.items()
        if other != key
    )
    if others >= book.claims[claim].devices:
        return f"its claim is for {book.claims[claim].devices} devices, and all have come"
    return ""


def _has_come(book: ClaimBook, claim: str, serial: str) -> bool:
    return any(one.serial == serial for one in book.of(claim, "accepted", "joined"))


def _ids(keys: list[str]) -> str:
    return " or ".join(map(short, keys))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _write(fleet: FleetAdministration, book: ClaimBook) -> None:
    write_atomically(fleet.folder.path / NAME, book.model_dump_json(indent=1).encode())
