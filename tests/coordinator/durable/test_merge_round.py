"""One function merges a round, whether its answers have just come or lie in the journal."""

from typing import Any

import numpy as np
import pytest

from coordinator.decide.vocabulary import AnswerId
from coordinator.durable import answer_store
from coordinator.durable.answer_store import AnswerStore, StoredAnswer
from coordinator.durable.merge_round import RoundAnswers, merge_round, take_answers
from edgefl.base.errors import StoreError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.learn.contract import Update
from edgefl.system.memory_disk import MemoryDisk


class FullDisk(MemoryDisk):
    """A disk without room."""

    def scratch(self, size: int) -> memoryview:
        raise StoreError(f"no space left for {size} bytes")


def the_job(name: str) -> Job:
    table: dict[str, Any] = {
        "run": {"rounds": 4},
        "task": {"data": "synthetic", "model": "softmax", "partition": {"kind": "iid", "devices": 2}},
        "algorithm": {"name": name},
    }
    return jobs.prepare(parse(RunFile, table, "test", environment={}))[0]


def update(job: Job, value: float) -> Update:
    return Update(np.full(job.model.layout.size, value, np.float32), 4.0, 1)


def test_answers_are_taken_once_and_late_ones_as_the_policy_says() -> None:
    plain, store = Update(np.ones(3, np.float32), 4.0, 1), AnswerStore()
    for digest in (b"a", b"b"):
        store.put(digest, plain, None)
    taken = take_answers(store, "discount", 5, {"a": AnswerId(4, b"a")}, {"b": AnswerId(4, b"b")})
    assert (list(taken.arrived), taken.ages) == (["a"], {"a": 1})
    assert {device: one.weight for device, one in taken.updates.items()} == {"a": 4.0, "b": 2.0}
    assert store.records == {}


def test_a_round_is_merged_together_with_those_behind_it_that_need_no_device() -> None:
    job = the_job("upcycled")
    answers = {device: update(job, value) for device, value in (("a", 1.0), ("b", 3.0))}
    judged, merged = merge_round(job, first := jobs.begin(job), RoundAnswers(answers, answers), population=2, disk=None)
    assert judged is first, "nobody evaluates here"
    assert [run_state.round for run_state in merged] == [1, 2]


def test_nothing_is_merged_where_the_disk_has_no_room_for_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_store, "SMALL", 0)
    job = the_job("fedgc")
    answers = {device: StoredAnswer.of(one := update(job, 1.0), lambda one=one: one) for device in "ab"}
    with pytest.raises(StoreError, match="no space left"):
        merge_round(job, jobs.begin(job), RoundAnswers(answers, answers), population=2, disk=FullDisk())
