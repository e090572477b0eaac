"""A site: devices with a broker of their own, bridged to the fleet's. One file has all that its server needs.

    {"format": "edgefl site", "version": 1, "name": "north", "fleet": "default", "hosts": ["north.local"], "port": 8883,
     "centre": "mqtts://server.local:8883", "coordinator": "ed25519:...", "ca": PEM, "certificate": PEM, "key": PEM,
     "bridge_certificate": PEM, "bridge_key": PEM, "members": {"number": 7, "devices": ["pi-07"], "revoked": PEM}}

A site is a member of the fleet: its bridge has a certificate with the site's name, may pass on messages of the site's
own devices only, and is revoked like a device. The coordinator sends the site a list of its members and of revoked
certificates whenever one of them changes. The list is signed with the coordinator's key and numbered, so that no older
one can take its place, even at a hostile broker. It is retained at the fleet's broker, for a site that is away.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from edgefl.base.errors import ConfigError, WireError
from edgefl.fleet.administration import SERVER, FleetAdministration
from edgefl.fleet.authority import check_host, key_pem, new_key
from edgefl.fleet.kit import Pem
from edgefl.fleet.members import FleetRecord, Member, Members, check_device
from edgefl.system.json_text import parse_json
from edgefl.system.store import write_atomically
from edgefl.wire import key_file, signing
from edgefl.wire.signing import Signer
from edgefl.wire.topics import site as site_topic

SUFFIX = ".site"
LIMIT = 4 << 20  # bytes of a file or list
PREFIX = b"edgefl site list 1\0"  # what the coordinator's key signs here can never be taken for something else


class SiteMembers(FleetRecord):
    """Who belongs to a site; of two lists the one with the larger number counts."""

    site: str
    number: int
    devices: tuple[str, ...]
    revoked: Annotated[str, Field(max_length=LIMIT)]  # the revocation list, PEM


class SiteFile(FleetRecord):
    """What the server of a site is given; its owner can act as that site."""

    format: Literal["edgefl site"] = "edgefl site"
    version: Literal[1] = 1
    name: str
    fleet: str
    hosts: Annotated[tuple[str, ...], Field(min_length=1)]
    port: int
    centre: str  # the fleet's broker, as the bridge reaches it
    coordinator: str  # the key that signs lists
    ca: Pem
    certificate: Pem  # of its broker
    key: Pem
    bridge_certificate: Pem
    bridge_key: Pem
    members: SiteMembers


def add(
    fleet: FleetAdministration, name: str, hosts: Sequence[str], port: int, now: datetime, *, replace: bool
) -> SiteFile:
    """A site of the fleet, whose broker is reached by these names; with `replace`, new keys for one that is there."""
    check_device(name)
    hosts = tuple(check_host(host) for host in hosts)
    server, bridge = new_key(), new_key()
    nobody = Signer.new().key  # a site says nothing in its own name: the private half is nowhere
    with fleet.folder.changing():
        known = fleet.members.members.get(name)
        if known is not None and not known.hosts:
            raise ConfigError(f"'{name}' is a device of fleet '{fleet.folder.name}': give the site another name")
        if known is not None and known.revoked is None and not replace:
            raise ConfigError(f"site '{name}' is there already: --replace gives it new keys and revokes the old ones")
        about = Member(key=nobody, added=now, hosts=hosts, port=port)
        pem = fleet.certify(name, bridge.public_key(), about, now, SERVER)
        names = list(dict.fromkeys([*hosts, "localhost", "127.0.0.1", "::1"]))
        certificate = fleet.authority.server(names, server.public_key(), now, SERVER).pem
    return SiteFile(
        name=name,
        fleet=fleet.folder.name,
        hosts=hosts,
        port=port,
        centre=str(fleet.settings.broker),
        coordinator=fleet.coordinator_key,
        ca=fleet.authority.pem.decode(),
        certificate=certificate.decode(),
        key=key_pem(server).decode(),
        bridge_certificate=pem.decode(),
        bridge_key=key_pem(bridge).decode(),
        members=members_of(fleet, name),
    )


def members_of(fleet: FleetAdministration, name: str) -> SiteMembers:
    """Who belongs to a site, as it stands on disk."""
    members, revoked = fleet.members, fleet.revocations.decode()
    return SiteMembers(site=name, number=members.changes, devices=devices_of(members.active(), name), revoked=revoked)


def devices_of(active: Mapping[str, Member], site: str) -> tuple[str, ...]:
    """The devices of a site, by name."""
    return tuple(name for name, member in active.items() if member.site == site)


def known(members: Members) -> tuple[str, ...]:
    """The sites of a fleet, by name."""
    return tuple(name for name, member in members.active().items() if member.hosts)


def list_topic(fleet: str, site: str) -> str:
    """Where its list stands."""
    return f"{site_topic(fleet, site)}/list"


def read_topic(fleet: str, site: str) -> str:
    """Where the site says the number of the list that is in force there."""
    return f"{site_topic(fleet, site)}/read"


def signed_list(fleet: FleetAdministration, name: str) -> bytes:
    """The list of a site as it stands at the broker."""
    statement = members_of(fleet, name).model_dump_json().encode()
    signer = key_file.opened(fleet.folder.signing_key, "the coordinator's", elsewhere="let this user read it", lost="")
    signature = base64.b64encode(signer.signature(_statement(fleet.folder.name, statement)))
    return json.dumps({"list": statement.decode(), "signature": signature.decode()}).encode()


def newer(file: SiteFile, current: SiteMembers, payload: bytes) -> SiteMembers | None:
    """The list behind a message, if the coordinator signed it for this site and it is newer than the current one."""
    try:
        if len(payload) > LIMIT:
            raise ValueError(f"a list of {len(payload)} bytes")
        message = parse_json(payload)
        statement, signature = message["list"].encode(), base64.b64decode(message["signature"], validate=True)
        if not signing.verified(signing.key_bytes(file.coordinator), signature, _statement(file.fleet, statement)):
            raise ValueError("not signed by the fleet's coordinator")
        listed = SiteMembers.model_validate_json(statement)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a ValidationError is a ValueError
        raise WireError("site.list", f"a list of members that cannot be used: {str(error).splitlines()[0]}") from None
    if listed.site != file.name:
        raise WireError("site.list", f"the list of site '{listed.site}' came to site '{file.name}'")
    return listed if listed.number > current.number else None


def write(file: SiteFile, path: Path) -> None:
    """The site as a file for its owner alone."""
    write_atomically(path, file.model_dump_json(indent=1).encode() + b"\n")


def read(path: Path) -> SiteFile:
    """The site in this file."""
    try:
        if path.stat().st_size > LIMIT:
            raise ConfigError(f"{path}: larger than {LIMIT >> 20} MiB, so it is no site")
        return SiteFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); `edgefl fleet site NAME` writes it on the fleet's server"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: not a site of this version of edgefl ({where}: {first['msg']})") from None


def _statement(fleet: str, statement: bytes) -> bytes:
    return PREFIX + fleet.encode() + b"\0" + statement
