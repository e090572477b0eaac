"""The rehearsal: what cannot work fails before the first device is asked."""

import pytest

from edgefl.config import RunFile
from edgefl.errors import ConfigError, EdgeflError
from edgefl.rehearsal import ROUNDS, rehearse


def run(**tables):
    table = {"run": {"name": "trial", "rounds": 50}, "task": {"partition": {"kind": "iid", "devices": 3}}, **tables}
    return RunFile.model_validate(table)


def test_a_run_that_works_gives_its_job_unchanged():
    wanted = run(algorithm={"name": "fedavg", "epochs": 5})
    job = rehearse(wanted)
    assert job.run == wanted
    assert job.algorithm.epochs == 5
    assert ROUNDS == 2  # the second round is where a state is used for the first time


def test_a_stage_whose_needs_are_not_met_is_found():
    stages = [{"name": "mean"}, {"name": "variates"}]
    with pytest.raises(ConfigError, match="variates"):
        rehearse(run(aggregation=stages))


def test_a_target_that_was_reached_would_not_cut_the_rehearsal_short():
    assert rehearse(run(run={"name": "trial", "target_accuracy": 0.01})).run.run.target_accuracy == 0.01


def test_a_model_that_does_not_exist_is_named():
    with pytest.raises(EdgeflError, match="mlpp"):
        rehearse(run(task={"model": "mlpp", "partition": {"kind": "iid", "devices": 2}}))
