"""Which model is the best, and when patience ends: by what the task is judged by."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from coordinator.durable import checkpoint
from edgefl.base.events import Round
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import reporting
from edgefl.job.run.job import Job, RunState
from edgefl.learn.evaluation import wording
from edgefl.learn.evaluation.metrics import Evaluation
from edgefl.learn.tasks.form import Form
from edgefl.system.memory_disk import MemoryDisk
from edgefl.watch.overview.round_progress import better

TABLE: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 9},
    "task": {"data": "synthetic", "model": "softmax", "backend": "torch", "partition": {"kind": "iid", "devices": 3}},
}


@pytest.fixture(scope="module")
def job() -> Job:
    return jobs.prepare(parse(RunFile, {**TABLE, "evaluation": {"patience": 2}}, "run.toml"))[0]


def course(job: Job, seen: list[Evaluation], monkeypatch: pytest.MonkeyPatch) -> Iterator[RunState]:
    """The states of a run whose models are seen so."""
    state = RunState(0, job.start)
    for round, evaluation in enumerate(seen, 1):
        monkeypatch.setattr(jobs.metrics, "evaluate", lambda *_, seen=evaluation: seen)
        state = jobs.look_now(job, replace(state, round=round), None)
        yield state


def seen(loss: float, **scores: float | None) -> Evaluation:
    return Evaluation({**scores, "loss": loss})


def test_the_best_segmentation_has_the_highest_iou_and_not_the_lowest_loss(job: Job, monkeypatch: Any):
    each = [seen(0.9, mean_iou=0.3), seen(0.5, mean_iou=0.6), seen(0.4, mean_iou=0.5), seen(0.3, mean_iou=0.55)]
    *_, before, last = course(job, each, monkeypatch)
    assert (last.measure, last.best, last.best_round) == ("mean_iou", 0.6, 2)
    assert not jobs.finished(job, before)
    assert jobs.finished(job, last), "two rounds without a better one, though the loss fell"
    done = reporting.summary(job, last, bytes_up=0, bytes_down=0)
    assert done.best_score == {"mean_iou": 0.6}
    assert wording.best(done) == "best mean IoU 60.0% after round 2"


def test_perplexity_is_the_better_the_lower_and_what_is_not_known_is_passed_over(job: Job, monkeypatch: Any):
    each = [seen(0.9, perplexity=30.0), seen(0.5, perplexity=20.0), seen(0.1, perplexity=None)]
    *_, last = course(job, each, monkeypatch)
    assert (last.best, last.best_round) == (20.0, 2)


def test_accuracy_and_loss_decide_as_ever(job: Job, monkeypatch: Any):
    each = [
        Evaluation({"accuracy": 0.5, "loss": 1.0}),
        Evaluation({"accuracy": 0.7, "loss": 2.0}),
        Evaluation({"accuracy": 0.7, "loss": 0.1}),
    ]
    *_, last = course(job, each, monkeypatch)
    assert (last.measure, last.best, last.best_round) == ("accuracy", 0.7, 2)
    *_, last = course(job, [Evaluation({"loss": 2.0}), Evaluation({"loss": 1.0})], monkeypatch)
    assert (last.measure, last.best, last.best_round) == ("loss", 1.0, 2)


def test_the_page_calls_the_same_round_the_best(job: Job):
    rounds = [Round(1, scores={"f1": 0.3, "loss": 0.9}), Round(2, scores={"f1": 0.6, "loss": 0.5})]
    best = None
    for one in (*rounds, Round(3), Round(4, scores={"f1": 0.5, "loss": 0.1})):
        best = better(best, one.round, one)
    assert best is not None
    assert (best.round, best.measure, best.value) == (2, "f1", 0.6)


def test_a_checkpoint_of_before_whose_best_was_a_loss_is_looked_at_anew(job: Job, monkeypatch: Any):
    kind, disk = replace(job, form=Form(kind="segmentation")), MemoryDisk()
    (state,) = course(kind, [seen(0.9, mean_iou=0.3)], monkeypatch)
    checkpoint.save(disk, kind, checkpoint.Checkpoint(replace(state, measure=None, best=0.1), (), 0, 0))
    saved = checkpoint.latest(disk, kind)
    assert saved is not None
    assert (saved.run_state.measure, saved.run_state.best) == ("mean_iou", 0.3)
