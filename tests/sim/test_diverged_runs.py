"""A run that diverges is a result: its rounds so far, and an end that says where and why."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import edgefl
from edgefl.base.errors import Diverged
from edgefl.base.events import Done, Fact, Round, timeless
from edgefl.cli.app import app
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.config.toml_text import table
from edgefl.lab.comparison.comparison import compare, kept_in
from edgefl.lab.comparison.curves import by_label
from edgefl.lab.comparison.grid import families
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.lab.comparison.significance import standings
from edgefl.lab.comparison.sweep import sweep
from edgefl.lab.comparison.table import Score, scores
from edgefl.lab.comparison.variants import seeded, variants
from edgefl.sim.drivers import play
from edgefl.sim.run_folder import play_kept

WAYS = ("bytes_up", "bytes_down")


def run_file(tables: dict[str, Any]) -> RunFile:
    return parse(RunFile, tables, "test", environment={})


def text_of(tables: dict[str, Any]) -> str:
    return "\n".join(table(name, one) for name, one in tables.items())


@pytest.fixture
def steep(tmp_path: Path) -> dict[str, Any]:
    """Return a regression that is learnt with small steps; with large ones it goes astray after a while."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)).astype(np.float32)
    np.savez(tmp_path / "line.npz", x=x, y=(x @ np.array([1, 2, 3])).astype(np.float32))
    return {
        "run": {"name": "steep", "rounds": 30, "folder": str(tmp_path / "runs")},
        "task": {
            "data": f"npz:{tmp_path / 'line.npz'}",
            "model": "softmax",
            "backend": "torch",
            "loss": "squared_error",
            "partition": {"kind": "iid", "devices": 4},
        },
        "algorithm": {"name": "fedavg", "lr": 9.0, "batch": 100},
    }


DRIVERS = {"the loop": {}, "an emulated fleet": {"fleet": {"profiles": {"pi4": 4}}}}


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_rounds_before_are_told_and_the_end_says_why(steep: dict[str, Any], driver: str):
    facts: list[Fact] = []
    run_state = play(run_file(steep | DRIVERS[driver]), None, facts.append)
    *_, done = facts
    rounds = [fact for fact in facts if isinstance(fact, Round)]
    assert isinstance(done, Done)
    assert (done.stopped, done.rounds) == ("diverged", len(rounds))
    assert 1 < len(rounds) < 30
    assert f"round {len(rounds) + 1}" in done.why
    assert "lower algorithm.lr = 9" in done.why
    assert run_state.round == len(rounds)
    assert np.isfinite(run_state.params).all()
    assert run_state.sha256() == done.model_sha256
    assert (done.bytes_up, done.bytes_down) == tuple(sum(getattr(r, way) for r in rounds) for way in WAYS)
    assert (done.virtual_seconds is not None) == (driver == "an emulated fleet")


def test_from_python_it_is_a_history_that_says_so(steep: dict[str, Any], caplog: pytest.LogCaptureFixture):
    told: list[Fact] = []
    (file := Path(steep["run"]["folder"]).parent / "run.toml").write_text(text_of(steep))
    history = edgefl.simulate(run_file=file, callbacks=told.append)
    assert history.done is not None
    assert told[-1] == history.done
    assert history.done.stopped == "diverged"
    assert len(history.curve("loss")) == history.done.rounds
    assert all(np.isfinite(array).all() for array in history.weights.values())
    assert repr(history).endswith(", diverged>")
    assert sum("diverged after" in record.message for record in caplog.records) == 1


def test_the_command_tells_its_rounds_keeps_them_and_ends_with_1(steep: dict[str, Any], tmp_path: Path):
    (file := tmp_path / "run.toml").write_text(text_of(steep))
    command = ["simulate", str(file), "--out", str(tmp_path / "out"), "--json"]
    first, again = (CliRunner().invoke(app, command) for _ in range(2))
    *rounds, done = map(json.loads, first.stdout.splitlines())
    assert isinstance(first.exception, Diverged)
    assert first.exception.exit_code == 1
    assert f"the run diverged after {done['rounds']} rounds: " in str(first.exception)
    assert (done["event"], done["stopped"]) == ("done", "diverged")
    kept = edgefl.load(tmp_path / "out")
    assert kept.done is not None
    assert (kept.done.stopped, len(kept.rounds)) == (
        "diverged",
        len([one for one in rounds if one["event"] == "round"]),
    )
    assert "diverged" not in first.stderr
    assert "diverged, is played again and will end as it did" in again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["model_sha256"] == done["model_sha256"]


def test_a_run_that_was_killed_before_it_diverges_ends_as_if_it_had_not_been(steep: dict[str, Any], tmp_path: Path):
    def killed(fact: Fact) -> None:
        if isinstance(fact, Round) and fact.round == 4:
            raise KeyboardInterrupt

    run, whole, rest = run_file(steep), list[Fact](), list[Fact]()
    play(run, None, whole.append)
    with pytest.raises(KeyboardInterrupt):
        play_kept(run, None, killed, folder=tmp_path / "out", seconds=0)
    play_kept(run, None, rest.append, folder=tmp_path / "out", seconds=0)
    assert timeless(rest[-1]) == timeless(whole[-1])


def test_in_a_comparison_it_is_a_row_and_the_others_go_on(steep: dict[str, Any], tmp_path: Path):
    chosen = variants("small=fedavg:lr=0.1,large=fedavg", steep, "run.toml")
    memory = kept_in(tmp_path)
    compared = compare(chosen, seeds=2, memory=memory)
    assert not compared.failed
    assert [(run.label, run.diverged) for run in compared.played] == [("small", False)] * 2 + [("large", True)] * 2
    shown = compared.text()
    assert re.search(r"^\| large +\| +0 \|.*\| +round \d+ \|$", shown, re.MULTILINE)
    assert not re.search(r"^\| large +\| +median", shown, re.MULTILINE), "there is no median of what has no end"
    assert "large, seed 1: diverged: device " in shown
    small, large = compared.standings()
    assert (small.score.seeds, small.diverged, large.score.seeds, large.diverged) == (2, 0, 0, 2)
    assert json.loads(json.dumps(compared.as_json()))["standings"][1]["score"]["mean"] is None
    page = compared.write(tmp_path / "page").read_text()
    assert "<h2>Diverged</h2>" in page
    assert kept_in(tmp_path).find(seeded(chosen[1].run, 0)) is not None, "it is not played again"


def test_a_seed_that_diverges_is_left_out_of_medians_means_and_bands():
    def run(seed: int, scores: list[float], stopped: str = "") -> PlayedRun:
        rounds = tuple(
            Round(i, scores={"accuracy": score, "loss": 1.0}, devices=1) for i, score in enumerate(scores, 1)
        )
        return PlayedRun("a", seed, rounds, Done("run", "a", len(rounds), stopped=stopped, why="device"))

    runs = [run(0, [0.5, 0.6, 0.7]), run(1, [0.3], stopped="diverged"), run(2, [0.5, 0.6, 0.9])]
    median, *_ = scores(runs, ())
    assert isinstance(median, Score)
    assert (median.last, median.diverged) == (pytest.approx(0.8), "1 of 3")
    (standing,) = standings(runs)
    assert (standing.score.seeds, standing.score.mean, standing.diverged) == (2, pytest.approx((0.6 + 2 / 3) / 2), 1)
    lines = by_label(runs, lambda one: (one.numbers, one.judged))
    assert [len(y) for _, y in lines["a"]] == [3, 3]


def test_in_a_sweep_a_setting_that_diverges_is_the_worst_and_ends_nothing(steep: dict[str, Any]):
    chosen = sweep(families("fedavg:lr=9|0.1|8", [], steep, "run.toml"))
    (choice,) = chosen.choices
    assert choice.chosen.setting.values == {"lr": "0.1"}
    assert [bool(trial.diverged) for trial in choice.trials] == [True, False, True]
    assert re.search(r"lr=9 \| +diverged", chosen.text())
    assert not chosen.tested.failed


def test_where_every_setting_diverges_the_one_that_did_so_last_is_tested(steep: dict[str, Any]):
    (choice,) = sweep(families("fedavg:lr=1e9|9", [], steep, "run.toml")).choices
    assert choice.chosen.setting.values == {"lr": "9"}
