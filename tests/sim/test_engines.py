from typing import Any

import pytest

from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.sim.emulator import emulate
from edgefl.sim.engines import engine
from edgefl.sim.loop import simulate


@pytest.mark.parametrize(
    ("kind", "backend"), [("threads", "onnx"), ("threads", "torch"), ("processes", "onnx"), ("processes", "torch")]
)
def test_two_at_a_time_give_the_model_of_one_bit_for_bit(kind: str, backend: str):
    table: dict[str, Any] = {
        "run": {"rounds": 3, "seed": 2},
        "task": {
            "data": "synthetic",
            "model": "mlp",
            "backend": backend,
            "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 4},
        },
        "algorithm": {"name": "scaffold", "batch": 16, "batches": 4},  # keeps a state on every device
        "rounds": {"cohort": 3},
        "wire": {"codec": "float16"},
        "fleet": {"stragglers": 0.5},
        "compute": {"engine": kind},
    }
    job, held = jobs.prepare(parse(RunFile, table, "test", environment={}))
    devices = dict(zip(jobs.device_names(4), held.devices, strict=True))
    with engine(job, devices, 2) as pool:
        together = simulate(job, devices, engine=pool)
        emulated = emulate(job, devices, engine=pool)
    assert together.sha256() == emulated.sha256() == simulate(job, devices).sha256()
