"""Our server where devices train: `python -m tools.bench.training_coordinator URL LINE CLIENTS FOLDER`."""

import sys
from functools import cache
from pathlib import Path
from typing import Any

from edgefl.job.run.job import Job, RunState
from edgefl.ops.bench.scale.coordinator import ScaleCoordinator, main
from edgefl.wire.address import Address
from tools.bench.peers.training import training_job


class TrainingServer(ScaleCoordinator):
    """Prepares a job once for all runs with the same codec."""

    def __init__(self, address: Address, clients: int, folder: Path) -> None:
        super().__init__(address, clients, folder)
        self.prepared = cache(lambda codec: training_job(clients, codec))

    def job(self, name: str, order: dict[str, Any]) -> Job:  # noqa: ARG002 - it gets its name afterwards
        """What the devices are asked to do: an epoch."""
        return self.prepared(order["codec"])

    def check(self, run_state: RunState, order: dict[str, Any]) -> None:
        """Accept any result: what training ends with is not known beforehand."""


if __name__ == "__main__":
    main(TrainingServer, *sys.argv[1:])
