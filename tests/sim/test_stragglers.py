from typing import Any

import pytest

from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.sim.loop import simulate
from edgefl.sim.stragglers import cut


def prepared(share: float, **algorithm: Any) -> tuple[Job, dict[str, Any]]:
    table: dict[str, Any] = {
        "run": {"rounds": 2},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "backend": "torch",
            "partition": {"kind": "iid", "devices": 3},
        },
        "algorithm": {"name": "fedavg", "batch": 10, **algorithm},
        "fleet": {"stragglers": share},
    }
    job, held = jobs.prepare(parse(RunFile, table, "test", environment={}))
    return job, dict(zip(jobs.device_names(3), held.devices, strict=True))


DRAWS = [(round, f"d{i}") for round in range(1, 21) for i in range(20)]


def test_a_straggler_makes_whole_epochs_between_one_and_all_but_one():
    job, _ = prepared(1.0, epochs=5)
    budgets = {cut(job, round, device, samples=95) for round, device in DRAWS}
    assert budgets == {10, 20, 30, 40}  # ten batches an epoch, one to four of the five epochs


def test_the_share_of_stragglers_is_as_asked():
    job, _ = prepared(0.3, epochs=5)
    share = sum(cut(job, round, device, samples=95) is not None for round, device in DRAWS) / len(DRAWS)
    assert share == pytest.approx(0.3, abs=0.07)


def test_of_exact_batches_a_straggler_makes_some():
    job, _ = prepared(1.0, batches=4)
    assert {cut(job, round, device, samples=95) for round, device in DRAWS} == {1, 2, 3}


def test_without_stragglers_everybody_makes_all():
    job, _ = prepared(0.0, epochs=5)
    assert {cut(job, round, device, samples=95) for round, device in DRAWS} == {None}


def test_stragglers_change_the_model_of_the_plain_loop_in_the_same_way_every_time():
    some, none = prepared(0.9, epochs=5), prepared(0.0, epochs=5)
    assert simulate(*some).sha256() == simulate(*some).sha256() != simulate(*none).sha256()
