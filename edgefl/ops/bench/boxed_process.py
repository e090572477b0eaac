"""A process as heavy as an agent with its box: `python -m edgefl.ops.bench.boxed_process NETWORK GRAPHS ROUNDS`.

It trains rounds in a box, then in turns in the box and in its own process, and prints the costs as JSON. Memory is
given twice: of agent, fork server and box together, with shared pages counted once (PSS), and of one process that does
all.
"""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, process_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from device_agent.shell.order import TrainingOrder
    from device_agent.shell.samples import Samples

SAMPLES, BATCHES = 400, 4  # of the device, and of a round
LOOK_EVERY = 0.02  # seconds


def main(network: str, graphs: Path, rounds: int) -> None:
    """Train, and say so."""
    gc.disable()  # as at the door
    import device_agent.start  # noqa: F401 - its weight is what we measure
    from device_agent.box.fork_client import Box, cpu_seconds
    from device_agent.box.fork_server import ForkServer
    from edgefl.system import resident_memory

    gc.freeze()
    gc.enable()
    resident_memory.one_heap()
    fork_server = ForkServer()
    from device_agent.shell.backends import maker
    from device_agent.shell.order import Cancellation
    from device_agent.shell.workers import InProcessWorker
    from edgefl.job.config.local_compute import LocalCompute

    order, samples = _order(network, graphs)
    compute = LocalCompute()
    box = Box(fork_server, "bench", compute, samples, 1 << 28)
    resident_memory.release_code()  # as an agent before it serves
    box.warm()

    def boxed() -> None:
        box(order, lambda _: None, Cancellation())

    ended, peaks = Event(), [_pss_mb(fork_server.pid, box.pid)]
    looking = Thread(target=_look, args=(lambda: _pss_mb(fork_server.pid, box.pid), peaks, ended))
    looking.start()
    for _ in range(rounds):
        boxed()
    ended.set()
    looking.join()
    here = InProcessWorker("bench", samples, maker(compute))
    times: dict[str, list[float]] = {f"{where}_{kind}": [] for where in ("boxed", "here") for kind in ("wall", "CPU")}
    for i in range(rounds + 1):
        for where, train in (("boxed", boxed), ("here", lambda: here(order, lambda _: None, Cancellation()))):
            wall, cpu = perf_counter(), process_time() + cpu_seconds(box.pid or 0)
            train()
            if i:  # the first loads the graphs
                times[f"{where}_wall"].append(1000 * (perf_counter() - wall))
                times[f"{where}_CPU"].append(1000 * (process_time() + cpu_seconds(box.pid or 0) - cpu))
    box.close()
    print(json.dumps({"pss_mb": max(peaks), "here_mb": _pss_mb(), **times}))


def _look(weigh: "Callable[[], float]", peaks: list[float], ended: Event) -> None:
    while not ended.wait(LOOK_EVERY):
        peaks.append(weigh())


def _order(network: str, graphs: Path) -> "tuple[TrainingOrder, Samples]":
    import numpy as np

    from device_agent.decide.vocabulary import Tasked
    from device_agent.shell.order import Item, TrainingOrder
    from device_agent.shell.samples import Samples
    from edgefl.job.run.work import pack_broadcast
    from edgefl.learn.data.dataset import Dataset
    from edgefl.learn.models.onnx.bundle import unpack
    from edgefl.ops.bench.cases import CASES
    from edgefl.wire.codecs import codec
    from edgefl.wire.messages import Graphs, Manifest, Shape, frame

    case = next(case for case in CASES if case.network == network)
    layout, rng = unpack(graphs.read_bytes()).layout, np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, *case.sample)).astype(np.float32)
    samples = Samples(Dataset(x, rng.integers(0, case.classes, SAMPLES), case.classes))
    manifest = Manifest(
        job="bench",
        run_id="bench",
        round=1,
        digest="0" * 64,
        size=1,
        layout=Shape.of(layout),
        algorithm={"name": "fedavg", "batch": case.batch, "batches": BATCHES},
        network=network,
        sample=case.sample,
        classes=case.classes,
        loss="cross_entropy",
        codec="float32",
        seed=0,
    )
    model = pack_broadcast("bench", 1, np.full(layout.size, 0.01, np.float32), {}, codec("float32", "down"))
    bundle = frame(Graphs(job="bench"), (graphs.read_bytes(),))
    task = Tasked("bench", "bench", 1, "m", graphs="g")
    return TrainingOrder(task, Item(manifest, model), None, bundle, {}, 1 << 28), samples


def _pss_mb(*others: int | None) -> float:
    total = 0
    for pid in ("self", *others):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
