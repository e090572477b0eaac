"""A process as heavy as a training agent: `python -m edgefl.ops.bench.training_process onnx|torch NETWORK GRAPHS`.

It imports what an agent imports, as an agent does, builds the network, takes some steps, and says as JSON what that
took.
"""

import gc
import json
import os
import sys
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefl.base.vector import Vector
    from edgefl.learn.models.base import Model


def main(back_end: str, network: str, graphs: Path) -> None:
    """Train, and say so."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as at the door, all of this
    from edgefl.system.slim_imports import slim

    slim()
    gc.disable()
    from dataclasses import replace

    import device_agent.start  # noqa: F401 - its weight is what we measure
    from edgefl.learn.algorithms import registry
    from edgefl.ops.bench.cases import CASES, STEPS, samples, training
    from edgefl.system import resident_memory

    gc.freeze()
    gc.enable()
    resident_memory.one_heap()
    case = next(case for case in CASES if case.network == network)
    model, w = _onnx(graphs, case.batch) if back_end == "onnx" else _torch(network, case.sample, case.classes)
    registry.algorithm({"name": "fedavg"})  # imported when a task names it, so part of a training agent
    train = training(model, w, samples(replace(case, calls=1)), case.batch)
    train(1)
    first = {"first_step_at": monotonic(), "first_step_cpu": process_time()}
    train(STEPS - 1)
    print(json.dumps({**first, "peak_mb": peak_mb()}))


def peak_mb() -> float:
    """The most memory this process ever had; getrusage would count what our parent had when it started us."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) / 1024


def _onnx(graphs: Path, batch: int) -> "tuple[Model, Vector]":
    import numpy as np

    from edgefl.learn.models.onnx.bundle import unpack
    from edgefl.learn.models.onnx_backend import OnnxModel

    model = OnnxModel(unpack(graphs.read_bytes()), frugal=True, batch=batch)  # as an agent makes it
    return model, np.full(model.layout.size, 0.01, np.float32)


def _torch(network: str, sample: tuple[int, ...], classes: int) -> "tuple[Model, Vector]":
    from edgefl.learn.models.build import build

    return build(network, sample, classes, seed=0, device="cpu")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
