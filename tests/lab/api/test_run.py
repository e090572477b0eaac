"""`edgefl.Run`: one description for everything that is done with a run."""

from pathlib import Path

import numpy as np
import pytest

import edgefl
from edgefl.base.errors import ConfigError


def hash_of(history: edgefl.History) -> str:
    assert history.done is not None
    return history.done.model_sha256


def test_what_is_described_once_is_played_compared_and_swept() -> None:
    run = edgefl.Run("softmax", "digits", algorithm="fedavg:lr=0.3", fleet=4, rounds=2)
    alone = edgefl.simulate("softmax", "digits", algorithm="fedavg:lr=0.3", fleet=4, rounds=2)
    assert hash_of(run.simulate()) == hash_of(alone)
    assert len(run.simulate(rounds=1).rounds) == 1
    compared = run.compare(algorithms=["fedavg"], seeds=1, progress=False)
    assert hash_of(compared.histories["fedavg"][0]) == hash_of(alone)
    swept = run.sweep(algorithms=["fedavg"], grid={"lr": [0.3]}, progress=False)
    assert [hash_of(one) for runs in swept.tested.histories.values() for one in runs] == [hash_of(alone)]


def test_it_is_written_as_the_run_file_that_it_is(tmp_path: Path) -> None:
    fleet = edgefl.Fleet(devices=4, split="dirichlet", omega=0.5, cohort=2)
    settings = {"aggregation": [{"name": "mean"}, {"name": "momentum", "beta": 0.5}], "wire.codec": "int8"}
    run = edgefl.Run("softmax", "digits", algorithm="fedprox:mu=0.1", fleet=fleet, rounds=2, settings=settings)
    path = run.write(tmp_path / "run.toml")
    assert hash_of(edgefl.simulate(run_file=path)) == hash_of(run.simulate())
    assert edgefl.Run(run_file=path).tables() == run.tables()


def test_what_only_this_process_has_is_in_no_run_file(tmp_path: Path) -> None:
    run = edgefl.Run("softmax", (np.ones((10, 2), np.float32), np.arange(10) % 2))
    with pytest.raises(ConfigError, match="a run file cannot hold data, which only this process has"):
        run.write(tmp_path / "run.toml")
    assert not (tmp_path / "run.toml").exists()
