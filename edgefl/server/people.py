"""Who may use a server: people with roles, known by tokens, or by a header of a proxy that is trusted.

    viewer      sees
    operator    submits, pauses and cancels runs, labels devices, asks devices how they are
    admin       everything, people included

A token is shown once, when it is made; the server keeps its hash. A user who can read `admin.token` in the server's
folder owns the server, and is admin. A person may be bound to some fleets, and does not learn that there are others.
"""

import getpass
import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, RootModel, ValidationError

from edgefl.base.errors import ConfigError
from edgefl.fleet.members import FleetRecord
from edgefl.system.store import write_atomically
from edgefl.watch.page import token as tokens
from edgefl.wire.topics import check_name

Role: TypeAlias = Literal["viewer", "operator", "admin"]
RANK: Mapping[str, int] = {"viewer": 0, "operator": 1, "admin": 2}
NAME, ADMIN = "people.json", "admin.token"
COOKIE = "edgefl_server"
LIMIT = 1 << 20  # bytes of the file


class Person(FleetRecord):
    """A person with a token; without `fleets`, for all of them."""

    role: Role
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # its SHA-256
    added: datetime
    fleets: tuple[str, ...] = ()


class _People(RootModel[dict[str, Person]]):
    """By name."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, and what they may."""

    name: str
    role: Role
    fleets: tuple[str, ...] = ()

    def may(self, role: Role) -> bool:
        """Whether they have this role, or a higher one."""
        return RANK[self.role] >= RANK[role]

    def sees(self, fleet: str) -> bool:
        """Whether this fleet is theirs to see."""
        return not self.fleets or fleet in self.fleets


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that has already asked who it is."""

    addresses: tuple[str, ...] = ()
    header: str = "x-forwarded-user"
    roles: Mapping[str, Role] = field(default_factory=dict)


NO_PROXY = Proxy()


class People:
    """The file of one server; it is read again when it has changed."""

    def __init__(self, folder: Path, proxy: Proxy = NO_PROXY) -> None:
        self.path, self.proxy = folder / NAME, proxy
        self.admin_file = folder / ADMIN
        self.admin = tokens.opened(self.admin_file)
        self.owner = f"{getpass.getuser()}@{socket.gethostname()}"
        self._stamp: tuple[int, int] | None = None
        self._people: dict[str, Person] = {}

    def add(self, name: str, role: Role, now: datetime, fleets: tuple[str, ...] = ()) -> str:
        """Add a person and return their token, which cannot be shown again."""
        check_name("name", name)
        people = self.all()
        if name in people:
            raise ConfigError(f"'{name}' is there already: `edgefl server user remove {name}` first")
        word = secrets.token_urlsafe(32)
        self._write({**people, name: Person(role=role, token=_hash(word), added=now, fleets=fleets)})
        return word

    def remove(self, name: str) -> None:
        """Take a person's token back; it is refused from the next request on."""
        people = self.all()
        if name not in people:
            raise ConfigError(f"there is no '{name}' here; there are {', '.join(sorted(people)) or 'none'}")
        self._write({other: person for other, person in people.items() if other != name})

    def all(self) -> dict[str, Person]:
        """Return all people by name, as they stand on disk."""
        try:
            status = self.path.stat()
            if (status.st_mtime_ns, status.st_size) != self._stamp:
                if status.st_size > LIMIT:
                    raise ConfigError(f"{self.path}: larger than {LIMIT >> 20} MiB, so not one of our files")
                self._people = _People.model_validate_json(self.path.read_bytes()).root
                self._stamp = status.st_mtime_ns, status.st_size
        except FileNotFoundError:
            self._people, self._stamp = {}, None
        except (OSError, ValidationError) as error:
            raise ConfigError(f"{self.path}: cannot be read ({type(error).__name__}); restore it") from None
        return dict(self._people)

    def by_word(self, word: str) -> Principal | None:
        """Whose token this is."""
        if self.admin.is_word(word):
            return Principal(self.owner, "admin")
        digest, match = _hash(word.strip()), None
        for name, person in self.all().items():  # all are compared: how long it takes tells nothing
            if hmac.compare_digest(person.token, digest):
                match = Principal(name, person.role, person.fleets)
        return match

    def of_request(self, headers: Mapping[str, str], peer: str | None) -> Principal | None:
        """Who sends a request with these headers from this address."""
        scheme, _, word = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.by_word(word)
        if peer is not None and self._is_proxy(peer) and (name := headers.get(self.proxy.header.lower())):
            role = self.proxy.roles.get(name)
            return Principal(name, role) if role else None
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return None
        return self._by_cookie(morsel.value) if morsel is not None else None

    def cookie(self, word: str) -> str:
        """What a browser keeps in place of the token."""
        return _cookie(_hash(word.strip()))

    def _by_cookie(self, value: str) -> Principal | None:
        match = None
        if hmac.compare_digest(_cookie(_hash(self.admin.word)), value):
            match = Principal(self.owner, "admin")
        for name, person in self.all().items():
            if hmac.compare_digest(_cookie(person.token), value):
                match = Principal(name, person.role, person.fleets)
        return match

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in ipaddress.ip_network(one, strict=False) for one in self.proxy.addresses)

    def _write(self, people: Mapping[str, Person]) -> None:
        write_atomically(self.path, _People(dict(people)).model_dump_json(indent=1).encode())


def _hash(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


def _cookie(digest: str) -> str:
    """Made from the hash of a token, and useless in its place."""
    return hashlib.sha256(b"edgefl server cookie" + digest.encode()).hexdigest()
