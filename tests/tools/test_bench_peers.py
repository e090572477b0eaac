"""The comparison with others: every side really plays, and the table says what was measured, also where we lose."""

import os
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgefl.base.errors import ConfigError
from edgefl.ops.bench.line import cpu_seconds
from tools.bench.commands import app
from tools.bench.peers import loads, report
from tools.bench.peers.compare import PeerBench, Row, compare
from tools.bench.peers.flower import Interpreter, interpreter
from tools.bench.peers.loads import LOADS, Load
from tools.bench.peers.meter import family, resident_mb
from tools.bench.peers.side import TurnCost

ROWS = [
    Row("J1", "edgefl", (TurnCost(0.3, 0.5, 50.0), TurnCost(0.1, 0.4, 60.0), TurnCost(0.2, 0.3, 70.0))),
    Row("J1", "Flower", (TurnCost(0.1, 0.8, 120.0),)),
    Row("J1", "bare paho", (TurnCost(0.05, 0.1, 24.0),)),
    Row("J2", "edgefl", (TurnCost(0.01, 0.02, 50.0),)),
    Row("J2", "Flower", why_not="flwr is not installed"),
    Row("J2", "bare gRPC", (TurnCost(0.02, 0.04, 50.0),)),
]


def test_a_row_is_the_medians_of_its_turns_and_its_ratios_are_to_flower_or_else_to_the_next_floor():
    _, *lines = report.cells(ROWS)
    assert lines[0] == ("J1", "edgefl", "200", "400", "60.0", "2.00", "0.50", "0.50", "Flower")
    assert lines[3][5:] == ("0.50", "0.50", "1.00", "bare gRPC")
    assert lines[4] == ("J2", "Flower", *["-"] * 6, "flwr is not installed")


def test_where_we_lose_is_said_and_nothing_else():
    assert list(report.lost(ROWS)) == ["J1, edgefl: 2.00 times the wall time of Flower"]


def test_the_page_has_the_machine_the_versions_and_every_row(tmp_path: Path):
    about = report.facts(Interpreter(sys.executable, None, "1.2", None), "2.0.11", tmp_path)
    page = report.markdown(PeerBench(devices=3), ROWS, about)
    assert "grpcio 1.2" in page
    assert "flwr not installed" in page
    assert "- J1, edgefl: 2.00 times the wall time of Flower" in page
    assert page.count("| J") == len(ROWS)
    assert all(load.title in page for load in LOADS)


def test_cpu_time_is_that_of_the_named_processes_as_the_kernel_has_it():
    me, nobody = os.getpid(), 2**22 + 1  # more than Linux has
    before = time.process_time()
    told = cpu_seconds(me)
    assert told is not None
    assert before <= told <= time.process_time()
    assert cpu_seconds(nobody) is None
    assert family([me]) >= {me}
    assert resident_mb(me) > 0


def test_a_python_without_flower_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="no Python that can be started"):
        interpreter(tmp_path / "python")
    assert interpreter().python == sys.executable


def test_a_job_that_is_not_measured_is_named():
    result = CliRunner().invoke(app, ["peers", "--job", "J9"])
    assert isinstance(result.exception, ConfigError)
    assert "J9" in str(result.exception)


@pytest.mark.usefixtures("mosquitto")
def test_every_side_that_is_there_plays_its_rounds(tmp_path: Path):
    here = interpreter()
    without = Interpreter(here.python, None, here.grpc, None)
    loads = (Load("small", 50, trains=False, rounds=2),)
    told: list[str] = []
    rows = list(compare(PeerBench(2, 1, loads), without, tmp_path, told.append))
    played = {row.side for row in rows if row.turns}
    assert played == {"edgefl", "edgefl, int8", "bare paho"} | ({"bare gRPC"} if here.grpc else set())
    assert {row.why_not for row in rows if row.side == "Flower"} == {"flwr is not installed"}
    assert min(turn.wall for row in rows for turn in row.turns) > 0
    assert min(turn.cpu for row in rows for turn in row.turns) > 0
    assert "small turn 1 of 1: edgefl, int8" in told


def test_clients_of_both_sides_train_the_same_network_on_as_many_samples():
    from tools.bench.peers import torch_client

    trainee = torch_client.TorchClient(0)
    assert (torch_client.SAMPLES, torch_client.BATCH, torch_client.RATE) == (loads.SAMPLES, loads.BATCH, loads.RATE)
    before = [parameter.detach().numpy().copy() for parameter in trainee.model.parameters()]
    after = trainee.epoch(before)
    assert sum(layer.size for layer in after) == loads.MLP
    assert any((old != new).any() for old, new in zip(before, after, strict=True))
