"""Merging says at once that there is a new model; what it costs to look at it comes after."""

from threading import Event
from typing import Any

import numpy as np
import pytest

from coordinator.merging import Broken, Looked, Merged, Merging, Stuck
from edgefl import job as jobs
from edgefl.algorithms.base import Update
from edgefl.config import RunFile
from edgefl.config_reader import parse
from edgefl.job import Job

Said = list[Merged | Looked | Stuck | Broken]


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


def merged(job: Job, stopping: Event | None = None) -> Said:
    """What is said while two updates are merged, which forget different things."""
    course, said = jobs.begin(job), Said()
    rng = np.random.default_rng(0)
    deltas = [rng.normal(size=len(course.params)).astype(np.float32) for _ in range(2)]
    updates = {f"device-{i}": Update(delta, 1.0, 1) for i, delta in enumerate(deltas)}
    Merging(job, course, updates, {}, 2, (10, 20), (10, 20), 0.0, 0.0).work(None, stopping or Event(), said.append)
    return said


def test_a_merge_is_told_with_its_report():
    (one,) = merged(the_job())
    assert isinstance(one, Merged)
    assert one.reports[0].local_forgetting is None


def test_nobody_waits_for_the_look_at_every_device_but_the_report():
    first, second = merged(the_job(forgetting=True))
    assert isinstance(first, Merged)
    assert first.reports == ()
    assert isinstance(second, Looked)
    (report,) = second.reports
    assert 0 < report.local_forgetting <= 1
    assert 0 < report.aggregation_forgetting <= 1


def test_a_round_that_needed_nobody_forgot_nothing_in_training():
    first, second = merged(the_job("upcycled", forgetting=True))
    assert isinstance(first, Merged)
    assert first.course.round == 2
    assert isinstance(second, Looked)
    assert [report.local_forgetting is None for report in second.reports] == [False, True]


def test_whoever_wants_an_end_does_not_wait_for_the_look():
    stopping = Event()
    stopping.set()
    _, second = merged(the_job(forgetting=True), stopping)
    assert isinstance(second, Looked)
    assert second.reports[0].local_forgetting is None


@pytest.mark.parametrize("forgetting", [True, False])
def test_what_cannot_be_merged_is_told_as_it_is(forgetting: bool):
    job = the_job(forgetting=forgetting)
    said = Said()
    Merging(job, jobs.begin(job), {}, {}, 2, (0, 0), (0, 0), 0.0, 0.0).work(None, Event(), said.append)
    (one,) = said
    assert isinstance(one, Broken)
