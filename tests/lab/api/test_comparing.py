"""`edgefl.compare`: algorithms by name or as objects, on the same run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefl
from edgefl.base.errors import ConfigError
from edgefl.learn.algorithms.fedprox import FedProx

X = np.random.default_rng(0).normal(size=(120, 5)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int64)


def compare(algorithms: Any, **more: Any) -> edgefl.Comparison:
    given = {"model": "softmax", "data": (X, Y), "fleet": 4, "rounds": 2, "progress": False} | more
    return edgefl.compare(algorithms=algorithms, **given)


def test_every_run_is_the_one_that_simulate_plays(tmp_path: Path) -> None:
    comparison = compare({"near": FedProx(mu=0.5), "plain": "fedavg"}, seeds=2)
    alone = edgefl.simulate("softmax", (X, Y), algorithm="fedprox:mu=0.5", fleet=4, rounds=2, seed=1)
    near = comparison.histories["near"][1]
    assert near.done is not None
    assert alone.done is not None
    assert near.done.model_sha256 == alone.done.model_sha256
    assert [(record["label"], record["seed"], record["round"]) for record in comparison.records()] == [
        (label, seed, round) for label in ("near", "plain") for seed in (0, 1) for round in (1, 2)
    ]
    assert str(comparison).count("| plain") == 4  # two seeds, their median, and how they stand together
    assert repr(comparison) == comparison._repr_markdown_() == str(comparison)  # as notebooks show it
    assert comparison.plot(tmp_path / "both.png").axes[0].get_legend_handles_labels()[1] == ["near", "plain"]
    assert comparison.save(tmp_path / "page").read_text().startswith("<!")


def test_a_figure_has_the_mean_of_the_seeds_in_a_band() -> None:
    comparison = compare(["fedavg", "fedprox"], seeds=2, fleet=edgefl.Fleet(profiles={"pi4": 4}))
    runs = comparison.histories["fedprox"]
    losses = np.array([run.curve("loss") for run in runs], np.float64)
    mean, deviation = losses.mean(axis=0), losses.std(axis=0, ddof=1)
    for over in ("round", "bytes", "seconds", "virtual_seconds", "cpu"):
        axes = comparison.plot(what="loss", over=over).axes[0]
        _, line = axes.lines
        assert np.asarray(line.get_xdata()) == pytest.approx(np.mean([run.over(over) for run in runs], axis=0))
        assert np.asarray(line.get_ydata()) == pytest.approx(mean)
        _, band = axes.collections
        heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
        assert (heights.min(), heights.max()) == pytest.approx(((mean - deviation).min(), (mean + deviation).max()))


def test_the_next_comparison_has_its_own_data() -> None:
    first, second = compare(["fedavg"]), compare(["fedavg"], data=(X, 1 - Y))
    assert first.histories["fedavg"][0].done != second.histories["fedavg"][0].done


def test_what_only_this_process_has_is_not_played_in_others() -> None:
    with pytest.raises(ConfigError, match="workers = 2 plays runs in other processes, which do not find data"):
        compare(["fedavg"], workers=2)


@pytest.mark.parametrize(
    ("algorithms", "words"),
    [
        (["fedavg", "fedavgg"], "no algorithm 'fedavgg'; did you mean 'fedavg'"),
        (["fedavg", "fedavg"], "'fedavg' stands there twice; give labels"),
        ([], "algorithms is empty"),
    ],
)
def test_a_mistake_in_one_of_them_is_one_line(algorithms: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        compare(algorithms)


def test_a_sweep_and_a_comparison_with_a_grid_choose_by_validation_and_test_what_they_chose(tmp_path: Path) -> None:
    given: Any = {"fleet": 4, "rounds": 2, "progress": False}
    both = {"near": FedProx(mu=0.5), "plain": "fedavg"}
    sweep = edgefl.sweep("softmax", (X, Y), algorithms=both, grid={"lr": [0.001, 0.3]}, **given)
    assert sweep.chosen == {"near": {"lr": 0.3}, "plain": {"lr": 0.3}}
    tried = [(record["label"], record["lr"], record["chosen"]) for record in sweep.records()]
    assert tried == [(label, lr, lr == 0.3) for label in ("near", "plain") for lr in (0.001, 0.3)]
    alone = edgefl.simulate("softmax", (X, Y), algorithm=FedProx(mu=0.5, lr=0.3), fleet=4, rounds=2)
    tested = sweep.tested.histories["near"][0]
    assert tested.done is not None
    assert alone.done is not None
    assert tested.done.model_sha256 == alone.done.model_sha256
    compared = compare(both, grid={"lr": [0.001, 0.3]})
    assert compared.chosen == sweep.chosen
    assert "lr=0.001" in str(compared), "the trials, as a sweep tells them"
    assert "chosen" in compared.save(tmp_path / "page").read_text().lower()
    again = compared.histories["near"][0].done
    assert again is not None
    assert again.model_sha256 == alone.done.model_sha256
    assert compare(["fedprox:mu=0.5", "a=fedavg:lr=0.001|0.3"]).chosen == {"fedprox:mu=0.5": {}, "a": {"lr": 0.3}}
    with pytest.raises(ConfigError, match="grid: no algorithm has a key 'nu'"):
        edgefl.sweep("softmax", (X, Y), algorithms=["fedavg"], grid={"nu": [1]}, **given)


def test_a_sweep_tells_settings_that_diverged_from_those_that_failed() -> None:
    given: dict[str, Any] = {"fleet": 3, "rounds": 2, "progress": False, "backend": "torch"}
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    sweep = edgefl.sweep("softmax", (x, x.sum(axis=1)), algorithms="fedavg", grid={"lr": [0.01, 1e20]}, **given)
    ends = {record["lr"]: (record["diverged"], record["failed"]) for record in sweep.records()}
    assert ends == {0.01: (0, 0), 1e20: (1, 0)}
