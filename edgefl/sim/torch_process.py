"""What takes torch, in a process of its own: the rehearsal of a run, and its network.

The child ends with its work, and torch with it; what is left is a file that a process without torch can go on with.

    python -m edgefl.sim.torch_process order.json network.safetensors
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from edgefl.base.errors import ConfigError, EdgeflError
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import network as networks
from edgefl.job.run.network import Network
from edgefl.sim import rehearsal
from edgefl.system import store
from edgefl.system.processes import Child, python
from edgefl.system.scratch import Scratch

log = logging.getLogger(__name__)

ORDER, NETWORK, OUTPUT = "order.json", "network.safetensors", "output.txt"


def network_apart(run: RunFile, root: Path | None = None, *, rehearse: bool = False) -> Network:
    """The run's network, made and tried by a child; with `rehearse` it also plays the first rounds."""
    with Scratch("edgefl-network-") as scratch:
        order, file, output = (scratch.path / name for name in (ORDER, NETWORK, OUTPUT))
        about = {"run": run.model_dump(mode="json"), "root": root and str(root), "rehearse": rehearse}
        store.write_atomically(order, json.dumps(about).encode())
        child = Child(python("edgefl.sim.torch_process", str(order), str(file)), output)
        try:
            child.gone.wait()
        finally:
            child.stop()
        if child.exit_code:
            lines = output.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            if not lines[-1].startswith("edgefl: "):
                log.error("the process that makes the network failed:\n%s", "\n".join(lines))
            raise ConfigError(lines[-1].removeprefix("edgefl: "))
        return networks.unpack(file.read_bytes(), str(file))


def main(order: Path, file: Path) -> int:
    """What the child does; the exit code."""
    about: dict[str, Any] = json.loads(order.read_text())
    run, root = RunFile.model_validate(about["run"]), Path(about["root"]) if about["root"] else None
    try:
        network = _rehearsed(run, root) if about["rehearse"] else jobs.make_network(run, root)
        store.write_atomically(file, networks.pack(network))
    except EdgeflError as error:
        sys.stderr.write(f"edgefl: {error}\n")
        return error.exit_code
    return 0


def _rehearsed(run: RunFile, root: Path | None) -> Network:
    job = rehearsal.rehearse(run, root)
    return networks.of(job.start, job.graphs, job.model)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
