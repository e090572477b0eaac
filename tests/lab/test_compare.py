import os
import re
import signal
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from edgefl.base.errors import ConfigError, RunError
from edgefl.base.events import Done, Round, Tell
from edgefl.job.config.schema import RunFile
from edgefl.lab.comparison.curves import bundle, by_label, curves
from edgefl.lab.comparison.outcomes import FailedRun, Outcome, PlayedRun
from edgefl.lab.comparison.page import page
from edgefl.lab.comparison.plots import draw
from edgefl.lab.comparison.preparing import Preparation
from edgefl.lab.comparison.running import play_all
from edgefl.lab.comparison.table import MEDIAN, _megabytes, scores, text
from edgefl.lab.comparison.variants import seeded, variants
from edgefl.learn.algorithms import registry
from edgefl.learn.training.local import LocalTraining
from edgefl.system import user_code
from edgefl.wire.codec_topk import TopK

BASE: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 3, "seed": 4},
    "task": {
        "data": "synthetic",
        "model": "softmax",
        "backend": "torch",
        "public": 0.1,
        "partition": {"kind": "iid", "devices": 4},
    },
    "algorithm": {"name": "fedprox", "lr": 0.2, "batches": 3, "mu": 0.7},
    "rounds": {"cohort": 2},
}


def one(word: str):
    (variant,) = variants(word, BASE, "run.toml")
    return variant


# ── the grammar ──────────────────────────────────────────────────────────────────────────────────────────────


def trained_like(algorithm: Any) -> dict[str, Any]:
    """The hyper-parameters that all device halves share."""
    return {field.name: getattr(algorithm, field.name) for field in fields(LocalTraining)}


def test_a_name_takes_over_what_device_halves_share_and_nothing_else():
    run = one("moon").run
    assert (run.algorithm["lr"], run.algorithm["batches"]) == (0.2, 3)
    assert set(run.algorithm) <= {"name", *(field.name for field in fields(LocalTraining))}


@pytest.mark.parametrize("file", ["fedavg", "fedgc", "fedreg", "upcycled"])
def test_all_algorithms_train_and_weigh_alike_whatever_their_own_defaults_are(file: str):
    table = {**BASE, "algorithm": {"name": file}}
    alike = [trained_like(v.run.make_algorithm()) for v in variants("fedavg,fedgc,gradma,fedreg", table, "run.toml")]
    assert alike == [trained_like(registry.algorithm({"name": file}))] * 4


def test_an_algorithm_is_weighted_otherwise_only_if_it_is_told():
    plain, told = variants("fedavg,fedgc:weights=batch", {**BASE, "algorithm": {"name": "fedavg"}}, "run.toml")
    assert (plain.run.make_algorithm().weights, told.run.make_algorithm().weights) == ("samples", "batch")


@pytest.mark.parametrize("weights", ["samples", "batch"])
def test_mifa_keeps_the_uniform_mean_that_defines_it(weights: str):
    table = {**BASE, "algorithm": {"name": "fedavg", "weights": weights}}
    weightings = [v.run.make_algorithm().weights for v in variants("fedavg,mifa,mifam,fedgc", table, "run.toml")]
    assert weightings == [weights, "uniform", "uniform", weights]


def test_epochs_that_are_asked_for_are_not_overruled_by_the_batches_of_the_file():
    assert one("fedavg:epochs=2").run.make_algorithm().batches is None
    assert one("fedavg:epochs=2:batches=5").run.make_algorithm().batches == 5


def test_the_algorithm_of_the_file_keeps_its_own_keys():
    assert one("fedprox:lr=0.1").run.algorithm == {"name": "fedprox", "lr": 0.1, "batches": 3, "mu": 0.7}


def test_a_label_and_keys_are_read_as_toml():
    variant = one("gc=fedgc:sgc=false:weights=uniform")
    assert variant.label == "gc"
    assert variant.run.algorithm["sgc"] is False
    assert variant.run.algorithm["weights"] == "uniform"


def test_without_a_label_the_word_is_its_own():
    assert one("fedprox:mu=0.1").label == "fedprox:mu=0.1"


def test_a_stage_is_appended_to_the_algorithms_own():
    stages = one("ft=fedavg+clip:norm=2.0+finetune:max_epochs=5").run.make_stages()
    assert [stage.name for stage in stages] == ["mean", "clip", "finetune"]


def test_an_algorithm_and_a_stage_are_also_named_by_their_place():
    word = "gc=edgefl.learn.algorithms.fedgc:FedGC:sgc=false+edgefl.learn.algorithms.fedgc:Sgc:margin=0.5"
    user_code.allow(word)
    variant = one(word)
    algorithm, stages = variant.run.make_algorithm(), variant.run.make_stages()
    assert (variant.label, algorithm.name, algorithm.sgc, algorithm.lr) == ("gc", "fedgc", False, 0.2)
    assert [(stage.name, getattr(stage, "margin", None)) for stage in stages] == [("mean", None), ("sgc", 0.5)]


def test_a_key_with_a_dot_is_any_key_of_the_run_file():
    assert one("up=upcycled:run.rounds=6").run.run.rounds == 6


def test_another_algorithm_does_not_take_over_the_pipeline_of_the_file():
    table = {**BASE, "aggregation": [{"name": "mean"}, {"name": "clip"}]}
    other, same = variants("fedavg,fedprox", table, "run.toml")
    assert [stage.name for stage in other.run.make_stages()] == ["mean"]
    assert [stage.name for stage in same.run.make_stages()] == ["mean", "clip"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fedavgg", "did you mean 'fedavg'"),
        ("fedprox:mu", "write 'mu' as key=value"),
        ("fedprox:mmu=1", "unknown key 'mmu'"),
        ("nowhere.sgd:Twice", "No module named 'nowhere'"),
        ("edgefl.learn.algorithms.fedgc:FedGCC", "did you mean 'FedGC'"),
        ("edgefl.learn.algorithms.fedgc:pulls", "is no dataclass"),
        ("edgefl.learn.algorithms.fedgc:FedGC:sgc", "write 'sgc' as key=value"),
        ("fedavg,fedavg", "stands there twice"),
        ("fedavg+men", "did you mean 'mean'"),
        ("fedavg+clip:run.rounds=3", "before the first '\\+'"),
        (" , ", "is empty"),
    ],
)
def test_a_wrong_word_is_named(words: str, message: str):
    user_code.allow(words)
    with pytest.raises(ConfigError, match=message):
        variants(words, BASE, "run.toml")


def test_a_comparison_plays_to_the_end_whatever_the_target():
    run = one("fedavg:run.target_accuracy=0.5").run
    assert seeded(run, 9).run.target_accuracy is None
    assert seeded(run, 9).run.seed == 9


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────


def played(label: str, seed: int, accuracy: list[float], **more: Any) -> PlayedRun:
    rounds = tuple(
        Round(
            i + 1,
            scores={"accuracy": a},
            forgetting=0.1 * i,
            bytes_up=500_000,
            bytes_down=1_500_000,
            per_class=(a, None),
            **{"devices": 4, **more},
        )
        for i, a in enumerate(accuracy)
    )
    end = Done("run", "fedavg", len(rounds), cpu_seconds=1.0 + seed, virtual_seconds=more.get("virtual_seconds"))
    return PlayedRun(label, seed, rounds, end)


def test_a_line_has_best_last_mean_of_five_rounds_to_levels_forgetting_and_traffic():
    (line,) = scores([played("a", 0, [0.2, 0.6, 0.9, 0.5, 0.5, 0.5])], levels=(0.5, 0.9, 0.95))
    assert (line.best, line.last, line.last_five) == pytest.approx((0.9, 0.5, 0.6))
    assert line.rounds_to == (2, 3, None)
    assert line.forgetting == pytest.approx(0.3)  # the first round has nothing to forget
    assert (line.megabytes, line.cpu_seconds, line.virtual_seconds) == (12.0, 1.0, None)
    assert line.megabytes_to == (4.0, 6.0, None)


def test_a_free_round_belongs_to_the_round_before_it_and_is_counted_apart():
    accuracy = [0.2, 0.4, 0.3, 0.6, 0.5, 0.9]
    rounds = tuple(
        Round(
            i + 1,
            devices=0 if i % 2 else 5,
            scores={"accuracy": a},
            forgetting=9.0,  # from half to half: of no use here
            per_class=(a, 1 - a, None),
            bytes_up=0 if i % 2 else 1_000_000,
        )
        for i, a in enumerate(accuracy)
    )
    run = PlayedRun("up", 0, rounds, Done("run", "upcycled", 6, cpu_seconds=1.0))
    (line,) = scores([run], levels=(0.3, 0.6, 0.95))
    assert run.judged == [0.4, 0.6, 0.9]
    assert line.rounds_to == (1, 2, None)
    assert line.megabytes_to == (1.0, 2.0, None)
    assert line.megabytes == 3.0
    assert line.free_rounds == 3
    assert line.forgetting == pytest.approx((0.2 + 0.3) / 2 / 2)  # the second class loses .2, then .3
    assert "free rounds" in text(scores([run], ()), ()).splitlines()[0]
    assert "free rounds" not in text(scores([played("a", 0, [0.5])], ()), ())


def test_the_median_stands_before_its_seeds_and_never_is_beyond_every_round():
    runs = [played("a", 0, [0.5, 0.7]), played("a", 1, [0.1, 0.2]), played("a", 2, [0.4, 0.6])]
    lines = scores(runs, levels=(0.5,))
    assert [line.seed for line in lines] == [MEDIAN, 0, 1, 2]
    assert lines[0].best == 0.6
    assert lines[0].rounds_to == (2,)
    assert scores(runs[1:], levels=(0.5,))[0].rounds_to == (None,)


def test_a_run_that_failed_is_a_row_of_its_own_and_no_part_of_the_median():
    runs = [
        played("a", 0, [0.5]),
        FailedRun("a", 1, "it diverged"),
        played("a", 2, [0.7]),
        FailedRun("b", 0, "no data"),
    ]
    lines = scores(runs, levels=())
    assert [(line.label, line.seed) for line in lines] == [("a", MEDIAN), ("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert lines[0].best == 0.6
    rows = text(lines, ()).splitlines()
    assert [row.count("failed") for row in rows[2:]] == [0, 0, 1, 0, 1]
    assert len({row.count("|") for row in rows}) == 1


def test_projections_that_were_given_up_have_a_column_where_there_are_any():
    fine = played("a", 0, [0.5, 0.7], stages={"sgc": {"infeasible": 0, "largest": 3.0}})
    stuck = played("b", 0, [0.5, 0.7], stages={"sgc": {"infeasible": 2}, "memory": {"unsolved": 1, "shrunk": 0.4}})
    assert "unsolved" not in text(scores([fine], ()), ())
    rows = text(scores([fine, stuck], ()), ()).splitlines()
    assert rows[0].endswith("unsolved |")
    assert [row.split("|")[-2].strip() for row in rows[2:]] == ["0", "3"]


def test_answers_that_guards_scaled_down_have_a_column_where_there_are_any():
    untouched = played("a", 0, [0.5, 0.7], bounded={})
    touched = played("b", 0, [0.5, 0.7], bounded={"d1": {"delta": 0.5}, "d2": {"weight": 0.9}})
    assert "bounded" not in text(scores([untouched], ()), ())
    rows = text(scores([untouched, touched], ()), ()).splitlines()
    assert rows[0].endswith("bounded |")
    assert [row.split("|")[-2].strip() for row in rows[2:]] == ["0", "4"], "two in each of two rounds"


def test_the_table_is_markdown_with_a_row_for_each_line():
    lines = scores([played("a|b", 0, [0.5, 0.7], virtual_seconds=60.0)], levels=(0.5,))
    rows = text(lines, (0.5,)).splitlines()
    assert len(rows) == 3
    assert "| to 50% | MB to 50% |" in rows[0]
    assert "virtual s" in rows[0]


@pytest.mark.parametrize(("sent", "told"), [(None, "-"), (0.0021, "0.0021"), (0.999, "1"), (12.34, "12.3")])
def test_the_traffic_of_a_small_model_is_not_nothing(sent: float | None, told: str):
    assert _megabytes(sent) == told


# ── playing ──────────────────────────────────────────────────────────────────────────────────────────────────


def pretend(run: RunFile, _root: Path | None, tell: Tell) -> None:
    """A run whose accuracy is its seed and learning rate."""
    match run.algorithm["lr"]:
        case 2.0:
            raise RunError("it diverged")
        case 3.0:
            os.kill(os.getpid(), signal.SIGKILL)
        case 4.0:
            raise ValueError("of no use")
    for round in range(1, run.run.rounds + 1):
        tell(Round(round, devices=2, scores={"accuracy": run.run.seed + run.algorithm["lr"]}))
    tell(Done(run.run.name, "fedavg", run.run.rounds))


class Watching:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.rounds, self.ends = Counter[tuple[str, int]](), list[tuple[str, int, bool]]()

    def advanced(self, label: str, seed: int) -> None:
        self.rounds[label, seed] += 1

    def ended(self, outcome: Outcome, *, before: bool) -> None:
        self.ends.append((outcome.label, outcome.seed, before))


@pytest.mark.parametrize("workers", [1, 2])
def test_runs_come_back_by_variant_and_seed_however_many_are_played_at_a_time(workers: int):
    watching = Watching()
    outcomes = play_all(
        variants("a=fedavg,b=fedavg:lr=0.5", BASE, "run.toml"), 2, None, pretend, workers=workers, watcher=watching
    )
    assert [(p.label, p.seed, p.judged) for p in outcomes if isinstance(p, PlayedRun)] == [
        ("a", 4, [4.2] * 3),
        ("a", 5, [5.2] * 3),
        ("b", 4, [4.5] * 3),
        ("b", 5, [5.5] * 3),
    ]
    assert watching.rounds == {(label, seed): 3 for label in "ab" for seed in (4, 5)}
    assert sorted(watching.ends) == [(label, seed, False) for label in "ab" for seed in (4, 5)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_says_why_and_the_others_go_on(workers: int):
    words = "a=fedavg,b=fedavg:lr=2.0,c=fedavg:lr=4.0,d=fedavg"
    outcomes = play_all(variants(words, BASE, "run.toml"), 1, None, pretend, workers=workers)
    assert [type(outcome) for outcome in outcomes] == [PlayedRun, FailedRun, FailedRun, PlayedRun]
    assert outcomes[1] == FailedRun("b", 4, "it diverged")
    assert outcomes[2] == FailedRun("c", 4, "ValueError: of no use (--log debug shows where)")


def mistaken(run: RunFile, root: Path | None, tell: Tell) -> None:
    """A run whose mistake shows when it is played."""
    if run.algorithm["lr"] == 5.0:
        raise ConfigError("there are no public data")
    pretend(run, root, tell)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_mistake_ends_the_comparison_before_anything_is_played(workers: int):
    watching = Watching()
    asked = variants("a=fedavg,b=fedavg:lr=5.0,c=fedavg:lr=5.0", BASE, "run.toml")
    with pytest.raises(ConfigError, match=r"^b: there are no public data$"):
        play_all(asked, 2, None, pretend, workers=workers, watcher=watching, attempt=mistaken)
    assert not watching.rounds
    assert not watching.ends
    with pytest.raises(ConfigError, match=r"^[bc]: there are no public data$"):  # and what no attempt could find, later
        play_all(asked, 2, None, mistaken, workers=workers)


def test_data_and_graphs_are_prepared_once_for_each_seed_and_way_of_stepping():
    from edgefl.job.run import job as jobs

    preparations = list[tuple[str, int]]()

    def prepare(run: RunFile, root: Path | None) -> Any:
        preparations.append((run.algorithm["name"], run.run.seed))
        return jobs.prepare(run, root)

    preparation = Preparation(prepare)
    words = "fedavg,mifa:wire.codec=float16:rounds.cohort=3,fedprox,fedprox:mu=0.5"
    table = {**BASE, "task": {**BASE["task"], "backend": "onnx"}}
    one_run, other, banded, tighter = (v.run for v in variants(words, table, "run.toml"))
    (first, held), (second, again) = preparation(one_run, None), preparation(other, None)
    assert held is again
    assert first.model is second.model
    assert (second.run, second.algorithm.name, second.up.name) == (other, "mifa", "float16")
    (pulled, once_more), (harder, _) = preparation(banded, None), preparation(tighter, None)
    assert once_more is held
    assert pulled.public is held.public
    assert pulled.test is held.test
    assert pulled.graphs == jobs.prepare(banded)[0].graphs != first.graphs  # as if it were played alone
    assert harder.model is pulled.model
    (third,) = variants("fedavg:wire.up.codec=topk:wire.up.share=0.1:selection.name=fresh", table, "run.toml")
    few, same = preparation(third.run, None)
    assert same is held
    assert (few.up, few.down.name) == (TopK(share=0.1), "float32")
    preparation(seeded(one_run, 9), None)
    preparation(seeded(other, 9), None)
    assert preparations == [("fedavg", 4), ("fedprox", 4), ("fedavg", 9)]
    wider = variants("fedavg:task.public=0.2", table, "run.toml")[0].run
    preparation(seeded(wider, 9), None)
    assert preparations[-1] == ("fedavg", 9)
    assert len(preparations) == 4


def test_a_process_that_dies_takes_no_other_run_with_it():
    words = "a=fedavg:lr=3.0,b=fedavg:lr=3.0,c=fedavg,d=fedavg"
    outcomes = play_all(variants(words, BASE, "run.toml"), 1, None, pretend, workers=2)
    assert [type(outcome) for outcome in outcomes] == [FailedRun, FailedRun, PlayedRun, PlayedRun]
    assert outcomes[1] == FailedRun("b", 4, "its process died (SIGKILL)")


# ── pictures and page ────────────────────────────────────────────────────────────────────────────────────────


def test_curves_begin_with_the_untrained_model_and_those_that_coincide_differ_in_width_and_marks():
    from matplotlib.figure import Figure

    first = Round(0, scores={"accuracy": 0.1})
    runs = [replace(played(label, seed, [0.2, 0.5, 0.7]), first=first) for label in "ab" for seed in (0, 1)]
    over_rounds, over_bytes = curves(runs)[:2]
    axes = Figure().subplots()
    bundle(axes, by_label(runs, over_rounds.points))
    one, other = axes.get_lines()
    assert [tuple(point) for point in one.get_xydata()] == [(0, 0.1), (1, 0.2), (2, 0.5), (3, 0.7)]
    assert one.get_linewidth() > other.get_linewidth()
    assert one.get_markevery() != other.get_markevery()
    assert len(axes.collections) == 2, "a band each"
    assert list(over_bytes.points(runs[0])[0]) == [0, 2.0, 4.0, 6.0]


def test_a_run_that_is_judged_now_and_then_has_points_only_there():
    rounds = tuple(
        Round(i, devices=2, scores={"accuracy": 0.1 * i} if i % 2 == 0 else {}, per_class=(0.1 * i,), bytes_up=10**6)
        for i in range(1, 7)
    )
    run = PlayedRun("a", 0, rounds, Done("run", "fedavg", 6, cpu_seconds=1.0))
    assert (run.numbers, run.summed("bytes_up")) == ([2, 4, 6], [2e6, 4e6, 6e6])
    (line,) = scores([run], levels=(0.35,))
    assert (line.rounds_to, line.megabytes_to, line.last) == ((4,), (4.0,), pytest.approx(0.6))


def test_every_picture_is_a_png_and_the_page_holds_them_all_by_itself(tmp_path: Path):
    runs = [played(label, seed, [0.2, 0.5, 0.7], virtual_seconds=30.0) for label in ("a", "<b>") for seed in (0, 1)]
    pictures = draw(runs, tmp_path, "title")
    assert {path.name for path in pictures.values()} == {
        "accuracy.png",
        "bytes.png",
        "forgetting.png",
        "time.png",
        "classes.png",
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures.values())
    lines = scores([*runs, FailedRun("<c>", 0, "<why>")], ())
    html = page("t", "edgefl compare", lines=lines, levels=(), pictures=pictures, runs={"<b>": "{}"})
    assert html.count("data:image/png;base64,") == len(pictures)
    assert "&lt;b&gt;" in html
    assert "&lt;c&gt;, seed 0: &lt;why&gt;" in html
    assert html.count('class="best"') == 6  # both are equally good: best, last and last five of each
    assert not re.search(r"<script|<b>|<c>|<why>|https?://", html)
