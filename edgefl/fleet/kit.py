"""A kit: one file with all that a device needs to be a member of its fleet. It is JSON, and holds no code.

    {"format": "edgefl kit", "version": 1, "name": "pi-01", "fleet": "default", "broker": "mqtts://server.local:8883",
     "coordinator": "ed25519:...", "ca": PEM, "certificate": PEM, "key": PEM, "device_key": PEM, "data": {...} or null}

The owner of the file can act as that device, so it has mode 0600, and is deleted once it is installed.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError, field_validator

from edgefl.base.errors import ConfigError
from edgefl.fleet import authority
from edgefl.fleet.members import FleetRecord, check_device
from edgefl.system.store import write_atomically
from edgefl.wire import key_file
from edgefl.wire.address import parse
from edgefl.wire.signing import KeyText
from edgefl.wire.topics import NAME, check_name

LIMIT = 64 << 10  # bytes; one is about 3 KiB
SUFFIX = ".kit"

Pem = Annotated[str, Field(min_length=1, max_length=8192, pattern=r"^-----BEGIN [A-Z ]+-----\n")]


class Membership(FleetRecord):
    """What a device is told by its fleet; nothing of it is secret."""

    later: ClassVar[frozenset[str]] = frozenset({"also"})

    format: Literal["edgefl kit"] = "edgefl kit"
    version: Literal[1] = 1
    name: str
    fleet: str
    broker: str
    also: tuple[str, ...] = ()  # further addresses of it, tried after that one
    coordinator: KeyText
    ca: Pem
    certificate: Pem
    site: Annotated[str, Field(pattern=f"^({NAME})?$")] = ""  # whose broker it is, if not the fleet's own
    models: KeyText | None = None  # behind a gateway: whose models it passes on
    data: dict[str, Any] | None = None  # [data] of its agent file, for a trial; Any: whatever TOML can say

    @field_validator("name")
    @classmethod
    def _is_a_device(cls, name: str) -> str:
        return check_device(name)

    @field_validator("fleet")
    @classmethod
    def _fits_a_topic(cls, fleet: str) -> str:
        return check_name("fleet", fleet)

    @field_validator("broker")
    @classmethod
    def _is_secured(cls, broker: str) -> str:
        if not parse(broker).tls:
            raise ValueError(f"the broker's address is '{broker}', not mqtts://...")
        return broker

    @field_validator("also")
    @classmethod
    def _are_secured(cls, also: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cls._is_secured(broker) for broker in also)

    def text(self) -> str:
        """As it is sent."""
        return self.model_dump_json()


class Kit(Membership):
    """The same with the device's own keys."""

    key: Pem  # of the certificate
    device_key: Pem  # that signs messages


def write(kit: Kit, path: Path) -> None:
    """The kit as a file for its owner alone."""
    write_atomically(path, kit.model_dump_json(indent=1).encode() + b"\n")


def read(path: Path) -> Kit:
    """The kit in this file."""
    try:
        with path.open("rb") as file:
            raw = file.read(LIMIT + 1)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); `edgefl fleet add NAME` makes one on the server"
        ) from None
    if len(raw) > LIMIT:
        raise ConfigError(f"{path}: larger than {LIMIT >> 10} KiB, so it is no kit")
    try:
        kit = Kit.model_validate_json(raw)
        _check_pems(kit)
        return kit
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = f"{where}: {first['msg']}" if where else first["msg"]
    except (ConfigError, ValueError) as error:
        what = str(error)
    raise ConfigError(
        f"{path}: not a kit that this version of edgefl can read ({what}); copy it again from the server,"
        " where `edgefl fleet add NAME --replace` makes a new one"
    )


def _check_pems(kit: Kit) -> None:
    """ValueError if its certificates and keys are damaged: who has installed a kit deletes it."""
    certificate = authority.read_certificate(kit.certificate.encode())
    if not authority.issued_by(certificate, kit.ca.encode()):
        raise ValueError("its certificate is not of its own fleet's authority")
    if not authority.belong_together(certificate, kit.key.encode(), kit.name):
        raise ValueError("its certificate is not for its key and name")
    key_file.checked(kit.device_key.encode(), 0o600, kit.name, "the device's", lost="")
