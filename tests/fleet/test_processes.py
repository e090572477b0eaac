"""Real processes, as an operator starts them, against a real Mosquitto."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from fleets import loop

from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.wire.broker import Broker

RUN = """
[run]
name = "trial"
rounds = 3
seed = 5
folder = "{folder}"
[task]
data = "synthetic"
model = "mlp"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 3 }}
[algorithm]
name = "scaffold"
[broker]
url = "{broker}"
"""
AGENT = """
[agent]
id = "device-0{part}"
broker = "{broker}"
folder = "{folder}"
[data]
source = "synthetic"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 3 }}
part = {part}
seed = 5
"""
EDGEFL = [sys.executable, "-m", "edgefl"]
WITHOUT_TORCH = [
    sys.executable,
    "-c",
    "import sys; sys.modules['torch'] = None; from edgefl.cli.app import main; main()",
]


def start(command: list[str], output: Path, folder: Path | None = None) -> subprocess.Popen[bytes]:
    with output.open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)


def test_a_coordinator_and_three_agents_started_apart_give_the_model_of_the_loop(
    mosquitto: Broker, tmp_path: Path
) -> None:
    run = tmp_path / "run.toml"
    run.write_text(RUN.format(folder=tmp_path / "runs", broker=mosquitto.address))
    agents = []
    for part in range(3):
        file = tmp_path / f"agent-{part}.toml"
        file.write_text(AGENT.format(part=part, broker=mosquitto.address, folder=tmp_path / "devices"))
        program = WITHOUT_TORCH if part == 0 else EDGEFL  # one of them could not import torch if it tried
        agents.append(start([*program, "agent", "start", str(file), "--once"], tmp_path / f"agent-{part}.log"))
    coordinator = start([*EDGEFL, "coordinator", "start", str(run), "--json"], tmp_path / "coordinator.log")
    try:
        codes = [process.wait(120) for process in (coordinator, *agents)]
    finally:
        for process in (coordinator, *agents):
            process.kill()
    logs = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    assert codes == [0, 0, 0, 0], logs
    first, *_, last = map(json.loads, logs["coordinator.log"].splitlines())
    assert first["event"] == "preparing", "the rehearsal takes ten seconds: they are not silent"
    assert last["event"] == "done"
    assert last["model_sha256"] == loop(load(RunFile, run)).sha256()
    folder = tmp_path / "runs" / "trial"
    told = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in told] == ["round"] * 3 + ["done"]
    assert (folder / "model.onnx").exists()


@pytest.mark.night
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_no_process_of_the_demo_outlives_it(number: signal.Signals, tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [*EDGEFL, "demo", "--json", "--folder", str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if json.loads(line)["event"] == "joined":
            break
    children = psutil.Process(demo.pid).children(recursive=True)
    assert len(children) >= 9  # eight agents and a broker
    demo.send_signal(number)
    demo.stdout.close()
    demo.wait(120)  # it may be importing torch, which cannot be broken off
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


def test_an_idle_coordinator_has_not_loaded_torch(mosquitto: Broker, tmp_path: Path) -> None:
    run = tmp_path / "run.toml"
    run.write_text(RUN.format(folder=tmp_path / "runs", broker=mosquitto.address))
    command = [*EDGEFL, "coordinator", "start", str(run), "--json", "--no-rehearse"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as coordinator:
        assert coordinator.stdout is not None
        assert json.loads(coordinator.stdout.readline())["event"] == "started"
        assert json.loads(coordinator.stdout.readline())["url"].startswith("http://127.0.0.1:")
        maps = Path(f"/proc/{coordinator.pid}/maps").read_text()
        coordinator.send_signal(signal.SIGINT)
        coordinator.communicate()  # it may have more to tell before it ends
    assert coordinator.returncode == 130
    assert "libtorch" not in maps
