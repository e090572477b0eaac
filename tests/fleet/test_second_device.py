"""A device that was made from docs/protocol.md alone takes part in real runs, and nobody can tell by the model."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import loop, prepared
from test_processes import EDGEFL, start

import edgefl
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import RunState
from edgefl.wire.broker import Broker

SECOND = [sys.executable, str(Path(__file__).parents[1] / "wire" / "second_device.py")]
RUN = """
[run]
name = "trial"
rounds = 3
seed = 5
folder = "{folder}"
[task]
data = "npz:{data}"
model = "softmax"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 3 }}
[algorithm]
name = "fedavg"
batch = 16
{more}
[broker]
url = "mqtt://{broker}"
"""
AGENT = """
[agent]
id = "device-00"
broker = "mqtt://{broker}"
folder = "{folder}"
[data]
source = "npz:{data}"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 3 }}
part = 0
seed = 5
"""
FEATURES = 3500  # of ten classes: models and updates of 140 kB, two chunks
SEALED = """
lr = 0.02
momentum = 0.9
weight_decay = 0.001
epochs = 1.5
[wire]
seal = true
compress = true
up = { codec = "int8" }
"""


@pytest.fixture(autouse=True)
def a_fleet_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The coordinator of one test does not know the devices of another."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def rows(file: Path) -> None:
    """Samples that a softmax regression learns something of."""
    rng = np.random.default_rng(1)
    centres, y = rng.normal(size=(10, FEATURES)), rng.integers(0, 10, 600)
    np.savez(file, x=(centres[y] + 3 * rng.normal(size=(600, FEATURES))).astype(np.float32) / 8, y=y)


def played(
    broker: Broker, folder: Path, *options: str, more: str
) -> tuple[RunState, dict[str, Any], list[dict[str, Any]]]:
    """A run of one agent of ours and two second devices: what the loop says, how it ended, and what the two say."""
    run, data, where = folder / "run.toml", folder / "rows.npz", f"127.0.0.1:{broker.address.port}"
    rows(data)
    run.write_text(RUN.format(folder=folder / "runs", data=data, broker=where, more=more))
    (folder / "agent.toml").write_text(AGENT.format(folder=folder / "devices", data=data, broker=where))
    expected, parts = loop(load(RunFile, run)), prepared(load(RunFile, run))[1].devices
    commands = {
        "coordinator": [*EDGEFL, "coordinator", "start", str(run), "--json", "--no-rehearse"],
        "device-00": [*EDGEFL, "agent", "start", str(folder / "agent.toml"), "--once"],
    }
    for name, part in (("device-01", parts[1]), ("device-02", parts[2])):
        np.savez(folder / f"{name}.npz", x=part.x, y=part.y)
        about = ["--id", name, "--data", f"{name}.npz", "--folder", name]
        commands[name] = [*SECOND, "--broker", where, *about, *options]
    processes = {name: start(command, folder / f"{name}.log", folder) for name, command in commands.items()}
    try:
        codes = [process.wait(60) for process in processes.values()]
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    logs = {name: (folder / f"{name}.log").read_text() for name in commands}
    assert codes == [0, 0, 0, 0], logs
    ended, *told = (json.loads(said(logs[name])[-1]) for name in ("coordinator", "device-01", "device-02"))
    assert ended["event"] == "done", logs
    assert all(one["answers"] == 3 and not one["foreign"] and "declined" not in one for one in told), logs
    return expected, ended, told


def said(log: str) -> list[str]:
    """The lines in JSON, without those of the log."""
    return [line for line in log.splitlines() if line.startswith("{")]


@pytest.mark.night
@pytest.mark.parametrize(
    ("options", "more"),
    [((), ""), (("--alone", "--lossy"), ""), ((), SEALED)],
    ids=["called", "asked alone, the model fetched, a chunk lost", "sealed, in few bytes, with momentum"],
)
def test_a_run_with_second_devices_gives_the_model_of_the_loop(
    options: tuple[str, ...], more: str, mosquitto: Broker, tmp_path: Path
) -> None:
    expected, ended, told = played(mosquitto, tmp_path, *options, more=more)
    assert ended["model_sha256"] == expected.sha256()
    for one in told:
        assert one["accepted"] == 3, "each answer counted"
        assert one["messages"] == (6 if "seal" in more else 9), (
            "a word of progress and the chunks of the answer, each round"
        )
        assert one["pieces fetched"] > (3 if options else 0)
        assert ("calls" in one) == (not options)
        assert one.get("asked again", 0) == (1 if options else 0)
    rounds = [json.loads(line) for line in (tmp_path / "runs" / "trial" / "metrics.jsonl").read_text().splitlines()]
    assert [(one["devices"], one["late"], one["refused"]) for one in rounds[:-1]] == [(3, 0, 0)] * 3


def test_a_device_that_multiplies_by_itself_ends_beside_the_same_model(mosquitto: Broker, tmp_path: Path) -> None:
    """Sums in another order: the last digits differ, and nothing else."""
    expected, _, _ = played(mosquitto, tmp_path, "--trainer", "numpy", more="")
    model = edgefl.load(tmp_path / "runs" / "trial").weights
    params = np.concatenate([model[name].reshape(-1) for name in ("1.weight", "1.bias")])
    assert np.abs(params - expected.params).max() < 1e-6
