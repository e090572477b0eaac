"""A run that others are told of, with real processes: nothing is told twice though its coordinator is killed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fleets import until
from receiver import Receiver, receiving

from coordinator.durable import run_history
from edgefl.base.events import Lost, Vitals
from edgefl.system.disk import FolderDisk
from edgefl.wire.broker import Broker

pytest.importorskip("tensorboard", reason="needs the extra 'tensorboard'")

ENDLESS = 100_000  # so that it is killed before its end
RUN = """
[run]
name = "trial"
rounds = {rounds}
folder = "{folder}/runs"
[task]
data = "synthetic"
model = "softmax"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 3 }}
[algorithm]
name = "fedavg"
batches = 20
[rounds]
start_with = 2
cohort = 2
quorum = 2
[broker]
url = "{broker}"
[page]
port = 0
[export.tensorboard]
[[export.webhooks]]
url = "{hook}"
secret = "env:HOOK_SECRET"
events = ["run_finished", "run_failed"]
"""
AGENT = """
[agent]
id = "device-0{part}"
broker = "{broker}"
folder = "{folder}/devices"
[data]
source = "synthetic"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 3 }}
part = {part}
"""
FUSSY = """
[conditions]
min_disk_mb = 1000000000000
"""


class Processes:
    """Started as an operator starts them, and ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.all = folder, []
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "HOOK_SECRET": "word"}

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "edgefl", *words]
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self.environment)
        self.all.append(process)
        return process

    def logs(self) -> dict[str, str]:
        return {path.name: path.read_text()[-2000:] for path in self.folder.glob("*.log")}


@pytest.fixture
def processes(tmp_path: Path):
    started = Processes(tmp_path)
    yield started
    for process in started.all:
        process.kill()
        process.wait()


def steps(folder: Path, tag: str) -> list[int]:
    """Every step of a curve, as often as it is there."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = [event for path in sorted(folder.rglob("events.*")) for event in EventFileLoader(str(path)).Load()]
    return sorted(event.step for event in events for value in event.summary.value if value.tag == tag)


@pytest.fixture
def receiver():
    with receiving() as one:
        yield one


@pytest.mark.night
def test_a_run_whose_coordinator_is_killed_is_told_of_once(
    mosquitto: Broker, processes: Any, receiver: Receiver, tmp_path: Path
) -> None:
    run, folder = tmp_path / "run.toml", tmp_path / "runs" / "trial"
    about = {"folder": tmp_path, "broker": mosquitto.address}
    run.write_text(RUN.format(rounds=ENDLESS, hook=receiver.url, **about))
    for part in range(3):
        agent = tmp_path / f"agent-{part}.toml"
        agent.write_text(AGENT.format(part=part, **about) + (FUSSY if part == 2 else ""))
        processes.start(agent.stem, "agent", "start", str(agent))
    metrics = folder / "metrics.jsonl"
    first = processes.start("coordinator", "coordinator", "start", str(run), "--no-rehearse")
    until(lambda: (metrics.exists() and len(metrics.read_text().splitlines()) >= 3) or first.poll() is not None, 120)
    first.kill()
    assert first.wait() != 0, processes.logs()
    rounds = len(metrics.read_text().splitlines()) + 3
    run.write_text(RUN.format(rounds=rounds, hook=receiver.url, **about))
    again = processes.start("coordinator", "coordinator", "start", str(run), "--no-rehearse")
    assert again.wait(180) == 0, processes.logs()

    told = steps(folder / "tensorboard", "accuracy")
    assert sorted(set(told)) == list(range(1, rounds + 1))
    assert len(told) <= rounds + 1, "the one that was being told when it was killed may come again"
    (message,) = receiver.messages()
    assert (message["event"], message["round"]) == ("run_finished", rounds)
    story = list(run_history.facts(FolderDisk(folder)))
    told = {fact.device: fact for fact in story if isinstance(fact, Vitals)}
    assert {"device-00", "device-01"} <= set(told)
    assert all(fact.memory_free and fact.load is not None for fact in told.values())
    resting = [fact for fact in story if isinstance(fact, Lost) and fact.device == "device-02"]
    assert resting
    assert all("of disk free, at least 1000000000000" in fact.reason for fact in resting)
    for path in (*folder.rglob("*"), *(tmp_path / "state").rglob("*")):
        assert path.is_dir() or b"/hook" not in path.read_bytes(), f"{path}: an address may be a secret"
