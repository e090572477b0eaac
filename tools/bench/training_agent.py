"""A real agent that trains in its box on made-up samples.

`python -m tools.bench.training_agent URL NAME FOLDER SEED`.
"""

import signal
import sys
from pathlib import Path

from device_agent.box.fork_client import Box
from device_agent.box.fork_server import ForkServer
from device_agent.shell.backends import maker
from device_agent.shell.samples import Samples
from device_agent.shell.setup import DeviceIdentity, Scope, TrainingSetup
from device_agent.start import KEPT, AgentHost
from edgefl.job.config.agent_file import LIMIT_MB
from edgefl.job.config.local_compute import LocalCompute
from edgefl.system import logs, resident_memory
from edgefl.system.disk import FolderDisk
from edgefl.wire.address import parse
from edgefl.wire.opening import open_transport


def main(url: str, name: str, folder: Path, seed: int) -> None:
    """Serve until SIGTERM."""
    logs.set_up("warning")
    resident_memory.one_heap(KEPT)
    fork_server = ForkServer()  # before anything else, as in `device_agent/start.py`
    from tools.bench.peers.training import samples

    data, compute = Samples(samples(seed)), LocalCompute()
    agent = AgentHost(
        DeviceIdentity(name, "bench", "onnx"),
        open_transport(parse(url), name, suffix=False),
        FolderDisk(folder / name),
        TrainingSetup(data, maker(compute)),
        box=Box(fork_server, name, compute, data, LIMIT_MB << 20),
        scope=Scope(connect_timeout=30.0),
    )
    signal.signal(signal.SIGTERM, agent.stop)
    resident_memory.release_code()
    code, reason = agent.run()
    if code:
        sys.exit(reason)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
