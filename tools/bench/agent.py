"""A real agent whose training costs nothing: `python -m tools.bench.agent URL NAME FOLDER [unsigned]`.

Over TLS it is who the kit says that was installed in the folder.
"""

import signal
import sys
from pathlib import Path

from device_agent.enrol import CA, TLS
from device_agent.shell.setup import DeviceIdentity, Scope, TrainingSetup
from device_agent.start import KEPT, AgentHost
from edgefl.ops.bench.noop import NOTHING, Blank, register
from edgefl.system import logs, resident_memory
from edgefl.system.disk import FolderDisk
from edgefl.wire.address import parse
from edgefl.wire.opening import open_transport
from edgefl.wire.tls import Tls
from tools.bench import unsigned


def main(url: str, name: str, folder: Path, *, signed: bool) -> None:
    """Serve until SIGTERM."""
    logs.set_up("warning")
    resident_memory.one_heap(KEPT)
    register()
    address, home = parse(url), folder / name
    tls = Tls(ca=home / CA, certificate=home / TLS, key=home / TLS) if address.tls else None
    if not signed:
        unsigned.signer(unsigned.COORDINATOR, address)
    agent = AgentHost(
        DeviceIdentity(name, "bench", "none", signer=None if signed else unsigned.signer(name, address)),
        open_transport(address, name, tls, suffix=False),
        FolderDisk(home),
        TrainingSetup(NOTHING, lambda manifest, _: Blank(manifest.layout.layout())),
        scope=Scope(connect_timeout=30.0),
    )
    signal.signal(signal.SIGTERM, agent.stop)
    code, reason = agent.run()
    if code:
        sys.exit(reason)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), signed="unsigned" not in sys.argv[4:])
