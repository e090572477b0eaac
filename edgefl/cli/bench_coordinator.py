"""Our server of the benches: `python -m edgefl.cli.bench_coordinator URL LINE CLIENTS FOLDER [trains]`.

The real coordinator with its journal in the folder, one run after another, as its line orders
(`bench/peers/server.py`). An order may name a `cohort` that is smaller than the fleet.
"""

import gc
import shutil
import sys
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from coordinator import identity
from coordinator.stored import HELD
from coordinator.threaded import Threaded
from edgefl.bench.noop import register
from edgefl.bench.peers.line import serve
from edgefl.bench.peers.training import training_job, unjudged
from edgefl.cli.bench_transport import still_job
from edgefl.config.schema import Run
from edgefl.errors import RunError
from edgefl.events import Asked, Fact, Lost, Round
from edgefl.protocol.address import Address, parse
from edgefl.protocol.mqtt import MqttTransport
from edgefl.run.job import Job, RunState
from edgefl.system import logs, resident_memory


class Server:
    """Plays a run for each order; agents know the folder's signer from the first one on."""

    def __init__(self, address: Address, clients: int, folder: Path, *, trains: bool) -> None:
        self.address, self.clients, self.folder, self.trains = address, clients, folder, trains
        self.signer = identity.opened(folder / identity.NAME)
        self.prepared = cache(lambda codec: training_job(clients, codec))  # once for all runs

    def play(self, order: dict[str, Any], mark: Callable[[], None]) -> dict[str, int]:
        """One run; how often a device was asked again, and how often one was lost."""
        name, rounds = f"bench-{uuid.uuid4().hex[:8]}", order["rounds"]
        job, asked, lost = self._job(name, order), list[int](), list[str]()

        def tell(fact: Fact) -> None:
            match fact:
                case Round():
                    mark()
                case Asked(devices=devices):
                    asked.append(len(devices))
                case Lost(device=device):
                    lost.append(device)

        transport = MqttTransport(self.address, name)
        serving = Threaded(job.run, transport, lambda: job, folder=self.folder / name, tell=tell, signer=self.signer)
        run_state = serving.run()
        shutil.rmtree(self.folder / name)
        self._check(run_state, rounds, 1e-4 if order["codec"] == "float32" else 0.05)
        return {"asked_again": sum(asked) - rounds * job.run.cohort, "lost": len(lost)}

    def _job(self, name: str, order: dict[str, Any]) -> Job:
        if self.trains:
            job = self.prepared(order["codec"])
        else:
            cohort = order.get("cohort", self.clients)
            job = still_job(name, order["params"], order["rounds"], cohort, wire=order["codec"], devices=self.clients)
        return unjudged(job, Run(name=name, rounds=order["rounds"]))

    def _check(self, run_state: RunState, rounds: int, tolerance: float) -> None:
        if not self.trains and not np.allclose(run_state.params, rounds, rtol=tolerance):
            raise RunError(f"after {rounds} rounds every parameter should be {rounds}: an answer was lost")


def main(url: str, line: str, clients: str, folder: str, *trains: str) -> None:
    """Serve until the other end of the line closes."""
    logs.set_up("warning")
    resident_memory.one_heap(2 * HELD)
    register()
    gc.freeze()  # as `edgefl coordinator start` does
    serve(line, Server(parse(url), int(clients), Path(folder), trains=bool(trains)).play)


if __name__ == "__main__":
    main(*sys.argv[1:])
