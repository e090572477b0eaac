"""A real agent whose training costs nothing: `python -m edgefl.cli.bench_agent URL NAME FOLDER`."""

import signal
import sys
from pathlib import Path

from device_agent.start import Host
from edgefl.bench.noop import NOTHING, Blank, register
from edgefl.protocol.address import parse
from edgefl.protocol.mqtt import MqttTransport
from edgefl.system import logs
from edgefl.system.disk import FolderDisk


def main(url: str, name: str, folder: Path) -> None:
    """Serve until SIGTERM."""
    logs.set_up("warning")
    register()
    agent = Host(
        device=name,
        fleet="bench",
        transport=MqttTransport(parse(url), name),
        data=NOTHING,
        make_model=lambda manifest, _: Blank(manifest.layout.layout()),
        back_end="none",
        disk=FolderDisk(folder / name),
        connect_timeout=30.0,
    )
    signal.signal(signal.SIGTERM, agent.stop)
    code, reason = agent.run()
    if code:
        sys.exit(reason)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
