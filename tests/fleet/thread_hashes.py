"""A program that plays short runs in several ways and prints the hash of each model, for `test_threads.py`."""

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleets import Fleet, prepared, run_file

from coordinator.shell.threaded import Threaded
from edgefl.job.config.local_compute import LocalCompute
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import Job
from edgefl.learn.models.onnx.bundle import unpack
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.sim.loop import simulate
from tools.in_memory_broker import InMemoryBroker

ALGORITHMS: tuple[dict[str, Any], ...] = (
    {"name": "fedavg"},
    {"name": "fedgc"},
    {"name": "gradma", "memories": 4},
    {"name": "feddf", "steps": 50},  # this and the next one train on public data when they merge
    {"name": "flashback", "max_epochs": 2},
)


def the_run(algorithm: dict[str, Any], backend: str, threads: int) -> RunFile:
    task = {"data": "digits", "model": "mlp", "backend": backend}
    return run_file({**algorithm, "batch": 128}, task=task, run={"rounds": 2}, compute={"threads": threads})


def over_a_broker(fleet: Fleet, job: Job) -> str:
    """The model of a run whose coordinator merges in a thread of its own, and whose agents train in theirs."""
    for device in fleet.data:
        compute = LocalCompute(backend=job.run.task.backend, threads=job.run.compute.threads)
        fleet.start(fleet.agent(device, compute=compute))
    run_state = Threaded(job.run, fleet.connect("coordinator"), lambda: job).run()
    fleet.join()
    return run_state.sha256()


def hashes(graphs: bytes | None, threads: int) -> dict[str, dict[str, str]]:
    """The model of each run, by the way in which it was played; without graphs devices train with torch.

    The graphs are given, because to export them takes longer than to play.
    """
    first = the_run(ALGORITHMS[0], "torch", threads)
    prepared_job, _ = prepared(first)
    if graphs is not None:
        device_model = OnnxModel(unpack(graphs), threads=threads)
        prepared_job = replace(prepared_job, graphs=graphs, device_model=device_model)
    backend = "torch" if graphs is None else "onnx"
    models = {}
    for algorithm in ALGORITHMS:
        run = the_run(algorithm, backend, threads)
        job = replace(prepared_job, run=run, algorithm=run.make_algorithm(), stages=run.make_stages())
        with ThreadPoolExecutor(1) as another_thread, tempfile.TemporaryDirectory() as folder:
            fleet = Fleet(first, Path(folder), InMemoryBroker().client)
            ways = {"main thread": simulate(job, fleet.data).sha256()}
            ways["another thread"] = another_thread.submit(simulate, job, fleet.data).result().sha256()
            if algorithm["name"] == "flashback":
                ways["over a broker"] = over_a_broker(fleet, job)
        models[f"{algorithm['name']}, {backend}, compute.threads = {threads}"] = ways
    return models


if __name__ == "__main__":
    exported = Path(sys.argv[1]).read_bytes()
    tables = [hashes(graphs, threads) for graphs in (exported, None) for threads in (1, 2)]
    sys.stdout.write(json.dumps({run: ways for table in tables for run, ways in table.items()}))
