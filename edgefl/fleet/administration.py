"""What an operator does to a fleet: make it, add a device, take one back. Everything is on disk when it returns.

What has been written is in force at the broker when it has read it again (`reload` in broker.py).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from edgefl.base.errors import ConfigError
from edgefl.fleet import authority as certificates
from edgefl.fleet import lifetimes, members, mosquitto
from edgefl.fleet.authority import Authority, Issued, key_pem, new_key
from edgefl.fleet.folder import FleetFolder, Settings
from edgefl.fleet.kit import Kit, Membership
from edgefl.fleet.members import COORDINATOR, Member, MemberCertificate, Members, check_device
from edgefl.system.store import make_private, write_atomically
from edgefl.wire import key_file
from edgefl.wire.address import Address

# How long certificates last; that of a device is the default, see `Settings.lifetime`.
DEVICE, SERVER = timedelta(days=lifetimes.DEVICE_DAYS), timedelta(days=365)
RENEWED = 1 / 3  # of its time is left when the certificate of broker or coordinator is made anew


def check_new(name: str) -> FleetFolder:
    """The folder of a fleet that is not there yet."""
    folder = FleetFolder(name)
    if folder.exists():
        raise ConfigError(
            f"fleet '{name}' is there already ({folder.path}): `edgefl fleet add NAME` adds a device,"
            " `edgefl fleet init --fleet OTHER` makes another fleet"
        )
    return folder


class FleetAdministration:
    """A fleet on this machine, opened to change it."""

    def __init__(self, name: str, state: Path | None = None) -> None:
        self.folder = FleetFolder(name, state)
        self.settings = self.folder.read_settings()
        certificate, key = self.folder.authority
        try:
            self.authority = Authority.read(key.read_bytes(), certificate.read_bytes())
        except OSError as error:
            raise ConfigError(f"the authority of fleet '{name}' cannot be read: {error.strerror} ({key})") from None
        except ValueError as error:
            raise ConfigError(f"the authority of fleet '{name}' is damaged: {error} ({key}); restore it") from None

    @classmethod
    def new(  # noqa: PLR0917 - what a fleet is made of
        cls,
        name: str,
        hosts: Sequence[str],
        port: int,
        now: datetime,
        trial: str | None = None,
        models: str | None = None,
        device_certificates: timedelta = DEVICE,
    ) -> "FleetAdministration":
        """A fleet without members; its broker is reached by the first of these names, and has all of them."""
        folder = check_new(name)
        make_private(folder.path)
        make_private(folder.broker)
        authority = Authority.new(name, now)
        certificate, key = folder.authority
        write_atomically(key, key_pem(authority.key))
        write_atomically(certificate, authority.pem)
        settings = Settings(
            fleet=name,
            hosts=tuple(hosts),
            port=port,
            trial=trial,
            models=models,
            device_certificate_days=device_certificates.days,
        )
        write_atomically(folder.members, Members().model_dump_json(indent=1).encode())
        write_atomically(folder.settings, settings.model_dump_json(indent=1).encode())  # last: now it exists
        fleet = cls(name)
        fleet.refresh(now)
        return fleet

    @property
    def members(self) -> Members:
        """Who belongs to it, as it stands on disk."""
        return members.read(self.folder.members)

    @property
    def coordinator_key(self) -> str:
        """The public half of the key that signs its models and messages; made at the first time."""
        lost = "give every device a new kit"
        elsewhere = "let this user read it"
        return key_file.opened(self.folder.signing_key, "the coordinator's", elsewhere=elsewhere, lost=lost).key

    @property
    def revocations(self) -> bytes:
        """The list of certificates that no longer count, as it stands on disk."""
        return (self.folder.broker / mosquitto.REVOKED).read_bytes()

    def add(
        self,
        name: str,
        now: datetime,
        *,
        replace: bool = False,
        data: dict[str, Any] | None = None,
        site: str = "",
    ) -> Kit:
        """A kit for a new device, or for one that begins anew; it goes to the broker of the site, if one is named."""
        key, pem = new_key(), key_file.new_pem()
        public = key_file.checked(pem, 0o600, name, "the device's", lost="").key
        with self.folder.changing():
            joined = self.admit(name, key.public_key(), public, now, replace=replace, data=data, site=site)
        return Kit(**joined.model_dump(), key=key_pem(key).decode(), device_key=pem.decode())

    def admit(
        self,
        name: str,
        tls_key: ec.EllipticCurvePublicKey,
        key: str,
        now: datetime,
        *,
        replace: bool = False,
        data: dict[str, Any] | None = None,
        site: str = "",
    ) -> Membership:
        """A new member, whose keys are somewhere else; what its device is told. Call it within `folder.changing()`."""
        check_device(name)
        self.settings, current = self.folder.read_settings(), self.members
        if name in current.members and current.members[name].hosts:
            raise ConfigError(f"'{name}' is a site of fleet '{self.folder.name}': give the device another name")
        if name in current.active() and not replace:
            raise ConfigError(
                f"'{name}' is a member of fleet '{self.folder.name}' already: --replace gives it new keys"
                " and revokes the old ones"
            )
        broker, *also = [self.broker_of(site)] if site else self.settings.brokers
        # labels are the place's, not the board's: they stay
        labels = current.members[name].labels if name in current.active() else {}
        member = Member(key=key, added=now, site=site, labels=labels)
        pem = self.certify(name, tls_key, member, now, self.settings.lifetime)
        return Membership(
            name=name,
            fleet=self.folder.name,
            broker=str(broker),
            also=tuple(map(str, also)),
            coordinator=self.coordinator_key,
            ca=self.authority.pem.decode(),
            certificate=pem.decode(),
            data=data,
            site=site,
            models=self.settings.models,
        )

    def broker_of(self, site: str) -> Address:
        """Where devices of this site connect; without a name, those of no site."""
        if not site:
            return self.settings.broker
        sites = {name: member for name, member in self.members.active().items() if member.hosts}
        if site not in sites:
            known = ", ".join(sites) or "none yet"
            raise ConfigError(
                f"there is no site '{site}' ({known}): `edgefl fleet site {site} --host ADDRESS` makes it"
            )
        return Address("mqtts", sites[site].hosts[0], sites[site].port)

    def certify(
        self, name: str, tls_key: ec.EllipticCurvePublicKey, member: Member, now: datetime, lasts: timedelta
    ) -> bytes:
        """The certificate (PEM) of a new member, who is written down. Call it within `folder.changing()`."""
        issued = self.authority.client(name, tls_key, now, lasts)
        self._write(self.members.with_member(name, member, _noted(issued), now), now)
        return issued.pem

    def renew(self, name: str, tls_key: ec.EllipticCurvePublicKey, now: datetime, key: str | None = None) -> bytes:
        """A further certificate (PEM) for a member that is in good standing, and still has this key for messages."""
        with self.folder.changing():
            current = self.members
            if name not in current.active():
                raise ConfigError(f"'{name}' is not a member of fleet '{self.folder.name}'")
            if key not in (None, current.members[name].key):  # replaced meanwhile: the device that asked was revoked
                raise ConfigError(f"'{name}' has another key by now")
            self.settings = self.folder.read_settings()
            issued = self.authority.client(name, tls_key, now, self.settings.lifetime)
            self._write(current.with_certificate(name, _noted(issued), now), now)
        return issued.pem

    def change(self, **about: Any) -> Settings:  # Any: fields of `Settings`
        """Write settings that have changed, and return all of them."""
        with self.folder.changing():
            current = self.folder.read_settings()
            changed = Settings.model_validate({**current.model_dump(), **about})
            _place(self.folder.settings, changed.model_dump_json(indent=1).encode())
            self.settings = changed
        return changed

    def permit(self, name: str, until: datetime, now: datetime) -> Member:
        """Let this member have a new certificate until then, however long ago its last one ended."""
        with self.folder.changing():
            current = self.members
            if name not in current.active() or current.members[name].hosts:
                names = ", ".join(one for one, member in current.active().items() if not member.hosts) or "none"
                raise ConfigError(f"fleet '{self.folder.name}' has no device '{name}'; its members: {names}")
            self._write(current.with_permit(name, until), now)
        return current.members[name]

    def label(self, names: Sequence[str], labels: Mapping[str, str], now: datetime) -> None:
        """Give these members labels; one without a value is taken away. All of them get them, or none does."""
        with self.folder.changing():
            current = self.members
            for name in names:
                if name not in current.active():
                    known = ", ".join(current.active()) or "none"
                    raise ConfigError(f"fleet '{self.folder.name}' has no device '{name}'; its members: {known}")
                if current.members[name].hosts:
                    raise ConfigError(f"'{name}' is a site of fleet '{self.folder.name}': label its devices")
                current = current.with_labels(name, labels)
            self._write(current, now)

    def revoke(self, name: str, now: datetime, also: Sequence[Issued] = ()) -> bool:
        """Send a device away, for good; False if it was gone already. `also` no longer count either."""
        with self.folder.changing():
            current = self.members
            if name not in current.members:
                names = ", ".join(current.active()) or "none"
                raise ConfigError(f"fleet '{self.folder.name}' has no device '{name}'; its members: {names}")
            self._write(current.without(name, now, tuple(_noted(one) for one in also)), now)
        return current.members[name].revoked is None

    def refresh(self, now: datetime) -> bool:
        """Write what the broker reads, and certificates anew that end soon; whether the broker's is another one."""
        with self.folder.changing():
            self.settings = self.folder.read_settings()  # `edgefl fleet host` may have changed them
            make_private(self.folder.broker)
            self._write(self.members, now)
            files = self.folder.broker
            _place(files / mosquitto.CONFIGURATION, mosquitto.configuration(self.settings, files).encode())
            _place(files / mosquitto.CA, self.authority.pem)
            certificate, key = self.folder.coordinator
            if _ends_soon(certificate, now):
                secret = new_key()
                _place(key, key_pem(secret))
                _place(certificate, self.authority.client(COORDINATOR, secret.public_key(), now, SERVER).pem)
            certificate, key = files / mosquitto.CERTIFICATE, files / mosquitto.KEY
            hosts = list(dict.fromkeys([*self.settings.hosts, "localhost", "127.0.0.1", "::1"]))
            if not _ends_soon(certificate, now) and certificates.covers(certificate.read_bytes(), hosts):
                return False
            secret = new_key()
            _place(key, key_pem(secret))
            _place(certificate, self.authority.server(hosts, secret.public_key(), now, SERVER).pem)
            return True

    def _write(self, members: Members, now: datetime) -> None:
        """Write the members and the broker's files; what revokes a member comes first."""
        files = self.folder.broker
        _place(files / mosquitto.ACL, mosquitto.acl(self.folder.name, members.active()).encode())
        listed = files / mosquitto.REVOKED
        before = listed.read_bytes() if listed.exists() else None
        if before is None or members.revoked_serials(now) != self.members.revoked_serials(now):
            _place(listed, self.authority.revocations(members.revoked_serials(now), now, before))
        _place(self.folder.members, members.model_dump_json(indent=1).encode())


def _noted(issued: Issued) -> MemberCertificate:
    return MemberCertificate(serial=f"{issued.serial:x}", expires=issued.expires)


def _place(path: Path, data: bytes) -> None:
    """Write it, unless it is there already."""
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def _ends_soon(path: Path, now: datetime) -> bool:
    """Whether a certificate is missing, or most of its time is over."""
    if not path.exists():
        return True
    read = certificates.read_certificate(path.read_bytes())
    begun, ends = read.not_valid_before_utc, read.not_valid_after_utc
    return ends - now < (ends - begun) * RENEWED
