"""The operator's story, with real processes: whoever is asked how the run stands says the same, at every step.

Three devices train; one dies; a fourth joins; the coordinator is killed and started again; the run is extended. After
each step `edgefl status --json`, the page, the report and metrics.jsonl are compared with each other.
"""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edgefl.learn.evaluation.wording import size
from edgefl.wire.broker import Broker

EDGEFL = [str(Path(sys.executable).with_name("edgefl"))]
ENDLESS = 100_000  # until the coordinator is killed: no step of the story comes too late
RUN = """
[run]
name = "story"
rounds = {rounds}
seed = 4
[task]
data = "synthetic"
model = "softmax"
[algorithm]
name = "fedgc"
batches = 2
batch = 16
[rounds]
cohort = 3
quorum = 3
deadline = 600.0
[page]
port = 0
[broker]
url = "{broker}"
"""
AGENT = """
[agent]
id = "{name}"
broker = "{broker}"
folder = "devices"
[data]
source = "synthetic"
partition = {{ kind = "iid", devices = 4 }}
part = {part}
seed = 4
"""
FIGURES = ("devices", "scores", "bytes_up", "bytes_down", "seconds", "waiting_seconds")
REPORTED = 15  # columns of the report's table of rounds
SUMS = ("bytes_up", "bytes_down", "seconds", "waiting_seconds")


class Scene:
    """One machine: a broker, a coordinator at a time, and devices."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker
        self.running: list[subprocess.Popen[str]] = []
        self.page = ""
        self.rounds(ENDLESS)

    def rounds(self, number: int) -> None:
        (self.folder / "run.toml").write_text(RUN.format(rounds=number, broker=self.broker.address))

    def start(self, *words: str) -> subprocess.Popen[str]:
        log = (self.folder / f"{len(self.running)}-{words[0]}.log").open("w")
        process = subprocess.Popen([*EDGEFL, *words], cwd=self.folder, stdout=log, stderr=log, text=True)
        log.close()
        self.running.append(process)
        return process

    def device(self, part: int) -> subprocess.Popen[str]:
        name = f"pi-0{part + 1}"
        path = self.folder / f"{name}.toml"
        path.write_text(AGENT.format(name=name, broker=self.broker.address, part=part))
        return self.start("agent", "start", path.name)

    def coordinator(self, *words: str) -> subprocess.Popen[str]:
        return self._with_page("coordinator", *words)

    def page_of_the_folder(self) -> subprocess.Popen[str]:
        return self._with_page("page", "runs/story", "--page", "127.0.0.1:0")

    def _with_page(self, *words: str) -> subprocess.Popen[str]:
        log = self.folder / f"{len(self.running)}-{words[0]}.log"
        process = self.start(*words)
        until(lambda: "http://" in log.read_text() or process.poll() is not None)
        (self.page,) = re.findall(r" at (http://[0-9.:]+)", log.read_text())
        return process

    def status(self) -> dict[str, Any]:
        words = [*EDGEFL, "status", "runs/story", "--json"]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def report(self) -> list[list[str]]:
        """The rounds of the report, cell by cell."""
        words = [*EDGEFL, "report", "runs/story", "--out", "report.html"]
        subprocess.run(words, cwd=self.folder, capture_output=True, timeout=120, check=True)
        rows = re.findall(r"<tr>(.*?)</tr>", (self.folder / "report.html").read_text(), re.DOTALL)
        cells = [re.findall(r"<td.*?>(.*?)</td>", row, re.DOTALL) for row in rows]
        return [row for row in cells if len(row) == REPORTED]

    def overview(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.page}/api/overview", timeout=60) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def metrics(self) -> list[dict[str, Any]]:
        path = self.folder / "runs" / "story" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rounds_done(self) -> int:
        return sum(line["event"] == "round" for line in self.metrics())

    def ended(self, process: subprocess.Popen[str]) -> None:
        assert process.wait(120) == 0, "".join(path.read_text() for path in self.folder.glob("*.log"))


@contextmanager
def on_stage(folder: Path, broker: Broker) -> Iterator[Scene]:
    scene = Scene(folder, broker)
    try:
        yield scene
    finally:
        for process in scene.running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in scene.running:
            process.wait(60)


def until(true: Callable[[], object], patience: float = 120.0) -> None:
    """Wait until something holds that no event tells of."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


class Look(NamedTuple):
    """What everybody says of the run at one moment."""

    status: dict[str, Any]
    page: dict[str, Any]
    report: list[list[str]]
    metrics: list[dict[str, Any]]

    def agree(self) -> None:
        """Every figure of every round, and every sum, is that of metrics.jsonl."""
        lines = {line["round"]: line for line in self.metrics if line["event"] == "round"}
        for told in (self.status, self.page):
            rows = {row["round"]: row for row in told["rounds"]}
            assert rows.keys() == lines.keys()
            for number, line in lines.items():
                assert {key: rows[number][key] for key in FIGURES} == {key: line[key] for key in FIGURES}
            assert told["run"]["rounds_done"] == max(lines, default=0)
            for key in SUMS:
                assert told["run"][key] == pytest.approx(sum(line[key] for line in lines.values()))
        assert states(self.status) == states(self.page)
        assert self.status["run"]["waiting"] == self.page["run"]["waiting"]
        assert [[row[0], row[2], row[6], row[11], row[13]] for row in self.report] == [
            [
                str(n),
                f"{line['scores']['accuracy']:.1%}",
                str(line["devices"]),
                size(line["bytes_up"]),
                f"{line['seconds']:.2f}",
            ]
            for n, line in lines.items()
        ]


def look(scene: Scene, true: Callable[[dict[str, Any]], object]) -> Look:
    """All of them, at a moment of which this holds, and in which nothing happened while they were asked."""
    for _ in range(60):
        page = scene.overview()
        if true(page):
            seen = Look(scene.status(), page, scene.report(), scene.metrics())
            if scene.overview()["sequence"] == page["sequence"]:
                return seen
        time.sleep(0.5)
    return pytest.fail(f"the moment never came: {scene.overview()}")


def agree_at_the_end(scene: Scene, rounds: int) -> None:
    """Nobody coordinates any more: the page is served from the folder."""
    page = scene.page_of_the_folder()
    seen = look(scene, lambda page: page["run"]["state"] == "finished")
    seen.agree()
    assert {(told["run"]["rounds"], told["run"]["rounds_done"]) for told in (seen.status, seen.page)} == {
        (rounds, rounds)
    }
    assert [line["rounds"] for line in seen.metrics if line["event"] == "done"][-1] == rounds
    page.terminate()


def states(page: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["state"] for row in page["devices"]}


def lacks(page: dict[str, Any], name: str, *states_of_it: str) -> bool:
    """Whether the others have nothing left to do but to wait for this device."""
    state_of = states(page)
    others = {state for other, state in state_of.items() if other != name}
    return state_of.get(name) in states_of_it and others <= {"idle", "answered", "offline"}


@pytest.mark.night
@pytest.mark.timeout(600)
def test_status_page_report_and_metrics_agree_at_every_step(tmp_path: Path, mosquitto: Broker) -> None:
    with on_stage(tmp_path, mosquitto) as scene:
        coordinator = scene.coordinator("start", "run.toml", "--no-rehearse")
        first = [scene.device(part) for part in range(2)]
        look(scene, lambda page: states(page) == {"pi-01": "idle", "pi-02": "idle"}).agree()  # a third one is awaited

        third = scene.device(2)
        until(lambda: scene.rounds_done() >= 2)
        third.kill()
        look(scene, lambda page: lacks(page, "pi-03", "offline")).agree()  # two are no quorum

        fourth = scene.device(3)
        until(lambda: any(row["name"] == "pi-04" and row["answers"] for row in scene.overview()["devices"]))
        fourth.send_signal(signal.SIGSTOP)  # it says nothing more, and is not gone yet: the round in hand waits
        look(scene, lambda page: lacks(page, "pi-04", "asked", "training", "sending", "offline")).agree()

        before = scene.rounds_done()
        coordinator.kill()
        coordinator.wait()
        assert scene.status()["status"] == "interrupted"
        rounds = before + 5
        scene.rounds(rounds)
        coordinator = scene.coordinator("start", "run.toml")
        again = look(scene, lambda page: lacks(page, "pi-04", "asked", "training", "sending", "offline"))
        again.agree()
        assert {(told["run"]["rounds_done"], told["run"]["restarts"]) for told in again[:2]} == {(before, 1)}

        fourth.send_signal(signal.SIGCONT)
        scene.ended(coordinator)
        agree_at_the_end(scene, rounds)

        scene.ended(scene.coordinator("extend", "run.toml", "--rounds", "3"))
        agree_at_the_end(scene, rounds + 3)
        assert all(process.poll() is None for process in [*first, fourth]), "devices serve on"
