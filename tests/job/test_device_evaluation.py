"""Evaluation on devices: counts add up to those of all samples together, whoever lies, and end a run as scores do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.base.errors import ConfigError, WireError
from edgefl.base.events import Asked, Done, Evaluated, Evaluating, Fact, Round
from edgefl.base.schedule import Schedule
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.learn.contract import Counts, Seen
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.held_back import set_aside
from edgefl.learn.evaluation import counts, fleet, metrics
from edgefl.learn.evaluation.judged_rounds import judged_rounds
from edgefl.learn.losses import LOSSES
from edgefl.sim.loop import simulate


class Told:
    """A model that says of each sample what the sample says: its outputs are its features."""

    def logits(self, _w: Any, x: Any) -> Any:
        return x


def classified(seed: int, samples: int, classes: int) -> Dataset:
    rng = np.random.default_rng(seed)
    return Dataset(
        rng.standard_normal((samples, classes)).astype(np.float32), rng.integers(0, classes, samples), classes
    )


def predicted(seed: int, samples: int, targets: int) -> Dataset:
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((samples, targets)).astype(np.float32)
    x = (y + 0.3 * rng.standard_normal(y.shape)).astype(np.float32)
    return Dataset(x, y if targets > 1 else y[:, 0], 0)


def seen(data: Dataset) -> Seen:
    loss = LOSSES["cross_entropy" if data.classes else "squared_error"]
    return Seen(counts.count(Told(), np.zeros(0), data, loss))


def joined(parts: list[Dataset]) -> Dataset:
    x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y"))
    return replace(parts[0], x=x, y=y)


# ── counts of many are those of all ──────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 700), min_size=1, max_size=6), st.sampled_from([2, 3, 10, 100, 101]), st.data())
def test_the_fleet_s_figures_are_those_of_all_samples_together(sizes: list[int], classes: int, data: st.DataObject):
    parts = [classified(i, size, classes) for i, size in enumerate(sizes)]
    order = data.draw(st.permutations(range(len(parts))))
    told = fleet.evaluated({f"d{i}": seen(parts[i]) for i in order}, classes=classes)
    whole = metrics.evaluate(Told(), np.zeros(0), joined(parts), LOSSES["cross_entropy"])
    assert told["scores"]["accuracy"] == whole.accuracy
    assert told["scores"]["balanced_accuracy"] == pytest.approx(whole.balanced_accuracy)
    assert told["scores"]["loss"] == pytest.approx(whole.loss, rel=1e-4)
    assert told["samples"] == sum(sizes)
    per_class = [None if np.isnan(share) else round(float(share), 6) for share in whole.per_class]
    assert list(told["per_class"]) == per_class
    if classes <= counts.MATRIX:
        hits = [row[i] for i, row in enumerate(told["confusion"])]
        assert sum(map(sum, told["confusion"])) == sum(sizes)
        assert sum(hits) == round(told["scores"]["accuracy"] * sum(sizes))
    else:
        assert "confusion" not in told


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 700), min_size=1, max_size=6), st.sampled_from([1, 3]))
def test_so_are_those_of_a_regression(sizes: list[int], targets: int):
    parts = [predicted(i, size, targets) for i, size in enumerate(sizes)]
    told = fleet.evaluated({f"d{i}": seen(part) for i, part in enumerate(parts)}, classes=0)
    whole = metrics.evaluate(Told(), np.zeros(0), joined(parts), LOSSES["squared_error"])
    for name, value in whole.scores.items():
        few = 1e-4 if name == "loss" else 1e-5  # of a loss four digits are told
        assert told["scores"][name] == pytest.approx(value, rel=few, abs=1e-5)
    assert list(told["scores"]) == list(whole.scores) == ["loss", "rmse", "mae", "r2"]
    for one, other in zip(told["per_target"] or (), whole.per_target or (), strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-5)


@given(st.permutations(range(6)))
def test_the_order_in_which_answers_came_changes_no_bit(order: list[int]):
    whole = {f"d{i}": seen(classified(i, 50 + 200 * i, 4)) for i in range(6)}
    shuffled = {f"d{i}": whole[f"d{i}"] for i in order}
    assert fleet.evaluated(shuffled, classes=4, cap=2.0) == fleet.evaluated(whole, classes=4, cap=2.0)


def test_the_spread_is_the_median_and_the_mean_of_the_worst_tenth():
    assert fleet.spread([0.1 * i for i in range(1, 21)], lower=False) == pytest.approx(
        {"median": 1.05, "worst_tenth": 0.15}
    )
    assert fleet.spread([3.0, 1.0, 2.0], lower=True) == {"median": 2.0, "worst_tenth": 3.0}
    assert fleet.spread([0.4, 0.6], lower=False) == {}, "of two it would be about somebody"


def test_each_device_is_told_by_name_only_where_the_run_says_so():
    here = {"a": seen(classified(1, 20, 3)), "b": seen(classified(2, 30, 3))}
    assert "per_device" not in fleet.evaluated(here, classes=3)
    told = fleet.evaluated(here, classes=3, per_device=True)["per_device"]
    assert {name: row["samples"] for name, row in told.items()} == {"a": 20, "b": 30}


# ── who lies ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_whoever_claims_more_samples_than_anybody_has_counts_no_more_than_the_cap():
    honest = {
        f"d{i}": seen(Dataset(np.eye(2, dtype=np.float32)[[0] * 10], np.zeros(10, np.int64), 2)) for i in range(4)
    }
    lie = Seen(Counts(np.array([[0, 2**31 - 1], [0, 0]]), 0.0, np.zeros((4, 0))))
    told = fleet.evaluated({**honest, "liar": lie}, classes=2, cap=5.0)
    assert told["scores"]["accuracy"] == pytest.approx(40 / 90), "five times the usual ten, among four who are right"
    assert told["samples"] == 90


GOOD = {"table": np.array([[3, 1], [0, 4]]), "loss": 2.0, "sums": np.zeros((4, 0))}
REAL = {"table": np.array([[8]]), "loss": 2.0, "sums": np.array([[2.0], [1.0], [4.0], [3.0]])}


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (GOOD, {"table": np.array([[3, -1], [0, 4]])}),
        (GOOD, {"table": np.zeros((2, 2), np.int64)}),
        (GOOD, {"table": np.array([[3, 2**40], [0, 4]])}),
        (GOOD, {"table": np.ones((3, 3), np.int64)}),
        (GOOD, {"loss": np.nan}),
        (GOOD, {"loss": 1e300}),
        (GOOD, {"sums": np.zeros((4, 1))}),
        (REAL, {"sums": np.array([[-2.0], [1.0], [4.0], [3.0]])}),
        (REAL, {"sums": np.array([[2.0], [0.1], [4.0], [3.0]])}),  # 8 gaps of 0.25 on average have squares of 0.5
        (REAL, {"sums": np.array([[2.0], [1.0], [40.0], [3.0]])}),
        (REAL, {"sums": np.array([[2.0], [np.inf], [4.0], [3.0]])}),
    ],
)
def test_counts_that_nobody_can_have_counted_are_refused(good: dict[str, Any], bad: dict[str, Any]):
    classes = 2 if good is GOOD else 0
    counts.check(Seen(Counts(**good), Counts(**good)), classes, 1)
    with pytest.raises(WireError) as refused:
        counts.check(Seen(Counts(**{**good, **bad})), classes, 1)
    assert refused.value.code == "update.counts"


def test_both_models_must_have_been_shown_the_same_samples():
    other = Counts(**{**GOOD, "table": np.array([[3, 2], [0, 4]])})
    with pytest.raises(WireError, match="same samples"):
        counts.check(Seen(Counts(**GOOD), other), 2, 1)


@pytest.mark.parametrize("missing", ["table", "loss", "sums"])
def test_counts_travel_whole_or_not_at_all(missing: str):
    arrays = counts.arrays(Counts(**GOOD))
    assert counts.read(arrays).table.tolist() == GOOD["table"].tolist()
    with pytest.raises(WireError, match="a table, a loss and sums"):
        counts.read({name: array for name, array in arrays.items() if name != missing})
    with pytest.raises(WireError, match="a table, a loss and sums"):
        counts.read({**arrays, missing: np.zeros(3, np.float32)})


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_round_is_for_is_a_function_of_its_number():
    judged, plain = Schedule(3, evaluates=True), Schedule(3)
    assert [judged.purpose(round) for round in range(1, 5)] == ["train", "train", "train", "evaluate"]
    assert (judged.follows(3), plain.follows(3), plain.follows(2)) == (True, False, True)


def a_run(**more: Any) -> RunFile:
    table: dict[str, Any] = {
        "run": {"rounds": 6, "seed": 1, **more.pop("run", {})},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "partition": {"kind": "iid", "devices": 3},
            **more.pop("task", {}),
        },
        "algorithm": {"name": "fedavg", "lr": 0.1, "batches": 2, "momentum": 0.0},
        "evaluation": {"on": "devices", **more.pop("evaluation", {})},
        **more,
    }
    return parse(RunFile, table, "test", environment={})


def played(run: RunFile) -> tuple[jobs.RunState, list[Fact]]:
    told: list[Fact] = []
    job, held = jobs.prepare(run)
    names = jobs.device_names(len(held.devices))
    return simulate(job, dict(zip(names, held.devices, strict=True)), told.append), told


def of(told: list[Fact], kind: type[Fact]) -> list[Any]:
    return [fact for fact in told if isinstance(fact, kind)]


def test_every_model_is_evaluated_from_the_first_to_the_last_and_the_last_by_a_round_of_its_own():
    run_state, told = played(a_run(run={"rounds": 3}))
    assert [fact.round for fact in of(told, Evaluated)] == [0, 1, 2, 3]
    assert [(fact.round, fact.purpose) for fact in of(told, Asked)] == [
        (1, "train"),
        (2, "train"),
        (3, "train"),
        (4, "evaluate"),
    ]
    last, done = of(told, Evaluated)[-1], of(told, Done)[0]
    assert (done.rounds, done.accuracy, done.loss) == (3, last.accuracy, last.loss)
    assert not last.local_scores, "nobody trained"
    assert all(fact.local_scores["loss"] < fact.loss for fact in of(told, Evaluated)[:-1]), "training helps at home"
    assert all(report.loss is None for report in of(told, Round))
    assert [report.accuracy for report in judged_rounds(told)] == [fact.accuracy for fact in of(told, Evaluated)[1:]]
    assert of(told, Evaluating)[0].on == "devices"
    total = sum(fact.bytes_up for fact in (*of(told, Round), *of(told, Evaluated)))
    assert total == done.bytes_up
    assert run_state.judged == replace(last, at=0.0, bytes_up=0, bytes_down=0)


def test_a_run_that_asks_less_often_still_has_its_last_model_evaluated():
    _, told = played(a_run(run={"rounds": 5}, evaluation={"every": 2}))
    assert [fact.round for fact in of(told, Evaluated)] == [0, 2, 4, 5]


def test_evaluation_on_devices_changes_no_model_but_by_what_is_set_aside():
    both, _ = played(a_run(evaluation={"on": "both"}))
    devices, _ = played(a_run())
    assert both.sha256() == devices.sha256()
    plain, told = played(a_run(evaluation={"on": "coordinator"}))
    assert plain.sha256() != devices.sha256(), "a fifth of each part was not trained on"
    assert not of(told, Evaluated)


def test_a_run_ends_with_the_first_model_that_devices_find_good_enough():
    whole, told = played(a_run(run={"rounds": 6}))
    level = of(told, Evaluated)[3].loss
    run_state, told = played(a_run(run={"rounds": 6, "target_loss": level}))
    done = of(told, Done)[0]
    assert (run_state.round, done.rounds, done.rounds_to_target, done.stopped) == (3, 3, 3, "the target is reached")
    assert done.loss == level
    assert [report.round for report in of(told, Round)] == [1, 2, 3], "the round that told so is not merged"
    assert run_state.sha256() != whole.sha256()


@pytest.mark.parametrize("on", ["devices", "coordinator"])
def test_a_run_ends_when_no_model_was_better_for_a_while(on: str):
    """With such a step the loss only grows."""
    worse = {"name": "fedavg", "lr": 30.0, "batches": 2, "momentum": 0.0}
    run = a_run(run={"rounds": 40}, evaluation={"on": on, "patience": 2}, algorithm=worse)
    run_state, told = played(run)
    done = of(told, Done)[0]
    assert run_state.best_round is not None
    assert run_state.round == run_state.best_round + 2 < 40
    assert done.stopped == "no model was better for 2 rounds"
    assert done.best_round == run_state.best_round


def test_nobody_is_asked_to_show_fewer_samples_than_the_run_says():
    _, told = played(a_run(run={"rounds": 2}, evaluation={"least": 10_000}))
    assert [(fact.devices, fact.silent, fact.accuracy) for fact in of(told, Evaluated)] == [(0, 3, None)] * 3
    assert of(told, Done)[0].accuracy is None


def test_a_regression_is_judged_by_its_errors():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 4)).astype(np.float32)
    data = {f"d{i}": Dataset(x[i::4], x[i::4] @ np.arange(4, dtype=np.float32), 0) for i in range(4)}
    table = {
        "run": {"rounds": 6},
        "task": {"data": "none", "sample": [4], "classes": 0, "loss": "squared_error", "model": "softmax"},
        "algorithm": {"name": "fedavg", "lr": 0.05, "epochs": 2},
        "rounds": {"cohort": 4},
    }
    run, told = parse(RunFile, table, "test", environment={}), list[Fact]()
    run_state = simulate(jobs.prepare(run)[0], data, told.append)
    first, *_, last = of(told, Evaluated)
    assert last.rmse < 0.5 * first.rmse
    assert last.r2 > 0.7
    assert (last.accuracy, last.confusion, last.median is not None) == (None, None, True)
    assert of(told, Done)[0].best_score["loss"] == run_state.best == min(fact.loss for fact in of(told, Evaluated))


# ── what is set aside ────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_set_aside_of_a_trial_s_part_is_never_trained_on_and_always_the_same():
    data = classified(1, 100, 3)
    train, aside = set_aside(data, 0.2, seed=5, device="pi")
    again = set_aside(data, 0.2, seed=5, device="pi")
    rows = {row.tobytes() for row in train.x}
    assert (len(train), len(aside)) == (80, 20)
    assert not rows & {row.tobytes() for row in aside.x}
    assert np.array_equal(again[1].x, aside.x)
    assert not np.array_equal(set_aside(data, 0.2, seed=5, device="other")[1].x, aside.x)
    assert [len(part) for part in set_aside(classified(1, 1, 3), 0.9, seed=5, device="pi")] == [1, 0]


# ── what does not go together ────────────────────────────────────────────────────────────────────────────────

PRIVATE = {"mechanism": "output", "clip": 5.0, "sigma": 0.1, "noise": "seeded"}
NOTHING = {"data": "none", "sample": [60], "classes": 10, "partition": None}


def test_counts_are_not_sent_beside_privacy_unless_somebody_says_so():
    private = {"algorithm": {"name": "fedprox"}, "privacy": PRIVATE}
    with pytest.raises(ConfigError, match=r"\[privacy\] does not cover"):
        a_run(**private)
    assert a_run(**private, evaluation={"beside_privacy": True}).judge == "devices"
    unasked = a_run(**private, task=NOTHING, rounds={"cohort": 3}, evaluation={"on": None})
    assert unasked.judge == "coordinator", "nobody evaluates, rather than somebody tells"


def test_without_data_at_the_coordinator_devices_judge():
    assert a_run(task=NOTHING, rounds={"cohort": 3}, evaluation={"on": None}).judge == "devices"
    assert a_run(evaluation={"on": None}).judge == "coordinator"
    for on in ("coordinator", "both"):
        with pytest.raises(ConfigError, match="nothing to evaluate on"):
            a_run(task=NOTHING, rounds={"cohort": 3}, evaluation={"on": on})


def test_where_models_forget_is_seen_on_the_coordinator_s_data_only():
    with pytest.raises(ConfigError, match=r"evaluation\.on = 'both'"):
        a_run(run={"forgetting": True})
    assert a_run(run={"forgetting": True}, evaluation={"on": "both"}).judge == "both"
