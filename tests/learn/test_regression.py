"""A regression is whole: scores in reports, lines, the last word, comparisons and targets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import summed_up

from coordinator.durable import checkpoint
from coordinator.shell.exporting import export_checkpoint
from device_agent.shell.inference import predict
from device_agent.shell.inference import table as predictions
from edgefl.base.errors import ConfigError
from edgefl.base.events import Evaluating, Fact, Round
from edgefl.cli.export import told as exported
from edgefl.delivery.deployed import Deployed
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.lab.comparison.page import page
from edgefl.lab.comparison.plots import draw
from edgefl.lab.comparison.running import play_all
from edgefl.lab.comparison.table import Score, as_json, scores, text
from edgefl.lab.comparison.variants import variants
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.labels import of_device
from edgefl.learn.evaluation import wording
from edgefl.sim.drivers import play
from edgefl.system.disk import FolderDisk
from edgefl.watch.terminal_view import heights
from edgefl.watch.view import LineView, LiveView, plain_line


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
        assert event.forgetting is None if isinstance(event, Round) else "accuracy" not in event.best_score
        assert list(event.scores) == ["loss", "rmse", "mae", "r2"], "what it is judged by first"
        assert all(isinstance(value, float) for value in event.scores.values())
    assert done.best_score == {"loss": min(event.loss for event in rounds)}
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
    assert heights(view.overview.snapshot().rounds) == [first.r2]


def test_a_target_loss_ends_a_run(table: dict[str, Any]) -> None:
    _, *rounds, done = told(table, "run.target_loss=100.0")
    assert (len(rounds), done.rounds_to_target) == (1, 1), "a run has one round at least"
    assert told(table, "run.target_loss=0.0")[-1].rounds_to_target is None


def test_a_comparison_judges_a_regression_by_its_loss(table: dict[str, Any], tmp_path: Path) -> None:
    ends = play_all(variants("fast=fedavg:lr=0.1,slow=fedavg:lr=0.01", table, "run.toml"), 2, None, play)
    assert all(isinstance(end, PlayedRun) for end in ends)
    lines = scores(ends, (0.5,))
    chief = {line.label: line for line in lines if isinstance(line, Score) and line.seed == "median"}
    assert chief["fast"].best < chief["slow"].best
    assert "best loss" in text(lines, (0.5,))
    assert "to R2 0.5" in text(lines, (0.5,))
    whole = [end for end in ends if isinstance(end, PlayedRun)]
    pictures = draw(whole, tmp_path, "plane")
    assert {path.name for path in pictures.values()} == {"loss.png", "bytes.png", "cpu.png"}
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
    run = parse(RunFile, table, "test", environment={})
    job, _ = jobs.prepare(run)
    path = tmp_path / checkpoint.save(FolderDisk(tmp_path), job, checkpoint.Checkpoint(jobs.begin(job), (), 0, 0))
    report = export_checkpoint(path, tmp_path / "model.onnx", own=run)
    assert report.exported_scores["rmse"] == pytest.approx(report.scores["rmse"], rel=1e-4)
    assert any(line.startswith("RMSE: ") for line in exported(report))


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run file that learns two planes at once from 100 points; devices train from graphs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 3)).astype(np.float32)
    y = np.stack([x @ [1.0, 2.0, -1.0], x @ [0.5, 0.0, 1.0]], axis=1)
    path = tmp_path_factory.mktemp("planes") / "planes.npz"
    np.savez(path, x=x, y=y.astype(np.float32))
    task = {"model": "softmax", "loss": "squared_error", "targets": ["height", "slope"]}
    return {
        "run": {"name": "planes", "rounds": 4},
        "task": {"data": f"npz:{path}", "partition": {"kind": "iid", "devices": 2}, **task},
        "algorithm": {"name": "fedavg", "lr": 0.1},
    }


def test_several_targets_are_learnt_and_told_one_by_one(planes: dict[str, Any]) -> None:
    opening, *rounds, done = told(planes)
    assert (opening.targets, opening.names, opening.classes) == (2, ("height", "slope"), 0)
    assert done.target_names == ("height", "slope")
    first, last = rounds[0], rounds[-1]
    assert [sorted(one) for one in last.per_target] == [["mae", "r2", "rmse"]] * 2
    assert all(after["rmse"] < before["rmse"] for before, after in zip(first.per_target, last.per_target, strict=True))
    assert last.rmse == pytest.approx(np.sqrt(np.mean([one["rmse"] ** 2 for one in last.per_target])))
    assert last.r2 == pytest.approx(np.mean([one["r2"] for one in last.per_target]))
    worst = min(zip((one["r2"] for one in done.per_target), opening.names, strict=True))[1]
    assert f"weakest target '{worst}' R2" in wording.weakest(done, done.names)
    assert "2 real targets (height, slope)" in wording.evaluating(opening)


def test_a_model_of_several_targets_says_their_names_in_its_file(planes: dict[str, Any], tmp_path: Path) -> None:
    run = parse(RunFile, planes, "test", environment={})
    job, _ = jobs.prepare(run)
    path = tmp_path / checkpoint.save(FolderDisk(tmp_path), job, checkpoint.Checkpoint(jobs.begin(job), (), 0, 0))
    report = export_checkpoint(path, tmp_path / "model.onnx", own=run)
    assert report.exported_scores["rmse"] == pytest.approx(report.scores["rmse"], rel=1e-4)
    model = Deployed(tmp_path / "model.onnx")
    assert (model.outputs, model.card["target_names"]) == (2, '["height", "slope"]')
    said = predict(model, np.ones((2, 3), np.float32))
    assert list(said.columns()) == ["height", "slope"]
    assert next(iter(predictions(said))) == "height,slope"


def test_a_device_gives_its_targets_in_the_runs_order(tmp_path: Path) -> None:
    own = Dataset(np.ones((2, 1), np.float32), np.float32([[1, 2], [3, 4]]), 0, target_names=("slope", "height"))
    assert of_device(own, 0, (), "pi", ("height", "slope")).y.tolist() == [[2, 1], [4, 3]]
    with pytest.raises(ConfigError, match=r"pi: its samples have 2 real targets .* the run has 3"):
        of_device(own, 0, (), "pi", 3)
    with pytest.raises(ConfigError, match="'depth' of the run is not among them"):
        of_device(own, 0, (), "pi", ("height", "depth"))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"targets": 2, "classes": 3}, "a run learns one or the other"),
        ({"targets": 2, "loss": "cross_entropy"}, "set task.loss = 'squared_error'"),
        ({"targets": 3}, "its samples have 2 real targets"),
        ({"data": "none"}, "task.sample"),
    ],
)
def test_targets_that_cannot_be_meant_are_refused(planes: dict[str, Any], task: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        jobs.prepare(parse(RunFile, {**planes, "task": {**planes["task"], **task}}, "test", environment={}))
