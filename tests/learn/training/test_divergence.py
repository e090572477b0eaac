"""Learning that leaves the finite numbers ends at that step, with one line: who, where, why, what to do."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import Tiny, clouds, site

from edgefl.base.errors import Diverged
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import reporting
from edgefl.job.run.work import ModelRef, Worker
from edgefl.job.transforms.listing import device_transforms
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.lab.comparison.running import play_all
from edgefl.lab.comparison.variants import variants
from edgefl.learn.aggregation import Mean, merge
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Task, Update
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import cross_entropy
from edgefl.learn.training.divergence import is_finite, likely_cause, unscaled, usual_causes
from edgefl.learn.training.local import walk
from edgefl.sim.drivers import play
from edgefl.sim.rehearsal import rehearse
from edgefl.watch.view import LineView, plain_line
from edgefl.wire.codecs import codec

HUGE = np.float32(1013)  # hectopascal


def unscaled_clouds() -> Dataset:
    data = clouds()
    return replace(data, x=data.x * HUGE)


def worker(name: str, data: Dataset, **keys: Any) -> Worker:
    algorithm = registry.algorithm({"name": name, **keys})
    transforms = device_transforms(algorithm, codec("float32"))
    return Worker("job", "pi-01", algorithm, Tiny(), data, cross_entropy, transforms, 0)


def test_a_walk_ends_at_the_first_step_that_is_not_finite():
    steps = []

    def step(w, x, y):
        steps.append(len(steps) + 1)
        return w * np.float32(1e15)

    with np.errstate(over="ignore"), pytest.raises(Diverged, match="step 2: the weights are not finite"):
        walk(np.ones(4, np.float32), step, site(), Task(1, np.ones(4, np.float32)).budget, batch=1, batches=9)
    assert steps == [1, 2]


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedntd"])
def test_a_device_says_who_where_why_and_what_to_do(name: str):
    task = Task(3, np.full(4, 1e38, np.float32))
    with pytest.raises(Diverged) as told:  # warnings are errors here: numpy says nothing beside it
        worker(name, unscaled_clouds(), lr=1e30).work(task, ModelRef("run", "model"), {})
    message = str(told.value)
    assert message.startswith("device 'pi-01', round 3, step 1: ")
    assert "not finite" in message
    assert "unscaled inputs" in message
    assert "lower algorithm.lr = 1e+30" in message
    assert "\n" not in message


def test_the_likely_cause_is_named():
    data = clouds()
    assert "step size: lower algorithm.lr = 5" in likely_cause(data, 5.0)
    assert "the largest feature is" in likely_cause(unscaled_clouds(), 0.1)
    targets = likely_cause(Dataset(data.x, np.full(12, HUGE), 0), 0.1)
    assert "unscaled targets, the largest is 1013" in targets
    assert targets.endswith("scale them to about -1 to 1, or lower algorithm.lr = 0.1")
    assert usual_causes(0.1) == usual_causes(0.1).replace("the largest", ""), "which others are told, whatever the data"
    assert unscaled(data) is None
    assert unscaled(unscaled_clouds()) > 1000
    assert unscaled(Dataset(np.array([[4000]]), np.array([1]), 2)) is None  # tokens


def test_a_vector_is_finite_or_not():
    assert is_finite(np.ones(3, np.float32))
    assert not is_finite(np.array([1, np.nan], np.float32))
    assert not is_finite(np.array([1, -np.inf], np.float32))


def test_a_merged_model_that_is_not_finite_names_round_and_stage():
    huge = Update(np.full(4, 3e38, np.float32), 1.0, 1)
    with pytest.raises(Diverged, match=r"coordinator, round 2.*not finite"):
        merge(2, np.full(4, 3e38, np.float32), {"a": huge}, stages=(Mean(),), states={}, site=site())


def test_a_stage_that_fails_on_public_data_is_named():
    stage = registry.stage({"name": "finetune", "lr": 1e30})
    update = Update(np.full(4, 0.1, np.float32), 1.0, 1)
    with pytest.raises(Diverged, match=r"coordinator, round 1: aggregation 'finetune': step \d+: .* lower its lr"):
        merge(1, np.zeros(4, np.float32), {"a": update}, stages=(Mean(), stage), states={}, site=site())


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    """A run on samples that nobody has scaled."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "air.npz", x=(HUGE + rng.normal(size=(60, 4))).astype(np.float32), y=rng.normal(size=60))
    return {
        "run": {"name": "air", "rounds": 3},
        "task": {
            "data": f"npz:{tmp_path / 'air.npz'}",
            "model": "mlp",
            "loss": "squared_error",
            "partition": {"kind": "iid", "devices": 2},
        },
        "algorithm": {"name": "fedavg", "lr": 0.1, "epochs": 8},
    }


def run_file(table: dict[str, Any]) -> RunFile:
    return parse(RunFile, table, "test", environment={})


def test_a_rehearsal_ends_with_one_line(table: dict[str, Any]):
    with pytest.raises(Diverged, match=r"round 1, step [2-4]: .* the largest feature is 101"):
        rehearse(run_file(table))


def test_a_run_that_diverges_at_once_is_a_result_without_rounds(table: dict[str, Any]):
    (end,) = play_all(variants("fedavg", table, "run.toml"), 1, None, play)
    assert isinstance(end, PlayedRun)
    assert (end.diverged, end.rounds, end.numbers) == (True, (), [])
    assert re.search(r"round 1, step [2-4]: .* the largest feature is 101", end.done.why)


def test_the_start_of_a_run_warns_of_unscaled_features(table: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    job, _ = jobs.prepare(run_file(table))
    LineView(plain_line).tell(reporting.opening(job))
    assert "scale them to about -1 to 1" in capsys.readouterr().out


def test_an_update_out_of_all_measure_is_declined_by_the_device_itself():
    task = Task(1, np.zeros(4, np.float32))
    with pytest.raises(Diverged) as told:
        worker("fedavg", unscaled_clouds(), lr=1e6, batches=1).work(task, ModelRef("run", "model"), {})
    message = str(told.value)
    assert message.startswith("device 'pi-01', round 1, the update has norm ")
    assert "unscaled inputs" in message
