"""What Mosquitto is told: TLS 1.3 only, a certificate for every client, and what each member may read and write.

There are two listeners. At the one for devices the certificate's name is the user and the client id. So a member has
one connection, and a second client with its name takes it over: this is how a revoked member is disconnected.
Coordinators of several runs would take over each other's connection. So on the broker's own machine they have a
socket, in a folder that only the fleet's owner may enter. No other user reaches it, whatever certificate they have,
and nothing needs to be encrypted.

Each member has lines of its own in the ACL, not a pattern for all: SIGHUP makes Mosquitto read ACL, certificates and
revocation list again, and one who is no longer named has no rights from then on, an open connection included.

How a listener gets its ACL depends on the version: see `edgefl/wire/mosquitto_program.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgefl.fleet.folder import Settings
from edgefl.fleet.members import COORDINATOR, Member
from edgefl.system.portable import memory_size
from edgefl.wire.mqtt import KEEPALIVE
from edgefl.wire.topics import ROOT
from edgefl.wire.transport import LARGEST

CONFIGURATION, ACL, COORDINATORS, CA, CERTIFICATE, KEY, REVOKED = (
    "mosquitto.conf",
    "acl",
    "acl.coordinators",
    "ca.crt",
    "broker.crt",
    "broker.key",
    "revoked.crl",
)
BRIDGE_CERTIFICATE, BRIDGE_KEY = "bridge.crt", "bridge.key"  # of a site
MOST_QUEUED = 1 << 30  # bytes that wait for one client
FILES = (ACL, CA, CERTIFICATE, KEY, REVOKED)  # of the fleet, which the configuration names


@dataclass(frozen=True, slots=True)
class Bridge:
    """From the broker of a site to the fleet's."""

    site: str
    host: str
    port: int


def configuration(
    settings: Settings,
    folder: Path,
    socket: Path | None = None,
    bridge: Bridge | None = None,
    *,
    memory: int | None = None,
    acl_plugin: Path | None = None,
) -> str:
    """Return the configuration of a broker whose files are in this folder; local coordinators come to the socket.

    With a bridge it is the broker of a site. `memory` is how many bytes it may take: half of all there is, unless said.
    Without the plugin the text is that of Mosquitto 2.0, which 2.1 takes too.
    """
    memory = memory or _half()
    at = f" {settings.bind}" if settings.bind else ""
    acls = {"devices": folder / ACL, **({"coordinators": folder / COORDINATORS} if socket else {})}
    coordinators = (
        f"""
# Coordinators on this machine: who may enter the folder may speak.
listener 0 {socket}
{_allowed("coordinators", acls, acl_plugin, anonymous=True)}
max_connections 100
"""
        if socket
        else ""
    )
    return f"""\
# The broker of the fleet '{settings.fleet}': written by edgefl, and written again when the fleet changes.
{_plugins(acls, acl_plugin)}

# Devices: the name in the certificate is the user and the client id.
listener {settings.port}{at}
tls_version tlsv1.3
cafile {folder / CA}
certfile {folder / CERTIFICATE}
keyfile {folder / KEY}
crlfile {folder / REVOKED}
require_certificate true
use_identity_as_username true
use_username_as_clientid true
{_allowed("devices", acls, acl_plugin, anonymous=False)}
max_connections 10000
{coordinators}
# The coordinator and the agents say everything again after a restart, so nothing wears out the disk here.
persistence false
set_tcp_nodelay true

# A message is 480 KiB at most. The queue holds what a slow device has not fetched yet; what does not fit is lost
# although the sender has its acknowledgement. Not 0 (no limit): with it, Mosquitto 2.0.11 disconnects a client whose
# publish it refuses.
max_packet_size {LARGEST}
max_inflight_messages 20
max_queued_messages 10000

# A member could otherwise fill the machine: with messages that it does not fetch, with retained ones of jobs that it
# makes up, with subscriptions. Beyond this limit Mosquitto disconnects a client that needs more, or it
# ends and is started again.
memory_limit {memory}
max_queued_bytes {min(memory // 4, MOST_QUEUED)}

log_dest stderr
log_type error
log_type warning
log_type notice
{bridged(settings.fleet, bridge, folder) if bridge else ""}"""


def _plugins(acls: Mapping[str, Path], plugin: Path | None) -> str:
    """Return the lines above all listeners that let each of them have an access list of its own."""
    if plugin is None:
        return "per_listener_settings true"
    return "\n".join(f"plugin_load {name} {plugin}\nplugin_opt_acl_file {path}" for name, path in acls.items())


def _allowed(listener: str, acls: Mapping[str, Path], plugin: Path | None, *, anonymous: bool) -> str:
    """Return the lines of one listener that say who may connect there, and by which list."""
    yes = "true" if anonymous else "false"
    if plugin is None:
        return f"allow_anonymous {yes}\nacl_file {acls[listener]}"
    return f"listener_allow_anonymous {yes}\nplugin_use {listener}"


def _half() -> int:
    """Bytes of memory that a broker may take here."""
    return memory_size() // 2


def bridged(fleet: str, bridge: Bridge, folder: Path) -> str:
    """The bridge from a site's broker to the fleet's.

    MQTT 5, so that retained messages stay so on the other side, and expire there too. Nothing waits for a bridge that
    is gone, on neither side: who hears that it is back says what is open again, and what is retained comes by itself.
    """
    here, remote = f"{ROOT}/{fleet}", f"[{bridge.host}]" if ":" in bridge.host else bridge.host
    return f"""
# The bridge to the fleet's broker. A model crosses it once, however many devices of the site fetch it.
connection {bridge.site}
address {remote}:{bridge.port}
bridge_protocol_version mqttv50
bridge_cafile {folder / CA}
bridge_certfile {folder / BRIDGE_CERTIFICATE}
bridge_keyfile {folder / BRIDGE_KEY}
bridge_tls_version tlsv1.3
remote_clientid {bridge.site}
local_clientid bridge
cleansession true
local_cleansession true
start_type automatic
restart_timeout 1 30
keepalive_interval {KEEPALIVE}
bridge_attempt_unsubscribe false

# "1" while it is there and "0" when it is not, at both brokers; at the fleet's as its last will.
notifications true
notification_topic {here}/site/{bridge.site}

topic {here}/+/state in 1
topic {here}/+/model/# in 1
topic {here}/+/dev/+/down in 1
topic {here}/site/{bridge.site}/list in 1
topic {here}/+/dev/+/up out 1
topic {here}/presence/+ out 1
topic {here}/site/{bridge.site}/read out 1
"""


def acl_of_coordinators(fleet: str) -> str:
    """What they may read and write at their socket: everything of this fleet."""
    return f"topic readwrite {ROOT}/{fleet}/#\n"


def acl(fleet: str, active: Mapping[str, Member]) -> str:
    """Who may read and write what at the fleet's own broker; who is not named may nothing."""
    sites = {name: [device for device, one in active.items() if one.site == name] for name in active}
    devices = [name for name, member in active.items() if not member.hosts and not member.site]
    bridges = [acl_of_bridge(fleet, name, sites[name]) for name, member in active.items() if member.hosts]
    coordinator = f"user {COORDINATOR}\ntopic readwrite {ROOT}/{fleet}/#\n"
    return "\n".join([coordinator, acl_of_devices(fleet, devices), *bridges])


def acl_of_bridge(fleet: str, site: str, devices: Iterable[str]) -> str:
    """What the bridge of a site may read and write at the fleet's broker: it speaks for its own devices alone."""
    here = f"{ROOT}/{fleet}"
    lines = [
        f"user {site}",
        f"topic read {here}/+/state",
        f"topic read {here}/+/model/#",
        f"topic read {here}/site/{site}/list",
        f"topic write {here}/site/{site}",
        f"topic write {here}/site/{site}/read",
    ]
    for device in devices:
        lines.append(f"topic read {here}/+/dev/{device}/down")
        lines.append(f"topic write {here}/+/dev/{device}/up")
        lines.append(f"topic write {here}/presence/{device}")
    return "\n".join(lines) + "\n"


def acl_of_devices(fleet: str, devices: Iterable[str], site: str = "") -> str:
    """What devices may read and write at the broker they connect to; at a site's, whether its bridge is there."""
    here = f"{ROOT}/{fleet}"
    bridge = f"topic read {here}/site/{site}\n" if site else ""
    texts = [
        f"""\
user {device}
topic read {here}/+/state
topic read {here}/+/model/#
topic read {here}/+/dev/{device}/down
topic write {here}/+/dev/{device}/up
topic readwrite {here}/presence/{device}
topic readwrite {here}/doctor/{device}
{bridge}"""
        for device in devices
    ]
    return "\n".join(texts)
