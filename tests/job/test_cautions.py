"""What readers of a simulation should know is said in one line: that test data decided when it ended, for one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import edgefl
from coordinator.shell import broker_wait
from edgefl.base.errors import ConfigError
from edgefl.base.events import Described, Evaluated
from edgefl.cli.app import app
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile

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


@pytest.mark.parametrize("name", ["samples", "power_of_choice"])
def test_where_samples_are_counted_in_the_draw_and_in_the_mean_one_line_says_so(name: str):
    table = {**TABLE, "selection": {"name": name}, "rounds": {"cohort": 2}}
    (line,) = parse(RunFile, table, "run.toml").cautions
    assert line.startswith(
        f"selection.name = '{name}' draws devices by their samples, and algorithm.weights = 'samples'"
    )
    assert "set algorithm.weights = 'uniform'" in line


@pytest.mark.parametrize("algorithm", [{"name": "fedavg", "weights": "batch"}, {"name": "fedgc"}])
def test_what_devices_worked_through_grows_with_their_samples_too(algorithm: dict[str, Any]):
    table = {**TABLE, "selection": {"name": "samples"}, "rounds": {"cohort": 2}, "algorithm": algorithm}
    (line,) = parse(RunFile, table, "run.toml").cautions
    assert "algorithm.weights = 'batch', wherever devices work through more of them, counts these once more" in line


@pytest.mark.parametrize(
    "more",
    [
        {"algorithm": {"name": "fedavg", "weights": "uniform"}},
        {"algorithm": {"name": "fedgc", "weights": "uniform"}},
        {"algorithm": {"name": "pfedme"}, "evaluation": {"on": "devices"}},
        {"rounds": {"cohort": 3}},
        {"aggregation": [{"name": "median"}], "rounds": {"cohort": 3, "quorum": 3}},
        {"selection": {"name": "oort"}},
    ],
)
def test_where_they_are_not_nothing_is_said_of_the_mean(more: dict[str, Any]):
    table = {**TABLE, "selection": {"name": "samples"}, "rounds": {"cohort": 2}, **more}
    table["task"] = {
        **TABLE["task"],
        "partition": {"kind": "iid", "devices": 3 if more.get("rounds") == {"cohort": 3} else 4},
    }
    assert not parse(RunFile, table, "run.toml").cautions


def test_a_comparison_says_of_the_mean_once(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text(SKEWED + "[selection]\nname = 'power_of_choice'\n[guards]\nbounds = false\n")
    words = ["compare", str(file), "--algorithms", "fedavg,fedprox:mu=0.1,u=fedavg:weights=uniform"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert done.stderr.count("counts these once more in the mean") == 1
    plain = CliRunner().invoke(app, ["simulate", str(file), "--set", "algorithm.weights=uniform"])
    assert "once more in the mean" not in plain.stderr


def test_a_rehearsal_and_a_coordinator_say_of_the_mean_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def without_a_broker(*_: object) -> None:
        raise ConfigError("no broker")

    monkeypatch.setattr(broker_wait, "wait_for_broker", without_a_broker)
    file = tmp_path / "run.toml"
    more = "[selection]\nname = 'power_of_choice'\n[broker]\nurl = 'mqtt://127.0.0.1:1'\n"
    file.write_text(SKEWED.replace("[run]\n", f"[run]\nfolder = '{tmp_path}'\n") + more)
    for command in (["rehearse", str(file)], ["coordinator", "start", str(file), "--no-rehearse"]):
        done = CliRunner().invoke(app, command)
        assert done.stderr.count("counts these once more in the mean") == 1, command


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


# ── guards ───────────────────────────────────────────────────────────────────────────────────────────────────

SKEWED = """
[run]
name = "skewed"
rounds = 6
seed = 1
[task]
data = "digits"
model = "softmax"
backend = "torch"
partition = { kind = "dirichlet", devices = 30, omega = 0.05 }
[rounds]
cohort = 10
"""
SETTINGS = {"rounds.cohort": 10}


@pytest.fixture
def skewed(tmp_path: Path) -> str:
    """Return a run in which some devices have many times the samples of the others."""
    file = tmp_path / "run.toml"
    file.write_text(SKEWED)
    return str(file)


def bounds_of(told: str) -> list[int]:
    """How many answers each round of a simulation's JSON says were bounded."""
    return [len(fact["bounded"]) for line in told.splitlines() if (fact := json.loads(line))["event"] == "round"]


def test_a_simulation_says_once_that_guards_changed_answers_and_how_to_switch_them_off(skewed: str):
    done = CliRunner().invoke(app, ["simulate", skewed, "--json"])
    assert sum(bounds_of(done.stdout)) > 1
    assert done.stderr.count("[guards] scaled down") == 1
    assert "set guards.bounds = false" in done.stderr
    plain = CliRunner().invoke(app, ["simulate", skewed, "--json", "--set", "guards.bounds=false"])
    assert sum(bounds_of(plain.stdout)) == 0
    assert "[guards]" not in plain.stderr


def test_without_bounds_is_without_each_of_the_caps(skewed: str):
    off = ["--set", "guards.weight_cap=off", "--set", "guards.norm_cap=off", "--set", "guards.extra_cap=off"]
    ends = [
        json.loads(CliRunner().invoke(app, ["simulate", skewed, "--json", *more]).stdout.splitlines()[-1])
        for more in ([], off, ["--set", "guards.bounds=false"])
    ]
    with_guards, each_off, all_off = (end["model_sha256"] for end in ends)
    assert with_guards != each_off == all_off


def test_from_python_it_is_said_once_and_counted_in_every_record(caplog: pytest.LogCaptureFixture):
    fleet = edgefl.Fleet(devices=30, split="dirichlet", omega=0.05)
    run = edgefl.Run("softmax", "digits", fleet=fleet, rounds=6, seed=1, backend="torch", settings=SETTINGS)
    history = run.simulate()
    assert [record["bounded"] for record in history.records()] == [len(one.bounded) for one in history.rounds]
    assert sum(value or 0 for value in history.curve("bounded")) > 1
    assert caplog.text.count("[guards] scaled down") == 1
    caplog.clear()
    assert sum(run.simulate(settings={**SETTINGS, "guards.bounds": False}).curve("bounded")) == 0
    assert not caplog.records


def test_a_comparison_and_a_sweep_say_it_once_and_under_their_table(skewed: str, tmp_path: Path):
    for more in ([], ["--grid", "lr=0.1,0.3"]):
        words = ["compare", skewed, "--algorithms", "fedavg,fedprox:mu=0.1", "--out", str(tmp_path / f"{len(more)}")]
        done = CliRunner().invoke(app, [*words, *more])
        assert done.stderr.count("[guards] scaled down") == 1
        assert "\nbounded: answers that [guards] scaled down" in done.stdout


def test_a_fleet_whose_answers_are_alike_is_not_told_of_guards(caplog: pytest.LogCaptureFixture):
    edgefl.simulate("softmax", "digits", fleet=4, rounds=2, backend="torch")
    assert not caplog.records


ONE_IS_LARGE = (20, 20, 20, 20, 2000)  # samples of five clients


def clients(sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return clients whose features have another mean, and whose labels other classes, the more samples they have."""
    draw = np.random.default_rng(0)
    features = [draw.normal(3 * (size > 20), 1, (size, 4)).astype(np.float32) for size in sizes]
    return {f"c{i}": (x, np.arange(len(x)) % (2 + (len(x) > 20))) for i, x in enumerate(features)}


def beside_updates(sizes: tuple[int, ...], key: str, value: str, *, bounds: bool = True) -> edgefl.History:
    """Play two rounds in which all updates weigh the same, and devices describe or evaluate."""
    settings = {key: value, "evaluation.least": 2, "guards.bounds": bounds, "guards.norm_cap": "off"}
    how: dict[str, Any] = {"algorithm": "fedavg:weights=uniform", "rounds": 2, "backend": "torch", "progress": False}
    return edgefl.simulate("softmax", clients(sizes), settings=settings, **how)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("task.normalise", "fleet", "before the first round: [guards] scaled down what 1 of 5 devices said"),
        ("task.class_weights", "balanced", "before the first round: [guards] scaled down what 1 of 5 devices said"),
        ("evaluation.on", "devices", "round 0: [guards] scaled down what 1 of 5 devices evaluated"),
    ],
)
def test_descriptions_and_evaluations_that_guards_scale_down_are_told_once_and_counted(
    caplog: pytest.LogCaptureFixture, key: str, value: str, told: str
):
    history = beside_updates(ONE_IS_LARGE, key, value)
    assert [record["bounded"] for record in history.records()] == [0, 0], "no update was scaled down"
    facts = [fact for fact in history.facts if isinstance(fact, Described | Evaluated)]
    assert facts
    assert {fact.bounded for fact in facts} == {1}
    (line,) = caplog.messages
    assert line.startswith(told)
    assert "set guards.bounds = false" in line
    if key == "evaluation.on":
        assert history.curve("evaluation/bounded") == [1, 1]
    caplog.clear()
    beside_updates(ONE_IS_LARGE, key, value, bounds=False)
    beside_updates((20,) * 5, key, value)
    assert not caplog.records


def test_a_comparison_counts_descriptions_and_evaluations_that_guards_scaled_down(caplog: pytest.LogCaptureFixture):
    settings = {"task.normalise": "fleet", "evaluation.on": "both", "evaluation.least": 2, "guards.norm_cap": "off"}
    how: dict[str, Any] = {"algorithms": "fedavg:weights=uniform", "rounds": 2, "backend": "torch", "progress": False}
    compared = edgefl.compare("softmax", clients(ONE_IS_LARGE), settings=settings, **how)
    assert caplog.text.count("[guards] scaled down 4 answers") == 1, "one description, and three evaluations"
    assert "descriptions and evaluations among them" in str(compared)
