"""One-time tokens: with one a device becomes a member, once, under one name, until it expires.

A token is one word. It says where the server is and by which fingerprint its authority is known, so that a device
believes no other server; and it has a secret, of which the server keeps the hash alone (tokens.json).
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field, RootModel, ValidationError

from edgefl.base.errors import ConfigError
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.members import LIMIT, FleetRecord, check_device
from edgefl.system.json_text import parse_json
from edgefl.system.store import write_atomically

PREFIX = "edgefl1-"  # of the word: 1 is the version of its format
LONGEST = 1024  # characters
NAME = "tokens.json"

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class JoinToken(FleetRecord):
    """What the word says."""

    name: str
    host: str
    port: Annotated[int, Field(ge=1, le=65535)]
    authority: Hex  # SHA-256 of its certificate
    secret: Annotated[str, Field(min_length=16, max_length=64)]

    def text(self) -> str:
        """As it is typed."""
        return PREFIX + base64.urlsafe_b64encode(self.model_dump_json().encode()).decode().rstrip("=")


class ExpectedDevice(FleetRecord):
    """A device that the bearer of the secret may become."""

    name: str
    expires: datetime
    replace: bool = False
    data: dict[str, Any] | None = None  # Any: whatever TOML can say
    site: str = ""


class UnusedTokens(RootModel[dict[Hex, ExpectedDevice]]):
    """Those that have not come yet, by the hash of their secret."""


def read(text: str) -> JoinToken:
    """The token of this word."""
    try:
        if len(text) > LONGEST or not text.startswith(PREFIX):
            raise ValueError
        raw = text.removeprefix(PREFIX)
        token = JoinToken.model_validate(parse_json(base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4))))
        check_device(token.name)
    except (ValueError, binascii.Error, ConfigError):  # a ValidationError is a ValueError
        raise ConfigError("--token: this is no token, or not the whole of it; copy it again") from None
    return token


def issue(
    fleet: FleetAdministration,
    name: str,
    now: datetime,
    lasts: timedelta,
    *,
    replace: bool,
    data: dict[str, Any] | None,
    site: str = "",
) -> JoinToken:
    """A token for a device that is not a member yet, or that begins anew."""
    check_device(name)
    if name in fleet.members.active() and not replace:
        raise ConfigError(f"'{name}' is a member already: --replace gives it new keys and revokes the old ones")
    fleet.broker_of(site)
    secret = secrets.token_urlsafe(24)
    with fleet.folder.changing():
        waiting = {key: one for key, one in _waiting(fleet).items() if one.name != name and one.expires > now}
        waiting[_hash(secret)] = ExpectedDevice(name=name, expires=now + lasts, replace=replace, data=data, site=site)
        _write(fleet, waiting)
    settings = fleet.settings
    return JoinToken(
        name=name,
        host=settings.hosts[0],
        port=settings.enrolment_port,
        authority=fleet.authority.fingerprint,
        secret=secret,
    )


def redeem(fleet: FleetAdministration, secret: str, name: str, now: datetime) -> ExpectedDevice | None:
    """Use up the token with this secret and return its device; None if there is no such token, or no longer.

    Call it within `folder.changing()` and admit the device there too: a revocation meanwhile then finds either.
    """
    digest, waiting = _hash(secret), _waiting(fleet)
    match = [key for key in waiting if hmac.compare_digest(key, digest)]
    if not match or waiting[match[0]].expires <= now or waiting[match[0]].name != name:
        return None
    expected = waiting.pop(match[0])
    _write(fleet, waiting)
    return expected


def withdraw(fleet: FleetAdministration, name: str) -> None:
    """Void the tokens that were made for this device."""
    with fleet.folder.changing():
        waiting = _waiting(fleet)
        left = {key: one for key, one in waiting.items() if one.name != name}
        if left != waiting:
            _write(fleet, left)


def pending(fleet: FleetAdministration, now: datetime) -> set[str]:
    """The names of those that may still come."""
    return {one.name for one in _waiting(fleet).values() if one.expires > now}


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _waiting(fleet: FleetAdministration) -> dict[str, ExpectedDevice]:
    path = fleet.folder.path / NAME
    try:
        if path.stat().st_size > LIMIT:
            raise ConfigError(f"{path}: larger than {LIMIT >> 20} MiB, so not one of our files")
        return UnusedTokens.model_validate_json(path.read_bytes()).root
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path}: cannot be read; delete it and give new tokens ({type(error).__name__})") from None


def _write(fleet: FleetAdministration, waiting: dict[str, ExpectedDevice]) -> None:
    write_atomically(fleet.folder.path / NAME, UnusedTokens(waiting).model_dump_json(indent=1).encode())
