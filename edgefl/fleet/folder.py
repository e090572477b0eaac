"""Where a fleet's secrets are: one private folder for each fleet, in the operator's state folder.

fleets/default.key              the coordinator's Ed25519 key, which signs models and messages
fleets/default.questions        the number of who asked its devices last, see edgefl/ops/diagnosis.py
fleets/default/fleet.json       where the broker is
              /members.json     who belongs to it
              /seen.json        every device that was ever seen; default.seen.json where there are no identities
              /authority.key    its owner can make members; .crt is its certificate
              /coordinator.key  the coordinator at the broker, .crt
              /broker/          all that Mosquitto reads: configuration, ACL, certificates, revocation list
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationError

from edgefl.base.errors import ConfigError
from edgefl.fleet import lifetimes, members
from edgefl.fleet.members import FleetRecord
from edgefl.system import portable
from edgefl.wire.address import UNIX, Address, is_loopback
from edgefl.wire.tls import Tls
from edgefl.wire.topics import check_name

SETTINGS = "fleet.json"
SOCKET = "socket"  # a link to it
LIMIT = 64 << 10  # bytes of the settings
PORT = 8883


class Settings(FleetRecord):
    """What holds for a whole fleet: where its broker is, and how long certificates last.

    `hosts` are the names and addresses of the broker's certificate; devices are told the first, or `addresses`.
    """

    later: ClassVar[frozenset[str]] = frozenset({"addresses", "moves", "device_certificate_days", "grace_days"})

    format: Literal["edgefl fleet"] = "edgefl fleet"
    version: Literal[1] = 1
    fleet: str
    hosts: tuple[str, ...] = Field(min_length=1)
    port: Annotated[int, Field(ge=1, le=65533)] = PORT
    models: str | None = None  # of a fleet behind a gateway: the key of the coordinator whose models it passes on
    trial: str | None = None  # the run file whose data the first devices were given
    addresses: tuple[str, ...] = ()  # of `hosts`, those that devices try, in this order; none: the first of `hosts`
    moves: Annotated[int, Field(ge=0)] = 0  # how often `addresses` were changed
    device_certificate_days: Annotated[int, Field(ge=1, le=lifetimes.LONGEST)] = lifetimes.DEVICE_DAYS
    grace_days: Annotated[int, Field(ge=0, le=lifetimes.LONGEST)] = lifetimes.GRACE_DAYS

    @property
    def broker(self) -> Address:
        """As devices reach it: the address that they try first."""
        return self.brokers[0]

    @property
    def brokers(self) -> tuple[Address, ...]:
        """The addresses that devices try, in their order."""
        return tuple(Address("mqtts", host, self.port) for host in self.addresses or self.hosts[:1])

    @property
    def lifetime(self) -> timedelta:
        """How long the certificate of a device lasts."""
        return timedelta(days=self.device_certificate_days)

    @property
    def grace(self) -> timedelta:
        """How long after the end of its certificate a device may renew it with its key for messages."""
        return timedelta(days=self.grace_days)

    @property
    def enrolment_port(self) -> int:
        """Where devices with a token come, see enrolment.py."""
        return self.port + 2

    @property
    def bind(self) -> str | None:
        """The address that it listens at; None: all of this machine's."""
        told = [one.host for one in self.brokers]
        return min(told, key="localhost".__eq__) if all(map(is_loopback, told)) else None


class FleetFolder:
    """The folder of one fleet, and where what is in it; `state` is where fleets are that are not in force yet."""

    def __init__(self, name: str, state: Path | None = None) -> None:
        self.name = check_name("fleet", name)
        self.path = (state or state_folder()) / "fleets" / name
        self.settings = self.path / SETTINGS
        self.members = self.path / members.NAME
        self.authority = self.path / "authority.crt", self.path / "authority.key"
        self.coordinator = self.path / "coordinator.crt", self.path / "coordinator.key"
        self.broker = self.path / "broker"
        self.signing_key = signing_key(name, state)
        self.questions = self.signing_key.with_suffix(".questions")
        # As coordinators on the broker's own machine reach it: any number of them, see mosquitto.py.
        self.here = Address(UNIX, str(self.broker / SOCKET))

    @property
    def seen(self) -> Path:
        """The inventory of its devices; a fleet without identities has one too, beside where its folder would be."""
        return self.path / "seen.json" if self.exists() else self.path.with_name(f"{self.name}.seen.json")

    def exists(self) -> bool:
        """Whether there is a fleet of this name here."""
        return self.settings.exists()

    def read_settings(self) -> Settings:
        """Where its broker is."""
        try:
            if self.settings.stat().st_size > LIMIT:
                raise ConfigError(f"{self.settings}: larger than {LIMIT >> 10} KiB, so not one of our files")
            return Settings.model_validate_json(self.settings.read_bytes())
        except FileNotFoundError:
            raise ConfigError(
                f"there is no fleet '{self.name}' here ({self.path}): `edgefl fleet init` makes one"
            ) from None
        except OSError as error:
            raise ConfigError(f"{self.settings}: cannot be read ({error.strerror})") from None
        except ValidationError as error:
            raise ConfigError(f"{self.settings}: {error.errors()[0]['msg']}; restore it") from None

    def coordinator_tls(self) -> Tls:
        """How the coordinator proves who it is."""
        certificate, key = self.coordinator
        return Tls(ca=self.authority[0], certificate=certificate, key=key)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock of this fleet while the block runs; other processes that change it wait."""
        with (self.path / "changing").open("a+") as file:
            portable.close_to_others(file.fileno())
            portable.lock(file.fileno())
            yield


def state_folder() -> Path:
    """Where what belongs to this operator, and to no run, is kept."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "edgefl"


def signing_key(fleet: str, state: Path | None = None) -> Path:
    """Where the key is that signs a fleet's models and messages, unless its run files say otherwise."""
    return (state or state_folder()) / "fleets" / f"{fleet}.key"
