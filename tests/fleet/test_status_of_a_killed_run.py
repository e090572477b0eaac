"""What an operator lives through: a device dies, the coordinator is killed and comes back, and all agree on it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from edgefl.wire.broker import Broker

RUN = """
[run]
name = "plant"
rounds = 100000
seed = 5
folder = "{folder}"
[task]
data = "synthetic"
model = "mlp"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 3 }}
[algorithm]
name = "fedavg"
[rounds]
quorum = 2
deadline = 5.0
[broker]
url = "{broker}"
[page]
port = 0
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


class Operator:
    """Somebody at a shell: starts things, kills them, and asks how it goes."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.run = folder, folder / "run.toml"
        self.run.write_text(RUN.format(folder=folder / "runs", broker=broker.address))
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "TZ": "UTC"}
        self.processes: list[subprocess.Popen[bytes]] = []
        for part in range(3):
            agent = AGENT.format(part=part, broker=broker.address, folder=folder / "devices")
            (folder / f"agent-{part}.toml").write_text(agent)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            self.processes.append(
                subprocess.Popen([*EDGEFL, *words], stdout=log, stderr=subprocess.STDOUT, env=self.environment)
            )
        return self.processes[-1]

    def coordinate(self, *words: str) -> subprocess.Popen[bytes]:
        return self.start("coordinator", "start", str(self.run), "--json", "--no-rehearse", *words)

    def ask(self, *words: str) -> str:
        done = subprocess.run([*EDGEFL, *words], capture_output=True, text=True, env=self.environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def metrics(self) -> list[dict[str, Any]]:
        file = self.folder / "runs" / "plant" / "metrics.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def rounds(self) -> dict[int, dict[str, Any]]:
        return {line["round"]: line for line in self.metrics() if line["event"] == "round"}

    def forget_the_last_line(self) -> None:
        file = self.folder / "runs" / "plant" / "metrics.jsonl"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))

    def until(self, condition: Callable[[], bool]) -> None:
        """Until that is so; pytest's own limit ends a wait that is in vain."""
        while not condition():
            assert all(process.poll() in (None, 0, -signal.SIGKILL) for process in self.processes), self.log()
            time.sleep(0.1)

    def log(self) -> str:
        return (self.folder / "log").read_text()[-5000:]

    def agreed(self, *, killed: bool = False) -> dict[str, Any]:
        """What `status` says, if it is what the metrics say.

        A round is in the journal first: who was `killed` in between has its last one there alone.
        """
        before = self.rounds()
        status: dict[str, Any] = json.loads(self.ask("status", "plant", "--json"))
        after = self.rounds()
        told = {row["round"]: row for row in status["rounds"]}
        assert before.keys() <= told.keys()
        assert told.keys() - after.keys() <= ({max(after) + 1} if killed else set())
        for number, row in ((number, row) for number, row in told.items() if number in after):
            line = {key: value for key, value in after[number].items() if key not in ("event", "schema", "bounded")}
            assert {key: row[key] for key in line} == line
        assert status["run"]["bytes_up"] == sum(row["bytes_up"] for row in told.values())
        return status


@pytest.fixture
def operator(mosquitto: Broker, tmp_path: Path) -> Iterator[Operator]:
    somebody = Operator(tmp_path, mosquitto)
    yield somebody
    for process in somebody.processes:
        process.kill()
        process.wait()


def named(status: dict[str, Any]) -> dict[str, Any]:
    return {row["name"]: row for row in status["devices"]}


@pytest.mark.night
def test_status_report_and_metrics_agree_whoever_dies(operator: Operator) -> None:
    coordinator = operator.coordinate()
    agents = [operator.start("agent", "start", str(operator.folder / f"agent-{part}.toml")) for part in range(3)]
    operator.until(lambda: len(operator.rounds()) >= 2)
    status = operator.agreed()
    assert status["where"].startswith("http://127.0.0.1:"), "live: from the page"
    assert (status["status"] in ("running", "merging", "waiting"), status["process"]) == (True, coordinator.pid)
    assert named(status).keys() == {"device-00", "device-01", "device-02"}

    agents[2].kill()
    operator.until(lambda: named(operator.agreed())["device-02"]["state"] == "offline")
    last = max(operator.rounds())
    operator.until(lambda: max(operator.rounds()) >= last + 2)
    assert operator.rounds()[last + 2]["devices"] == 2, "the others go on without it"

    coordinator.kill()
    coordinator.wait()
    status = operator.agreed(killed=True)
    operator.forget_the_last_line()  # as one that was killed before it could write it
    assert (status["status"], status["process"]) == ("interrupted", None)
    assert status["where"] == str(operator.folder / "runs" / "plant")
    assert "no coordinator is at work on it" in operator.ask("status", "plant")

    done = max(operator.rounds()) + 3
    assert operator.coordinate("--set", f"run.rounds={done}").wait() == 0, operator.log()
    status = operator.agreed()
    run, end = status["run"], operator.metrics()[-1]
    assert (status["status"], run["rounds_done"], run["rounds"], run["restarts"]) == ("finished", done, done, 1)
    assert (run["done"]["model_sha256"], run["done"]["scores"]) == (end["model_sha256"], end["scores"])
    assert [(one["key"], one["now"]) for one in run["changes"]] == [("run.rounds", done)]

    report = Path(operator.ask("report", "plant").strip()).read_text()
    words = " ".join(unescape(re.sub(r"<[^>]+>", " ", report)).split())
    assert end["model_sha256"] in words
    assert f"finished after {done} of {done} rounds; 3 devices." in words
    for number, line in operator.rounds().items():
        figures = f"{line['scores']['accuracy']:.1%} {line['scores']['balanced_accuracy']:.1%}"
        row = re.search(
            rf" {number} [-0-9]+ [0-9:]+ UTC {figures} ",
            words,
        )
        assert row, number
    assert "the coordinator has resumed the run" in words

    inventory = {row["name"]: row for row in map(json.loads, operator.ask("fleet", "list", "--json").splitlines())}
    assert inventory.keys() == named(status).keys()
    assert all(row["runs"] == ["plant"] for row in inventory.values())
    assert inventory["device-02"]["seen"] < inventory["device-00"]["seen"]
    slow = [json.loads(line) for line in operator.ask("status", "plant", "--slow", "--json").splitlines()]
    assert {row["device"] for row in slow} == named(status).keys()
