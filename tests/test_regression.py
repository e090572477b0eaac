"""A regression is whole: scores in reports, lines, the last word, comparisons and targets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import summed_up

from coordinator import checkpoint
from coordinator.exporting import export_checkpoint
from coordinator.view import LineView, LiveView, plain_line
from edgefl.cli.export import told as exported
from edgefl.cli.simulate import play
from edgefl.compare.outcomes import Played
from edgefl.compare.page import page
from edgefl.compare.plots import draw
from edgefl.compare.running import play_all
from edgefl.compare.table import Score, as_json, scores, text
from edgefl.compare.variants import variants
from edgefl.config.reader import parse
from edgefl.config.schema import RunFile
from edgefl.evaluation import wording
from edgefl.events import Evaluating, Fact, Round
from edgefl.run import job as jobs
from edgefl.system.disk import FolderDisk

SCORES = {"mae", "rmse", "r2", "loss"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run file that learns a plane from 100 noisy points."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 3)).astype(np.float32)
    path = tmp_path_factory.mktemp("plane") / "plane.npz"
    np.savez(path, x=x, y=(x @ [1.0, 2.0, -1.0] + 3).astype(np.float32))
    return {
        "run": {"name": "plane", "rounds": 4},
        "task": {
            "data": f"npz:{path}",
            "model": "softmax",
            "loss": "squared_error",
            "backend": "torch",
            "partition": {"kind": "iid", "devices": 2},
        },
        "algorithm": {"name": "fedavg", "lr": 0.1},
    }


def told(table: dict[str, Any], *sets: str) -> list[Any]:
    events: list[Fact] = []
    play(parse(RunFile, table, "test", sets, environment={}), None, summed_up(events.append))
    return events


def test_every_round_and_the_last_word_have_loss_and_errors_and_no_accuracy(table: dict[str, Any]) -> None:
    opening, *rounds, done = told(table)
    assert isinstance(opening, Evaluating)
    assert (opening.samples, opening.classes) == (20, 0)
    for event in (*rounds, done):
        assert event.accuracy is None
        assert event.forgetting is None if isinstance(event, Round) else event.best_accuracy is None
        assert all(isinstance(getattr(event, key), float) for key in SCORES)
    assert done.best_loss == min(event.loss for event in rounds)
    assert rounds[-1].r2 > rounds[0].r2


def test_lines_say_loss_and_errors(table: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    _, first, *_, done = told(table)
    for event in (first, done):
        LineView(plain_line).tell(event)
    lines = capsys.readouterr().out.splitlines()
    assert all(word in line for line in lines for word in ("loss", "MAE", "RMSE", "R2"))
    assert "best loss" in lines[-1]
    assert "%" not in lines[-1]
    view = LiveView()
    view.tell(first)
    assert view.curve == [first.r2]


def test_a_target_loss_ends_a_run(table: dict[str, Any]) -> None:
    _, *rounds, done = told(table, "run.target_loss=100.0")
    assert (len(rounds), done.rounds_to_target) == (0, 0)
    assert told(table, "run.target_loss=0.0")[-1].rounds_to_target is None


def test_a_comparison_judges_a_regression_by_its_loss(table: dict[str, Any], tmp_path: Path) -> None:
    ends = play_all(variants("fast=fedavg:lr=0.1,slow=fedavg:lr=0.01", table, "run.toml"), 2, None, play)
    assert all(isinstance(end, Played) for end in ends)
    lines = scores(ends, (0.5,))
    chief = {line.label: line for line in lines if isinstance(line, Score) and line.seed == "median"}
    assert chief["fast"].best < chief["slow"].best
    assert "best loss" in text(lines, (0.5,))
    assert "to R2 0.5" in text(lines, (0.5,))
    whole = [end for end in ends if isinstance(end, Played)]
    pictures = draw(whole, tmp_path, "plane")
    assert {path.name for path in pictures.values()} == {"loss.png", "bytes.png"}
    drawn = page("plane", "edgefl compare", lines=lines, levels=(0.5,), pictures=pictures, runs={})
    best = f'<td class="best">{chief["fast"].best:.4g}</td>'
    assert best in drawn
    assert "NaN" not in repr(as_json(ends, (0.5,)))


def test_the_weakest_class_is_named() -> None:
    names = ("sit", "walk", "run")
    assert wording.weakest(Round(1, per_class=(1.0, None, 0.25)), names) == "weakest class 'run' 25.0%"
    assert wording.weakest(Round(1, per_class=()), names) == ""


def test_a_coordinator_that_sets_samples_aside_says_so() -> None:
    sentence = wording.evaluating(Evaluating("csv:t.csv", 60, 240, None, 0, 2, ("a", "b")))
    assert "60 samples" in sentence
    assert "240" in sentence
    assert "(a, b)" in sentence


def test_a_stage_with_patience_validates_by_the_loss_of_the_targets(table: dict[str, Any]) -> None:
    stages = [{"name": "mean"}, {"name": "finetune", "patience": 2, "lr": 0.01}]
    events = told({**table, "aggregation": stages, "task": {**table["task"], "public": 0.2}})
    assert events[-1].r2 > events[1].r2


def test_an_exported_model_is_judged_by_its_errors(table: dict[str, Any], tmp_path: Path) -> None:
    job, _ = jobs.prepare(parse(RunFile, table, "test", environment={}))
    path = tmp_path / checkpoint.save(FolderDisk(tmp_path), job, checkpoint.Saved(jobs.begin(job), (), 0, 0))
    report = export_checkpoint(path, tmp_path / "model.onnx")
    assert report.exported_rmse == pytest.approx(report.rmse, rel=1e-4)
    assert any(line.startswith("RMSE: ") for line in exported(report))
