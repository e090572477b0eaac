"""The page of a real run: a coordinator and agents in processes of their own, a real broker, a real browser."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browsing import Browse, Window
from logged import show

from edgefl.wire.broker import Broker

PATIENCE = 200  # seconds until something is lost rather than late
EDGEFL = [sys.executable, "-m", "edgefl"]
RUN = """
[run]
name = "trial"
rounds = {rounds}
seed = 5
folder = "{folder}"
[task]
data = "synthetic"
model = "softmax"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 3 }}
[algorithm]
name = "fedgc"
batches = {batches}
[broker]
url = "{broker}"
[page]
port = {port}
"""


@pytest.fixture(autouse=True)
def nobody_is_known_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of one name have other keys in each test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Process:
    """One of ours, and what it says: into a file, because whoever writes to a full pipe waits."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log = log
        with log.open("w") as out:
            self.popen = subprocess.Popen([*EDGEFL, *command], stdout=out, stderr=subprocess.STDOUT)

    def says(self, holds: Callable[[str], bool]) -> str:
        """The first line of which this holds, as soon as it is there."""
        for _ in range(100 * PATIENCE):
            for line in self.log.read_text().splitlines(keepends=True):
                if line.endswith("\n") and holds(line):
                    return line
            assert self.popen.poll() in (None, 0), self.log.read_text()
            time.sleep(0.01)
        raise AssertionError(f"it never said so:\n{self.log.read_text()}")

    def told(self, event: str) -> dict[str, Any]:
        """The first fact of this kind."""
        return dict(json.loads(self.says(lambda line: line.startswith(f'{{"event": "{event}"'))))


@contextmanager
def started(log: Path, *command: str) -> Iterator[Process]:
    """A process that ends with the block."""
    process = Process(log, *command)
    try:
        yield process
    finally:
        process.popen.kill()
        process.popen.wait()
        show(log)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def assert_rounds_shown(window: Window, rounds: Sequence[dict[str, Any]]) -> None:
    """Every figure of every round is the one of metrics.jsonl."""
    window.wait_for_text("#rounds-count", re.compile(f"^{len(rounds)}/"))
    window.go("rounds")
    names = {
        "Round": "round",
        "Accuracy": "accuracy",
        "Balanced": "balanced_accuracy",
        "Loss": "loss",
        "Merged": "devices",
    }
    names |= {"Time": "seconds", "Waiting": "waiting_seconds", "Up": "bytes_up", "Down": "bytes_down"}
    shown = [
        {names[title]: float(text) for title, text in row.items() if title in names}
        for row in window.rows("#rounds-table").values()
    ]
    lines = [line | line["scores"] for line in reversed(rounds)]
    assert shown == [{key: line[key] for key in names.values()} for line in lines]


def assert_finished(window: Window, metrics: Path) -> None:
    """The end is shown, and all that led to it."""
    *rounds, done = map(json.loads, metrics.read_text().splitlines())
    assert (window.text("#now-title"), done["event"]) == (f"Finished after {done['rounds']} rounds", "done")
    assert window.value('[data-tile="accuracy"] dd span') == done["scores"]["accuracy"]
    assert window.value('[data-tile="loss"] dd span') == done["scores"]["loss"] == rounds[-1]["scores"]["loss"]
    assert window.value('[data-tile="traffic"] dd span') == sum(line["bytes_up"] for line in rounds)
    assert_rounds_shown(window, rounds)


def test_a_run_is_watched_from_its_first_device_to_its_end(
    iotcore_broker: Broker, browse: Browse, tmp_path: Path
) -> None:
    run = tmp_path / "run.toml"
    run.write_text(RUN.format(rounds=4, batches=300, folder=tmp_path / "runs", broker=iotcore_broker.address, port=0))
    with started(tmp_path / "log", "coordinator", "start", str(run), "--json", "--no-rehearse") as coordinator:
        window = browse(coordinator.told("shown")["url"]).drawn()
        window.wait_for_text("#now-why", "needs 3 devices, have 0")
        with started(tmp_path / "fleet.log", "fleet", "start", str(run)):
            window.wait_for_text("#now-title", "Finished after 4 rounds")
            coordinator.popen.wait(PATIENCE)
        window.wait_for_text("#line", "the coordinator has ended")
    assert_finished(window, tmp_path / "runs" / "trial" / "metrics.jsonl")
    with started(tmp_path / "page.log", "page", str(tmp_path / "runs" / "trial"), "--page", "0") as page:
        again = browse(page.says(lambda line: "http" in line).split()[-1]).drawn()
        assert_finished(again, tmp_path / "runs" / "trial" / "metrics.jsonl")


def test_who_is_at_work_in_the_round_in_hand_is_seen(mosquitto: Broker, browse: Browse, tmp_path: Path) -> None:
    run = tmp_path / "run.toml"
    days = {"rounds": 4, "batches": 1_000_000_000}  # of training: it is broken off long before
    run.write_text(RUN.format(**days, folder=tmp_path / "runs", broker=mosquitto.address, port=0))
    with (
        started(tmp_path / "log", "coordinator", "start", str(run), "--json", "--no-rehearse") as coordinator,
        started(tmp_path / "fleet.log", "fleet", "start", str(run)),
    ):
        window = browse(coordinator.told("shown")["url"]).drawn()
        window.wait_for_text("#now-title", "Round 1 of 4: ")
        assert window.page.locator("#asked-list a").count() == 3


def test_a_browser_goes_on_watching_when_the_coordinator_was_killed(
    mosquitto: Broker, browse: Browse, tmp_path: Path
) -> None:
    run, port, metrics = tmp_path / "run.toml", free_port(), tmp_path / "runs" / "trial" / "metrics.jsonl"
    endless = {"rounds": 100_000, "batches": 1}
    run.write_text(RUN.format(**endless, folder=tmp_path / "runs", broker=mosquitto.address, port=port))
    command = ("coordinator", "start", str(run), "--json", "--no-rehearse")
    fleet = ("fleet", "start", str(run))
    with started(tmp_path / "first.log", *command) as coordinator:
        window = browse(coordinator.told("shown")["url"]).drawn()
        with started(tmp_path / "fleet.log", *fleet):
            coordinator.told("round")  # a browser may be slow to show it: without devices it is the last for a while
        window.wait_for_text("#rounds-count", re.compile("^[1-9]"))
    window.wait_for('#line[data-line="away"]')
    with started(tmp_path / "second.log", *command) as coordinator:
        assert coordinator.told("shown")["url"].endswith(f":{port}")
        window.wait_for('#line[data-line="live"]')
        with started(tmp_path / "fleet-again.log", *fleet):
            coordinator.told("round")
        coordinator.popen.send_signal(signal.SIGINT)
        coordinator.popen.wait(PATIENCE)
        window.wait_for_text("#line", "the coordinator has ended")
        assert_rounds_shown(window, [json.loads(line) for line in metrics.read_text().splitlines()])


@pytest.mark.parametrize("wrong", ["nowhere", "empty"])
def test_a_folder_without_a_run_is_a_mistake_of_one_line(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "empty").mkdir()
    done = subprocess.run([*EDGEFL, "page", str(tmp_path / wrong)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("edgefl: ")
    assert len(done.stderr.splitlines()) == 1
