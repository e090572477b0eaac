"""Merging says at once that there is a new model; what it costs to look at it comes after."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from coordinator.decide.vocabulary import Merge
from coordinator.durable import checkpoint
from coordinator.durable.checkpoint_writer import Saving, Unstuck
from coordinator.durable.merge_round import RoundAnswers
from coordinator.shell.merging import DeviceModelsEvaluated, MergeResult, Merging, PreparedJob, preparing
from edgefl.base.errors import EdgeflError, StoreError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.job.run.work import unpack_broadcast
from edgefl.learn.contract import Update
from edgefl.system.background import Work
from edgefl.system.clock import SystemClock


def the_job(name: str = "fedavg", **run: Any) -> Job:
    table = {
        "run": {"rounds": 4, **run},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "backend": "torch",
            "partition": {"kind": "iid", "devices": 2},
        },
        "algorithm": {"name": name},
    }
    return jobs.prepare(parse(RunFile, table, "test", environment={}))[0]


class Now:
    """A background that does what it is given at once, up to so many pieces of work."""

    def __init__(self, most: int = 99) -> None:
        self.events: list[Any] = []
        self.most = most

    def start(self, work: Work) -> None:
        if self.most > 0:
            self.most -= 1
            work(self.put)

    def put(self, event: Any) -> None:
        self.events.append(event)
        after = (event.save, *event.looks) if isinstance(event, MergeResult) else ()
        for work in filter(None, after):
            self.start(work)


MERGE = Merge(1, {}, {}, population=2)


def merging(job: Job) -> Merging:
    """Two updates, which forget different things."""
    run_state = jobs.begin(job)
    rng = np.random.default_rng(0)
    deltas = [rng.normal(size=len(run_state.params)).astype(np.float32) for _ in range(2)]
    updates = {f"device-{i}": Update(delta, 1.0, 1) for i, delta in enumerate(deltas)}
    return Merging(job, run_state, RoundAnswers(updates, updates), MERGE)


def merged(job: Job, most: int = 99) -> list[Any]:
    """What is said while they are merged."""
    now = Now(most)
    now.start(partial(merging(job).work, None, SystemClock(), Saving()))
    return now.events


def test_a_merge_is_told_with_its_report():
    (one,) = merged(the_job())
    assert isinstance(one, MergeResult)
    assert one.reports[0].local_forgetting is None


def test_nobody_waits_for_the_look_at_every_device_but_the_report():
    first, second = merged(the_job(forgetting=True))
    assert isinstance(first, MergeResult)
    assert first.reports == ()
    assert isinstance(second, DeviceModelsEvaluated)
    (report,) = second.reports
    assert 0 < report.local_forgetting <= 1
    assert 0 < report.aggregation_forgetting <= 1


def test_a_round_that_needed_nobody_forgot_nothing_in_training():
    first, second = merged(the_job("upcycled", forgetting=True))
    assert isinstance(first, MergeResult)
    assert first.next_model.run_state.round == 2
    assert isinstance(second, DeviceModelsEvaluated)
    assert [report.local_forgetting is None for report in second.reports] == [False, True]


def test_whoever_wants_an_end_waits_for_the_look_at_one_device_at_most():
    (first,) = merged(the_job(forgetting=True), most=2)
    assert isinstance(first, MergeResult)
    assert len(first.looks) == 3


def test_what_cannot_be_merged_is_an_error():
    job = the_job()
    with pytest.raises(EdgeflError):
        Merging(job, jobs.begin(job), RoundAnswers({}, {}), MERGE).work(None, SystemClock(), Saving(), Now().put)


def test_what_cannot_be_saved_is_merged_once_and_saved_when_there_is_room(tmp_path, monkeypatch):
    job, now, saved = the_job(), Now(), []

    def full(*_: Any) -> None:
        saved.append(_)
        if len(saved) < 3:
            raise StoreError("no space left")

    monkeypatch.setattr(checkpoint, "save", full)
    now.start(partial(merging(job).work, tmp_path, SystemClock(), Saving()))
    told, first = now.events
    assert isinstance(told, MergeResult), "devices need not wait for the disk"
    now.start(first.work)
    second = now.events[2]
    assert (first.reason, second.reason) == ("no space left", "no space left")
    now.start(second.work)
    assert isinstance(now.events[3], Unstuck)
    assert saved[0][2] == saved[2][2], "the same, not merged again"


def test_the_last_model_is_told_of_when_it_is_saved(tmp_path, monkeypatch):
    now, saved = Now(), []
    monkeypatch.setattr(checkpoint, "save", lambda *_: saved.append(len(now.events)))
    now.start(partial(merging(the_job(rounds=1)).work, tmp_path, SystemClock(), Saving()))
    (one,) = now.events
    assert isinstance(one, MergeResult)
    assert one.next_model.frame is None
    assert saved == [0]


def test_the_next_model_comes_packed_with_the_merge():
    (one,) = merged(the_job())
    assert one.next_model.run_state.round == 1
    params, _ = unpack_broadcast(one.next_model.frame, len(one.next_model.run_state.params))
    assert np.array_equal(params, one.next_model.run_state.params)
    (last,) = merged(the_job(rounds=1))
    assert last.next_model.frame is None


def test_a_job_is_prepared_with_what_it_takes_to_ask():
    job, now = the_job(), Now()
    now.start(preparing(lambda: job, None, None))
    (one,) = now.events
    assert isinstance(one, PreparedJob)
    assert one.answer_schema is not None
    assert one.next_model.frame is not None
    assert (one.recalled.answers, one.answers.records) == ({}, {})
