"""Our server of the benches: `python -m edgefl.ops.bench.scale.coordinator URL LINE CLIENTS FOLDER`.

The real coordinator with its journal in the folder, one run after another, as its line orders
(`bench/peers/server.py`). An order may name a `cohort` that is smaller than the fleet.
"""

import gc
import shutil
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coordinator.durable import identity
from coordinator.durable.answer_store import HELD
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import RunError
from edgefl.base.events import Asked, Fact, Lost, Round
from edgefl.job.config.schema import RunSection
from edgefl.job.run.job import Job, RunState
from edgefl.ops.bench.empty_jobs import still_job, unjudged
from edgefl.ops.bench.line import serve
from edgefl.ops.bench.noop import register
from edgefl.system import logs, resident_memory
from edgefl.wire.address import Address, parse
from edgefl.wire.opening import open_transport


class ScaleCoordinator:
    """Plays a run for each order; agents know the folder's signer from the first one on."""

    def __init__(self, address: Address, clients: int, folder: Path) -> None:
        self.address, self.clients, self.folder = address, clients, folder
        self.signer = identity.opened(folder / identity.NAME)

    def play(self, order: dict[str, Any], mark: Callable[[], None]) -> dict[str, int]:
        """One run; how often a device was asked again, and how often one was lost."""
        name, rounds = f"bench-{uuid.uuid4().hex[:8]}", order["rounds"]
        job = unjudged(self.job(name, order), RunSection(name=name, rounds=rounds))
        asked, lost = list[int](), list[str]()

        def tell(fact: Fact) -> None:
            match fact:
                case Round():
                    mark()
                case Asked(devices=devices):
                    asked.append(len(devices))
                case Lost(device=device):
                    lost.append(device)

        transport = open_transport(self.address, name, suffix=False)
        security, folder = Security(self.signer), self.folder / name
        serving = Threaded(job.run, transport, lambda: job, folder=folder, tell=tell, security=security)
        run_state = serving.run()
        shutil.rmtree(self.folder / name)
        self.check(run_state, order)
        return {"asked_again": sum(asked) - rounds * job.run.cohort, "lost": len(lost)}

    def job(self, name: str, order: dict[str, Any]) -> Job:
        """What the devices are asked to do: nothing."""
        cohort = order.get("cohort", self.clients)
        return still_job(name, order["params"], order["rounds"], cohort, wire=order["codec"], devices=self.clients)

    def check(self, run_state: RunState, order: dict[str, Any]) -> None:
        """Whether every answer was counted."""
        rounds, tolerance = order["rounds"], 1e-4 if order["codec"] == "float32" else 0.05
        if not np.allclose(run_state.params, rounds, rtol=tolerance):
            raise RunError(f"after {rounds} rounds every parameter should be {rounds}: an answer was lost")


def main(kind: type[ScaleCoordinator], url: str, line: str, clients: str, folder: str) -> None:
    """Serve until the other end of the line closes."""
    logs.set_up("warning")
    resident_memory.one_heap(2 * HELD)
    register()
    gc.freeze()  # as `edgefl coordinator start` does
    serve(line, kind(parse(url), int(clients), Path(folder)).play)


if __name__ == "__main__":
    main(ScaleCoordinator, *sys.argv[1:])
