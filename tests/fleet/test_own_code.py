"""A run of code of the operator's own, in real processes: it is killed, started again, extended, shown and exported."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from edgefl.system import user_code
from edgefl.system.processes import Child, python
from edgefl.wire.broker import Broker

MINE = """
from typing import Literal

import torch
from pydantic.dataclasses import dataclass

from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.losses import cross_entropy

def net(shape, classes):
    return torch.nn.Linear(shape[0], classes)

def loss(z, y):
    return cross_entropy(z, y)

@dataclass(frozen=True)
class Own(FedAvg):
    name: Literal["own"] = "own"
"""
RUN = """
[run]
name = "own"
rounds = {rounds}
[task]
data = "synthetic"
model = "mine:net"
loss = "mine:loss"
partition = {{ kind = "iid", devices = 2 }}
[algorithm]
name = "mine:Own"
[broker]
url = "{address}"
"""


@pytest.fixture
def folder(tmp_path: Path, mosquitto: Broker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the run file and its module, from which every command is given."""
    monkeypatch.delenv(user_code.PLACES)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "run.toml").write_text(RUN.format(rounds=200, address=mosquitto.address))
    return tmp_path


def edgefl(folder: Path, *words: str) -> tuple[int, str]:
    """A command that ends by itself: its exit code, and all that it said."""
    done = subprocess.run(python("edgefl", *words), cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def started(folder: Path) -> Iterator[Callable[..., Child]]:
    """Start a command that goes on by itself; it ends with the test."""
    with ExitStack() as until_done:

        def start(name: str, *words: str) -> Child:
            child = Child(python("edgefl", *words), folder / f"{name}.log", home=folder)
            until_done.callback(child.stop)
            return child

        yield start


def told(child: Child) -> list[dict[str, object]]:
    lines = child.output.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]


@pytest.mark.night
def test_it_goes_on_by_its_run_file_and_is_shown_without_its_code(folder: Path, started: Callable[..., Child]) -> None:
    coordinator = started("first", "coordinator", "start", "run.toml", "--no-page", "--json")
    fleet = started("fleet", "fleet", "start", "run.toml")
    while not any(event["event"] == "round" for event in told(coordinator)):
        assert not coordinator.gone.wait(0.1), coordinator.output.read_text()
        assert not fleet.gone.is_set(), fleet.output.read_text()
    assert coordinator.process is not None
    coordinator.process.kill()
    coordinator.gone.wait()

    rounds = int(str([event for event in told(coordinator) if event["event"] == "round"][-1]["round"])) + 20
    text = (folder / "run.toml").read_text()
    (folder / "run.toml").write_text(text.replace("rounds = 200", f"rounds = {rounds}"))
    again = started("again", "coordinator", "start", "run.toml", "--no-page", "--json")
    again.gone.wait()
    assert (again.exit_code, told(again)[-1]["event"]) == (0, "done"), again.output.read_text()
    assert (folder / "runs" / "own" / "model.onnx").exists()

    (folder / "elsewhere").mkdir()  # where nothing of one's own is found
    for command in ("report", "status"):
        code, said = edgefl(folder / "elsewhere", command, str(folder / "runs" / "own"))
        assert code == 0, said
    code, said = edgefl(folder, "coordinator", "extend", "runs/own", "--rounds", "2", "--later")
    assert (code, "edgefl coordinator extend run.toml --rounds 2" in said) == (2, True), said
    code, said = edgefl(folder, "coordinator", "extend", "run.toml", "--rounds", "2", "--later")
    assert code == 0, said
