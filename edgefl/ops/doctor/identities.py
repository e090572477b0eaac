"""Who is who in a fleet, and what would let a stranger in: keys, certificates, members, the revocation list.

Each look is a function of files and a moment, so that a test can show it fleets in disorder.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from edgefl.base.errors import ConfigError
from edgefl.fleet import hosts, members, mosquitto, revocation
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.folder import FleetFolder
from edgefl.fleet.kit import SUFFIX
from edgefl.fleet.members import Members
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.allowance import Allowance
from edgefl.job.config.schema import RunFile
from edgefl.ops.doctor import network
from edgefl.ops.doctor.certificates import SOON, own
from edgefl.ops.doctor.finding import Finding, ok, warning, wrong
from edgefl.ops.doctor.folders import key_file
from edgefl.wire.address import Address, is_loopback, reachable

DEVICE_KEY = "device.key"  # in the folder of the agent's name


def at_its_broker(run: RunFile) -> RunFile:
    """The run at the broker of its fleet, if it names none and there is one here: where devices come to it."""
    folder = FleetFolder(run.broker.fleet)
    if "url" in run.broker.model_fields_set or not folder.exists():
        return run
    about = {"url": str(folder.read_settings().broker), "tls": folder.coordinator_tls()}
    return run.model_copy(update={"broker": run.broker.model_copy(update=about)})


def of_run(run: RunFile, address: Address, now: datetime) -> Iterator[Finding]:
    """The fleet that this run is for, as its server sees it."""
    folder = FleetFolder(run.broker.fleet)
    if folder.exists() and not address.embedded:
        yield from _private(folder)
        yield from _authority(folder, now)
        yield from _socket(folder)
        yield _revocations(folder.broker / mosquitto.REVOKED, now)
        yield from _members(folder, now)
    elif not run.devices and not address.local:
        yield warning(
            "identities",
            f"fleet '{folder.name}' has no members: the first key that comes with a device's name is trusted",
            "`edgefl fleet init` makes a fleet of members, or name their keys under [devices]",
        )
    if run.page.serve and not is_loopback(run.page.host) and run.page.certificate is None and not folder.exists():
        yield warning(
            "page",
            f"the page on {run.page.host} has no TLS: the network between can read its token, and all that it shows",
            "set page.host = '127.0.0.1', or name a certificate (page.certificate, page.key)",
        )
    if not address.local and not run.wire.seals(local=False):
        yield warning(
            "seal",
            f"the operator of the broker at {address.host} can read every update",
            'set wire.seal = "auto": answers are then for the coordinator alone',
        )


def of_agent(file: AgentFile, address: Address) -> Iterator[Finding]:
    """The device's own key, and keys that should not be here."""
    key = file.agent.folder.expanduser() / file.agent.id / DEVICE_KEY
    if key.exists():  # else it will be made
        yield key_file(key, "the device's key")
    folder = FleetFolder(file.agent.fleet)
    authority, here = folder.authority[1], address.local or address.host in hosts.ours()
    if authority.exists() and not here:
        yield warning(
            "authority",
            f"the key of the authority is on this machine, which is only an agent ({authority}): a thief of it"
            " makes members at will",
            f"keep {folder.path} on the server alone",
        )
    yield ok("privacy", _allowed(file.privacy))
    if not address.local and address.tls and file.agent.tls.certificate is None and address.username is not None:
        yield warning(
            "identities",
            "this device proves who it is with a password, which can be copied, and not with a certificate",
            f"`edgefl fleet add {file.agent.id}` on the server makes its kit",
        )


def _allowed(allowance: Allowance) -> str:
    """What the coordinator can learn of this device's samples."""
    if allowance.epsilon is None:
        return "no allowance: the coordinator's run says what noise updates have, if any (docs/privacy.md)"
    return (
        f"updates with noise only, at most {allowance.updates}, up to epsilon {allowance.epsilon:g} at delta"
        f" {allowance.delta:g} over all runs"
    )


def of_listener(run: RunFile, address: Address, now: datetime) -> Iterator[Finding]:
    """Where devices come to a fleet whose broker runs here, while its coordinators have a socket of their own."""
    folder = FleetFolder(run.broker.fleet)
    if address.socket is None or not folder.exists():
        return
    try:
        reachable(address)
    except ConfigError:  # the broker does not run, which was told
        return
    settings = folder.read_settings()
    door = Address("mqtts", settings.bind or "127.0.0.1", settings.port)
    yield from network.listener(door, folder.coordinator_tls())
    if revocation.lets_revoked_in(FleetAdministration(folder.name), door, now):
        yield wrong(
            "revocations",
            f"{door} lets a certificate in that was revoked: the broker has not read the list",
            "stop the broker, and `edgefl broker start`",
        )


def _private(folder: FleetFolder) -> Iterator[Finding]:
    """Whether others can enter the fleet's folder, and whether keys of devices lie about."""
    if (mode := folder.path.stat().st_mode & 0o777) & 0o077:
        text = f"others can enter {folder.path}, where the authority's key is (mode {mode:o})"
        yield wrong("folder", text, f"chmod 700 {folder.path}")
    if kits := sorted(path.name for path in Path.cwd().glob(f"*{SUFFIX}")):
        text = f"private keys of devices lie here ({', '.join(kits)}): a copy of a kit can act as that device"
        yield warning("kits", text, "delete each once it is on its device")


def _socket(folder: FleetFolder) -> Iterator[Finding]:
    """Whether coordinators find the broker on this machine."""
    if folder.here.socket is None or not folder.here.socket.is_symlink():
        return  # it was not started yet, or is elsewhere
    try:
        reachable(folder.here)
    except ConfigError as error:
        text, _, remedy = str(error).rpartition(": ")
        yield wrong("socket", text, remedy)


def _authority(folder: FleetFolder, now: datetime) -> Iterator[Finding]:
    for path in (folder.authority[1], folder.coordinator[1], folder.broker / mosquitto.KEY, folder.signing_key):
        if path.exists():
            finding = key_file(path, path.stem)
            if finding.level != "ok":
                yield finding
    yield own(folder.authority[0], "the authority's certificate", now)
    yield own(folder.broker / mosquitto.CERTIFICATE, "the broker's certificate", now)


def _revocations(path: Path, now: datetime) -> Finding:
    """Check the revocation list: with an expired one no device gets in, without one a revoked one does."""
    from cryptography import x509  # noqa: PLC0415 - only where a fleet has identities

    remedy = "`edgefl broker start` writes it anew"
    try:
        listed = x509.load_pem_x509_crl(path.read_bytes())
    except OSError as error:
        return wrong("revocations", f"the revocation list {path} cannot be read ({error.strerror})", remedy)
    except ValueError:
        return wrong("revocations", f"{path} is no revocation list", f"delete it; {remedy}")
    ends = listed.next_update_utc
    if ends is not None and ends <= now:
        return wrong(
            "revocations",
            f"the revocation list {path} has ended ({ends:%Y-%m-%d}): the broker lets no device in",
            f"delete it; {remedy}",
        )
    return ok("revocations", f"{sum(1 for _ in listed)} certificates are revoked")


def _members(folder: FleetFolder, now: datetime) -> Iterator[Finding]:
    try:
        listed = members.read(folder.members)
    except ConfigError as error:
        text, _, remedy = str(error).rpartition("; ")
        yield wrong("members", text, remedy)
        return
    yield from judged(listed, now)


def judged(listed: Members, now: datetime) -> Iterator[Finding]:
    """Members who cannot show a certificate, or soon cannot."""
    for name, member in listed.active().items():
        remedy = members.ended_remedy(name, member)
        if member.expires is None:
            kit = f"`edgefl fleet add {name} --replace` makes it a new kit"
            yield wrong("members", f"'{name}' has no certificate that counts", kit)
        elif member.expires <= now:
            yield wrong("members", f"the certificate of '{name}' has ended ({member.expires:%Y-%m-%d})", remedy)
        elif member.expires - now < timedelta(days=SOON):
            text = f"the certificate of '{name}' ends soon ({member.expires:%Y-%m-%d}) and was not renewed"
            yield warning("members", text, f"let it take part in a run; later, {remedy}")
    yield ok("members", f"{len(listed.active())} devices belong to the fleet")
