"""What Mosquitto is told: TLS 1.3 only, a certificate for everybody, and what each member may read and write.

There are two listeners. At the one for devices the certificate's name is the user and the client id, so a member has
one connection, and whoever else comes with its name takes it over: that is how a revoked one is put out. Coordinators
of several runs share a name, so on the broker's own machine they have a second listener, where client ids are free.

Each member has lines of its own in the ACL, not a pattern for all: SIGHUP makes Mosquitto read ACL, certificates and
revocation list again, and one who is no longer named has no rights from then on, an open connection included.
"""

from collections.abc import Iterable
from pathlib import Path

from edgefl.fleet.folder import Settings
from edgefl.fleet.members import COORDINATOR
from edgefl.protocol.mqtt import LARGEST
from edgefl.protocol.topics import ROOT

CONFIGURATION, ACL, CA, CERTIFICATE, KEY, REVOKED = (
    "mosquitto.conf",
    "acl",
    "ca.crt",
    "broker.crt",
    "broker.key",
    "revoked.crl",
)
FILES = (ACL, CA, CERTIFICATE, KEY, REVOKED)  # what the configuration names


def configuration(settings: Settings, folder: Path) -> str:
    """The configuration of a broker whose files are in this folder."""
    secured = f"""\
tls_version tlsv1.3
cafile {folder / CA}
certfile {folder / CERTIFICATE}
keyfile {folder / KEY}
crlfile {folder / REVOKED}
require_certificate true
use_identity_as_username true
"""
    devices = f"listener {settings.port}{f' {settings.bind}' if settings.bind else ''}"
    return f"""\
# The broker of the fleet '{settings.fleet}': written by edgefl, and written again when the fleet changes.

# Devices: the name in the certificate is the user and the client id.
{devices}
{secured}use_username_as_clientid true
max_connections 10000

# Coordinators on this machine: several may have the same certificate.
listener {settings.here.port} {settings.here.host}
{secured}max_connections 100

allow_anonymous false
acl_file {folder / ACL}

# The coordinator and the agents say everything again after a restart, so nothing wears out the disk here.
persistence false
set_tcp_nodelay true

# Chunks are 120 KiB. The queue holds what a slow device has not fetched yet; what does not fit is lost although
# the sender has its acknowledgement. Not 0 (no limit): with it, 2.0.11 cuts off whoever is refused a publish.
max_packet_size {LARGEST}
max_inflight_messages 20
max_queued_messages 10000

log_dest stderr
log_type error
log_type warning
log_type notice
"""


def acl(fleet: str, devices: Iterable[str]) -> str:
    """Who may read and write what, in this fleet alone; who is not named may nothing."""
    here = f"{ROOT}/{fleet}"
    texts = [f"user {COORDINATOR}\ntopic readwrite {here}/#\n"]
    texts += [
        f"""\
user {device}
topic read {here}/+/state
topic read {here}/+/model/#
topic read {here}/+/dev/{device}/down
topic write {here}/+/dev/{device}/up
topic readwrite {here}/presence/{device}
topic readwrite {here}/doctor/{device}
"""
        for device in devices
    ]
    return "\n".join(texts)
