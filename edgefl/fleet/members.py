"""Who belongs to a fleet: each device's name, its key for messages, its certificates, and whether it was sent away.

    {"format": "edgefl members", "version": 1, "members": {"pi-01": {"key": "ed25519:...", "revoked": null,
     "added": "2026-01-31T12:00:00Z", "certificates": [{"serial": "4f...", "expires": "2027-01-31T12:00:00Z"}]}}}

A member may have `"labels": {"site": "north"}`, which its operator gave it (`edgefl fleet label`).

`Members` is a value: what changes it gives back another one. `MembersFile` is one on disk, as a coordinator reads it
again and again. Writing is the business of `administration.py`.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)

from edgefl.base import device_labels
from edgefl.base.errors import ConfigError
from edgefl.wire.signing import KeyText
from edgefl.wire.topics import check_name

log = logging.getLogger(__name__)

NAME = "members.json"
COORDINATOR = "coordinator"  # its name at the broker, which no device may have
LIMIT = 32 << 20  # bytes; a member takes some 300
RESERVED = {COORDINATOR: "the coordinator's own name", "fleets": "the name of the folder where fleets are kept"}
LOOK = 1.0  # seconds between looks at the file, where a look for each question would be too many
KEPT = 16  # certificates that have expired are forgotten beyond this number


class FleetRecord(BaseModel):
    """Something in the file: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    later: ClassVar[frozenset[str]] = frozenset()  # keys that earlier versions refuse: written where they say something

    @model_serializer(mode="wrap")
    def _without_defaults_of_later_keys(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields, data = type(self).model_fields, handler(self)
        unsaid = {key for key in self.later if getattr(self, key) == fields[key].default}
        return {key: value for key, value in data.items() if key not in unsaid}


class MemberCertificate(FleetRecord):
    """What is known of a certificate of the fleet's authority: enough to take it back."""

    serial: Annotated[str, Field(pattern=r"^[0-9a-f]{1,40}$")]
    expires: datetime
    revoked: datetime | None = None

    @property
    def number(self) -> int:
        return int(self.serial, 16)


class Member(FleetRecord):
    """A device, or a site of devices; `revoked` since when it is no longer heard."""

    later: ClassVar[frozenset[str]] = frozenset({"renew_until", "labels"})

    key: KeyText
    added: datetime
    certificates: tuple[MemberCertificate, ...] = ()
    revoked: datetime | None = None
    site: str = ""  # whose broker it is at; unless said, the fleet's own
    hosts: tuple[str, ...] = ()  # of a site, which is no device: where its broker is
    port: int = 0
    renew_until: datetime | None = None  # until then it may have a new certificate, however old its last one is
    labels: Mapping[str, str] = {}  # that its operator gave it

    @field_validator("labels")
    @classmethod
    def _are_labels(cls, labels: Mapping[str, str]) -> Mapping[str, str]:
        try:
            device_labels.check_labels(labels)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return labels

    @property
    def known_as(self) -> dict[str, str]:
        """What a `where` can compare of it: its labels, and the site whose broker it is at unless a label says one."""
        return {**({"site": self.site} if self.site else {}), **self.labels}

    @property
    def expires(self) -> datetime | None:
        """Until when it can show a certificate."""
        return max((each.expires for each in self.certificates if each.revoked is None), default=None)


class Members(FleetRecord):
    """All of them, by name; those that were sent away too, so that their certificates stay on the list."""

    format: Literal["edgefl members"] = "edgefl members"
    version: Literal[1] = 1
    changes: int = 0  # how often this was changed: of two lists the larger one counts
    members: Mapping[str, Member] = {}

    @field_validator("members")
    @classmethod
    def _have_names(cls, members: Mapping[str, Member]) -> Mapping[str, Member]:
        for name in members:
            check_device(name)
        return members

    def active(self) -> dict[str, Member]:
        """Those that are heard, in the order of their names."""
        return {name: self.members[name] for name in sorted(self.members) if self.members[name].revoked is None}

    def keys(self) -> dict[str, str]:
        """The key of each that is heard."""
        return {name: member.key for name, member in self.active().items()}

    def revoked_serials(self, now: datetime) -> dict[int, datetime]:
        """What a revocation list must name, and since when; what has expired proves nothing any more."""
        each = (certificate for member in self.members.values() for certificate in member.certificates)
        return {one.number: one.revoked for one in each if one.revoked is not None and one.expires > now}

    def with_member(self, name: str, member: Member, certificate: MemberCertificate, now: datetime) -> "Members":
        """A new member, or one that begins anew: what it had before no longer counts."""
        before = _taken_back(self.members[name].certificates, now) if name in self.members else ()
        recent = _recent((*before, certificate), now)
        return self._put(name, member.model_copy(update={"certificates": recent}))

    def with_certificate(self, name: str, certificate: MemberCertificate, now: datetime) -> "Members":
        """A member with one more certificate; the older ones count until they expire. What permitted it is used up."""
        member = self.members[name]
        recent = _recent((*member.certificates, certificate), now)
        return self._put(name, member.model_copy(update={"certificates": recent, "renew_until": None}))

    def with_permit(self, name: str, until: datetime) -> "Members":
        """A member that may have a new certificate until then."""
        return self._put(name, self.members[name].model_copy(update={"renew_until": until}))

    def with_labels(self, name: str, labels: Mapping[str, str]) -> "Members":
        """A member with these labels beside those it has; one without a value is taken away."""
        member = self.members[name]
        kept = {key: value for key, value in sorted({**member.labels, **labels}.items()) if value}
        device_labels.check_labels(kept)
        if kept == member.labels:
            return self
        return self._put(name, member.model_copy(update={"labels": kept}))

    def without(self, name: str, now: datetime, also: tuple[MemberCertificate, ...] = ()) -> "Members":
        """The member is sent away; `also` are further certificates of its name that no longer count."""
        member = self.members[name]
        gone = _taken_back((*member.certificates, *also), now)
        since = member.revoked or now
        return self._put(name, member.model_copy(update={"revoked": since, "certificates": _recent(gone, now)}))

    def _put(self, name: str, member: Member) -> "Members":
        return self.model_copy(update={"members": {**self.members, name: member}, "changes": self.changes + 1})


class MembersFile:
    """The members on disk; a change there is noticed at the next question."""

    def __init__(
        self, path: Path, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path, self.wall, self.clock = path, wall, clock
        self._stamp: tuple[int, int, int] | None = None
        self._looked = -math.inf
        self._members = Members()

    def now(self) -> Members:
        """Who they are at this moment; a file that cannot be read at this moment leaves them as they were."""
        self._looked = self.clock()
        try:
            status = self.path.stat()
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
        except OSError:
            return self._members
        if stamp != self._stamp:
            try:
                self._members = read(self.path)
            except ConfigError as error:
                if self._stamp is None:
                    raise
                log.warning("the members are as they were before: %s", error)
            self._stamp = stamp
        return self._members

    def key_of(self, device: str) -> str | None:
        """The key of a member that is heard: it was not sent away, and its certificate has not ended.

        A broker looks at certificates when a connection is made. Only this check ends one that has been open since.
        """
        return self._key(self.now(), device)

    def still(self, device: str, key: str) -> bool:
        """Whether this is the key of a member that is heard, or was a second ago: messages come by the thousand."""
        recent = self._members if self.clock() - self._looked < LOOK else self.now()
        return self._key(recent, device) == key

    def _key(self, members: Members, device: str) -> str | None:
        member = members.members.get(device)
        if member is None or member.revoked is not None or member.expires is None:
            return None
        return member.key if member.expires.timestamp() > self.wall() else None


def read(path: Path) -> Members:
    """The members in this file."""
    try:
        if path.stat().st_size > LIMIT:
            raise ConfigError(f"{path}: larger than {LIMIT >> 20} MiB, so not one of our files")
        return Members.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); `edgefl fleet init` makes a fleet") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: not the members of a fleet ({where}: {first['msg']}); restore it") from None


def check_device(name: str) -> str:
    """The name of a device that may be a member."""
    if name in RESERVED:
        raise ConfigError(f"'{name}' is {RESERVED[name]}: give the device another one")
    return check_name("device", name)


def ended_remedy(name: str, member: Member) -> str:
    """Return what lets a device come back whose certificate has ended."""
    if member.site:
        return f"`edgefl fleet add {name} --replace` makes it a new kit"
    return f"`edgefl fleet renew {name}` and `edgefl fleet listen` let it renew by itself"


def numbered(prefix: str, count: int, known: Iterable[str]) -> list[str]:
    """Return names for more devices, numbered behind the last one with this prefix: `pi-01`, `pi-02`, ..."""
    tails = (name.removeprefix(prefix) for name in known if name.startswith(prefix))
    numbers = [tail for tail in tails if tail.isascii() and tail.isdigit()]
    first = max(map(int, numbers), default=0) + 1
    digits = max(2, len(str(first + count - 1)), *map(len, numbers))
    return [check_device(f"{prefix}{number:0{digits}d}") for number in range(first, first + count)]


def device_names(text: str, option: str = "--devices") -> list[str]:
    """The devices of `pi-01,pi-02`."""
    names = [check_device(name.strip()) for name in text.split(",")]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{option} names {', '.join(twice)} twice: each device has a name of its own")
    return names


def _taken_back(certificates: tuple[MemberCertificate, ...], now: datetime) -> tuple[MemberCertificate, ...]:
    return tuple(one if one.revoked else one.model_copy(update={"revoked": now}) for one in certificates)


def _recent(certificates: tuple[MemberCertificate, ...], now: datetime) -> tuple[MemberCertificate, ...]:
    """All that could still be shown, and a few older ones."""
    old = [one for one in certificates if one.expires <= now]
    forgotten = set(old[: max(0, len(old) - KEPT)])
    return tuple(one for one in certificates if one not in forgotten)
