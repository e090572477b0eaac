"""Privacy that is claimed must hold against the worst record, on the real network and on real agents."""

import json
from pathlib import Path

import numpy as np
import pytest
from fleets import Fleet, loop, run_file

from device_agent.durable.privacy_ledger import NAME
from edgefl.base import seeds
from edgefl.base.vector import Vector
from edgefl.job.config.schema import RunFile
from edgefl.learn.algorithms.upcycled import Upcycled
from edgefl.learn.contract import Site, Task
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.models.build import build
from edgefl.learn.privacy import Output, clipped, gaussian_epsilon
from edgefl.learn.privacy.linear import linear_layer
from edgefl.learn.training.local import gradient
from tools.in_memory_broker import InMemoryBroker

N, FEATURES = 224, 20


def unit_rows(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, feature vectors of length one."""
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % 2
    x = rng.standard_normal((samples, FEATURES)) + np.where(y, 1.0, -1.0)[:, None]
    return (x / np.linalg.norm(x, axis=1)[:, None]).astype(np.float32), y


def test_the_worst_record_of_the_real_network_does_what_the_accountant_reckons_with():
    model, start = build("softmax", (FEATURES,), 2, 0)
    x, _ = unit_rows(1, 0)
    sure = np.zeros_like(start)
    sure[:FEATURES], sure[FEATURES : 2 * FEATURES], sure[2 * FEATURES :] = 100 * x[0], -100 * x[0], (100, -100)
    longest = np.linalg.norm(
        gradient(Site(model, Dataset(x, np.array([1]), 2), seeds.stream(0)), sure, x, np.array([1]))
    )
    bounds = linear_layer(model.layout).bounds()
    assert longest == pytest.approx(2.000, abs=1e-5)
    assert (bounds.u1, bounds.u2, bounds.rank) == (pytest.approx(2.0), 1.0, 1)


def test_one_record_moves_a_clipped_model_further_than_clip_over_n_and_never_further_than_is_accounted():
    """The device's real training, twice: with one record that pulls its own way, and without."""
    model, start = build("softmax", (FEATURES,), 2, 0)
    x, y = unit_rows(N, 1)
    x[1:] *= 1e-3  # the others say next to nothing: nobody promised that they would

    def trained(label: int) -> Vector:
        labels = y.copy()
        labels[0] = label
        here = Site(model, Dataset(x, labels, 2), seeds.stream(5))
        delta = Upcycled(lr=5.0, batch=N, epochs=200, mu=1e-3).train(Task(1, start), {}, here)[0].delta
        return clipped(start + delta, 1.0)

    moved = np.linalg.norm(trained(0) - trained(1))
    assert moved > 10 * (1.0 / N)  # what the published formula takes for the most
    assert moved <= 2 * 1.0  # what `epsilon` is reckoned with
    spent = Output(clip=1.0, sigma=1.0, delta=1e-5).spent(1, N, 0.1, model.layout)
    assert spent["epsilon"] == gaussian_epsilon(2 * 1.0 / 1.0, 1e-5)


def objective_run(folder: Path, **privacy: object) -> RunFile:
    x, y = unit_rows(4 * N, 2)
    np.savez(folder / "unit.npz", x_train=x, y_train=y, x_test=x[:50], y_test=y[:50])
    return run_file(
        {"name": "upcycled", "mu": 0.1, "privacy": {"mechanism": "objective", "alpha": 20.0, **privacy}},
        task={"data": f"npz:{folder / 'unit.npz'}", "public": 0.0, "partition": {"kind": "iid", "devices": 4}},
        rounds={"cohort": 4, "quorum": 4},
    )


def test_real_agents_write_down_the_bound_of_the_network_they_train(tmp_path: Path):
    fleet = Fleet(objective_run(tmp_path), tmp_path, InMemoryBroker().client)
    fleet.start_all()
    fleet.coordinator().run()
    fleet.join()
    for name in fleet.data:
        (spent,) = json.loads((tmp_path / name / NAME).read_text()).values()
        n, updates = spent["samples"], spent["odd_updates"]
        exact = updates * (2 * 20 * 2.0 / n + 2.8 * 1.0 / (n * 0.1))
        assert (n, updates) == (N, 2)
        assert exact < spent["epsilon"] < exact + 0.005
        assert not {key for key in spent if key.startswith("eps_")}


def test_objective_perturbation_gives_the_same_model_in_the_loop_and_on_agents(tmp_path: Path):
    run = objective_run(tmp_path, noise="seeded")
    fleet = Fleet(run, tmp_path, InMemoryBroker().client)
    fleet.start_all()
    run_state = fleet.coordinator().run()
    fleet.join()
    assert run_state.sha256() == loop(run).sha256()
    assert run_state.accuracy is not None
