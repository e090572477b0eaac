"""The rehearsal: what cannot work fails before the first device is asked."""

import numpy as np
import pytest

from edgefl.base.errors import ConfigError, EdgeflError
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.sim import rehearsal
from edgefl.sim.engines import workers
from edgefl.sim.rehearsal import ROUNDS, TRAINED, lengths, play, rehearse, scale, trainees


def run(**tables):
    table = {"run": {"name": "trial", "rounds": 50}, "task": {"partition": {"kind": "iid", "devices": 3}}, **tables}
    return RunFile.model_validate(table)


def test_a_run_that_works_gives_its_job_unchanged():
    trial = run(algorithm={"name": "fedavg", "epochs": 5})
    job = rehearse(trial)
    assert job.run == trial
    assert job.algorithm.epochs == 5


def test_a_stage_whose_needs_are_not_met_is_found():
    stages = [{"name": "mean"}, {"name": "variates"}]
    with pytest.raises(ConfigError, match="variates"):
        rehearse(run(aggregation=stages))


def test_a_target_that_was_reached_would_not_cut_the_rehearsal_short():
    assert rehearse(run(run={"name": "trial", "target_accuracy": 0.01})).run.run.target_accuracy == 0.01


def test_a_model_that_does_not_exist_is_named():
    with pytest.raises(EdgeflError, match="mlpp"):
        rehearse(run(task={"model": "mlpp", "partition": {"kind": "iid", "devices": 2}}))


def fleet_of(devices, **task):
    return {"model": "softmax", "partition": {"kind": "iid", "devices": devices}, **task}


def test_a_memory_that_is_smaller_than_the_cohort_is_found():
    with pytest.raises(ConfigError, match=r"memory of 3 devices is smaller than .* = 12; raise algorithm.memories"):
        run(task=fleet_of(20), algorithm={"name": "gradma", "memories": 3}, rounds={"cohort": 12})


def test_an_answer_that_comes_late_needs_its_place_too():
    gradma = {"name": "gradma", "memories": 12}
    rehearse(run(task=fleet_of(20), algorithm=gradma, rounds={"cohort": 12, "late": "memory"}))
    with pytest.raises(ConfigError, match="memory of 12 devices: 13 answered"):
        rehearse(run(task=fleet_of(20), algorithm=gradma, rounds={"cohort": 12, "late": "discount"}))


def test_features_that_are_too_long_for_a_proof_are_found_where_the_coordinator_has_data():
    upcycled, objective = {"name": "upcycled", "mu": 1.0}, {"mechanism": "objective"}
    with pytest.raises(ConfigError, match="a feature vector has length"):
        rehearse(run(task=fleet_of(3), algorithm=upcycled, privacy=objective))
    with pytest.raises(ConfigError, match="a feature vector has length"):
        rehearse(run(task={"model": "softmax"}, algorithm=upcycled, privacy=objective, rounds={"cohort": 3}))
    unknown = {"model": "softmax", "data": None, "sample": [4], "classes": 3}
    rehearse(run(task=unknown, algorithm=upcycled, privacy=objective, rounds={"cohort": 3}))


def played(trial):
    job, held = jobs.prepare(trial)
    first, second = (workers(trial, job.device_model, dict([trainee])).popitem()[1] for trainee in trainees(job, held))
    return play(job, first, second, scale(job, len(held.devices)))


def test_a_round_has_as_many_answers_as_the_run_asks_for_and_a_full_memory_is_played():
    gradma = {"name": "gradma", "memories": 20}
    trial = run(task=fleet_of(50), algorithm=gradma, rounds={"cohort": 8})
    run_state = played(trial)
    assert run_state.round == 4  # after three rounds there is no room left
    assert len(run_state.states["memory"]["members"]) == 20
    assert run_state.states["memory"]["counters"].sum() <= 4 * 8


def test_free_rounds_are_played_too():
    assert played(run(task=fleet_of(4), algorithm={"name": "upcycled"})).round == 2 * TRAINED


def test_a_large_cohort_is_played_whole_unless_the_model_is_large_too(monkeypatch):
    trial = run(task={"model": "softmax", "data": None, "sample": [4], "classes": 3}, rounds={"cohort": 1000})
    job = rehearse(trial)
    assert (scale(job, 0).answers, scale(job, 0).capped) == (1000, False)
    monkeypatch.setattr(rehearsal, "NUMBERS", 100 * job.model.layout.size)
    assert (scale(job, 0).answers, scale(job, 0).capped) == (100, True)


def test_a_memory_too_large_to_fill_costs_no_more_than_some_rounds():
    gradma = {"name": "gradma", "memories": 10_000}
    trial = run(task={"model": "softmax", "data": None, "sample": [4], "classes": 3}, algorithm=gradma,
                 rounds={"cohort": 10})  # fmt: skip
    assert scale(jobs.prepare(trial)[0], 0).rounds == ROUNDS


def test_the_two_that_train_are_those_with_the_longest_sample_and_with_the_fewest():
    job, held = jobs.prepare(run(task=fleet_of(5, partition={"kind": "dirichlet", "omega": 0.3, "devices": 5})))
    (_, long), (_, small) = trainees(job, held)
    assert lengths(long).max() == max(np.sqrt((d.x.reshape(len(d), -1) ** 2).sum(axis=1)).max() for d in held.devices)
    assert len(small) == min(len(d) for d in held.devices)
