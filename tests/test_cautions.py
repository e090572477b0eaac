"""What readers of a simulation should know is said in one line: that test data decided when it ended, for one."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edgefl.cli.app import app
from edgefl.config.reader import parse
from edgefl.config.schema import RunFile

TABLE: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 9},
    "task": {"data": "synthetic", "model": "softmax", "backend": "torch", "partition": {"kind": "iid", "devices": 3}},
}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, ""),
        ({"evaluation": {"patience": 3}}, "evaluation.patience: the test data decide"),
        ({"evaluation": {"patience": 3, "validation": 0.2}}, ""),
        ({"evaluation": {"patience": 3, "on": "devices"}}, ""),
        ({"run": {"name": "tiny", "rounds": 9, "target_accuracy": 0.9}}, "run.target_accuracy: the test data decide"),
    ],
)
def test_where_test_data_decide_one_line_says_so(more: Any, said: str):
    line = parse(RunFile, {**TABLE, **more}, "run.toml").decided_by_test_data
    assert line.startswith(said)
    assert bool(line) == bool(said)
    assert not line or "set evaluation.validation = 0.2" in line


@pytest.mark.parametrize("name", ["fedper", "fedrep", "fedbn", "ditto", "pfedme"])
def test_where_nobody_judges_the_devices_own_models_one_line_says_so(name: str):
    table = {**TABLE, "algorithm": {"name": name}}
    (line,) = parse(RunFile, table, "run.toml").cautions
    assert line.startswith(f"algorithm.name = '{name}' leaves devices models of their own, and only the shared one is")
    assert not parse(RunFile, {**table, "evaluation": {"on": "devices"}}, "run.toml").cautions
    assert not parse(RunFile, {**table, "evaluation": {"on": "both"}}, "run.toml").cautions


def test_a_method_for_rounds_that_wait_for_nobody_says_so_in_rounds_that_wait():
    table = {**TABLE, "algorithm": {"name": "fedasync"}}
    (line,) = parse(RunFile, table, "run.toml").cautions
    assert line.endswith("waits for all of a round; set rounds.mode = 'buffered' and rounds.buffer = 1")
    rounds = {"mode": "buffered", "concurrency": 2, "buffer": 1}
    assert not parse(RunFile, {**table, "rounds": rounds}, "run.toml").cautions


def test_of_a_model_that_all_share_nothing_is_said():
    assert not parse(RunFile, TABLE, "run.toml").cautions


def test_a_comparison_with_patience_says_it_once(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text(
        '[run]\nname = "tiny"\nrounds = 2\n[task]\ndata = "synthetic"\nmodel = "softmax"\nbackend = "torch"\n'
        'partition = { kind = "iid", devices = 3 }\n[evaluation]\npatience = 1\n'
    )
    words = ["compare", str(file), "--algorithms", "fedavg,fedprox", "--seeds", "2", "--json", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)
    assert done.stderr.count("the test data decide") == 1
