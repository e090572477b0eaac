"""Comparisons, sweeps, reports and pages judge a kind of task by its own figure."""

import re
from pathlib import Path
from typing import Any

import pytest

from edgefl.base.events import Done, Round
from edgefl.job.config.reader import read_own
from edgefl.lab.comparison import grid, table
from edgefl.lab.comparison.comparison import compare
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.lab.comparison.page import page
from edgefl.lab.comparison.sweep import sweep
from edgefl.lab.comparison.variants import variants
from edgefl.learn.evaluation.figures import METRICS
from edgefl.system import user_files
from edgefl.watch.page import files

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def played(label: str, told: list[dict[str, float | None]], seed: int = 0) -> PlayedRun:
    rounds = tuple(
        Round(i, scores={**scores, "loss": 10.0 - i}, devices=2, bytes_up=1_000_000) for i, scores in enumerate(told, 1)
    )
    return PlayedRun(label, seed, rounds, Done("run", "", len(told)))


def shown(*runs: PlayedRun) -> tuple[list[str], list[list[str]]]:
    levels = (0.5, 0.9)
    return table.cells(table.scores(runs, levels), levels)


def test_a_segmentation_is_judged_by_its_mean_iou() -> None:
    run = played("a", [{"mean_iou": 0.2, "pixel_accuracy": 0.6}, {"mean_iou": 0.55, "pixel_accuracy": 0.7}])
    head, (row,) = shown(run)
    told = dict(zip(head, row, strict=True))
    assert (told["best mean IoU"], told["last mean IoU"], told["pixel accuracy"], told["loss"]) == (
        "0.550",
        "0.550",
        "0.700",
        "8",
    )
    assert (told["to 50%"], told["to 90%"], told["MB to 50%"]) == ("2", "-", "2.0")
    assert "forgetting" not in head
    assert run.best == "best mean IoU 55.0%"


def test_the_lower_perplexity_is_better_and_levels_are_of_token_accuracy() -> None:
    good = played("good", [{"perplexity": 9.0, "token_accuracy": 0.3}, {"perplexity": 3.0, "token_accuracy": 0.6}])
    bad = played("bad", [{"perplexity": 9.0, "token_accuracy": 0.3}, {"perplexity": 30.0, "token_accuracy": 0.2}])
    head, rows = shown(good, bad)
    told = [dict(zip(head, row, strict=True)) for row in rows]
    assert [(one["best perplexity"], one["last perplexity"], one["to token accuracy 50%"]) for one in told] == [
        ("3", "3", "2"),
        ("9", "30", "-"),
    ]
    drawn = page("t", "edgefl compare", lines=table.scores([good, bad], ()), levels=(), pictures={}, runs={})
    assert '<td class="best">3</td>' in drawn
    assert "lower is better" in drawn


def test_errors_alone_have_no_levels() -> None:
    head, _ = shown(played("a", [{"size.rmse": 0.5}]))
    assert "best size RMSE" in head
    assert not [title for title in head if title.startswith("to ")]


@pytest.mark.parametrize("on", ["coordinator", "devices"])
def test_a_comparison_of_an_example_has_its_figure_in_table_picture_and_page(on: str, tmp_path: Path) -> None:
    path = EXAMPLES / "multilabel.toml"
    user_files.remember(path)
    sets = ["run.rounds=2", f'evaluation.on="{on}"', "evaluation.least=2"]
    result = compare(variants("fedavg,fedprox:mu=0.1", read_own(path), str(path), sets), seeds=1)
    assert not result.failed
    assert "best F1" in result.text()
    assert all(0 < run.judged[-1] <= 1 for run in result.played)
    assert [standing.measure for standing in result.standings()] == ["f1", "f1"]
    written = result.write(tmp_path).read_text()
    assert "test figures of F1, higher is better; exact match, loss after the last round" in written
    assert (tmp_path / "f1.png").is_file()


def test_a_sweep_chooses_by_the_figure_of_the_task() -> None:
    path = EXAMPLES / "next_token.toml"
    user_files.remember(path)
    families = grid.families("fedavg", ["lr=0.0001,0.5"], read_own(path), str(path), ["run.rounds=2"])
    result = sweep(families, seeds=1)
    (choice,) = result.choices
    assert {trial.measure for trial in choice.trials} == {"perplexity"}
    assert choice.chosen.mean == min(trial.mean for trial in choice.trials)
    assert "best perplexity" in result.text()


def test_the_page_in_the_browser_calls_figures_what_everybody_calls_them() -> None:
    script = (files.FOLDER / "scores.js").read_text(encoding="utf-8")
    titles = dict(re.findall(r'(\w+): "([^"]+)"', script.split("const TITLES")[1].split("};")[0]))
    of_kinds = {name: metric for name, metric in METRICS.items() if name in titles}
    assert titles == {name: metric.title for name, metric in of_kinds.items()}
    assert {"mean_iou", "f1", "perplexity", "reconstruction_error", "auroc"} <= set(of_kinds)
    shares: Any = re.findall(r'"(\w+)"', script.split("const SHARES")[1].split("]")[0])
    assert set(shares) == {name for name, metric in of_kinds.items() if metric.share}
