"""A coordinator that wants the samples: what it can have by right, and what a device's own allowance takes from it.

Model, algorithm and noise are the coordinator's to choose, so no flaw is needed to read a sample: an update can be one.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import Fleet, prepared, run_file

from device_agent.decide.vocabulary import Tasked
from device_agent.durable.privacy_ledger import PrivacyLedger
from device_agent.shell.allowance import beyond, without_noise
from edgefl.base.vector import Layout, State
from edgefl.job.config.allowance import Allowance
from edgefl.job.config.schema import RunFile
from edgefl.job.run import reported_loss
from edgefl.job.run.work import ModelRef, Result, Worker
from edgefl.job.transforms.listing import device_transforms
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Budget, Task
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import loss
from edgefl.learn.privacy import Objective, Output, Price, output_epsilon, output_sigma
from edgefl.learn.selection.base import LossBasedSelection
from edgefl.learn.selection.oort import Oort
from edgefl.learn.selection.power_of_choice import PowerOfChoice
from edgefl.system.memory_disk import MemoryDisk
from edgefl.wire.codecs import Float32
from tools.in_memory_broker import InMemoryBroker

VICTIM, CLIP = "device-00", 1.0
LAYOUT = Layout(("w",), ((2, 2),))


def private(sigma: float, **more: Any) -> RunFile:
    mechanism = {"mechanism": "output", "clip": CLIP, "clips": "update", "sigma": sigma, **more}
    return run_file({"name": "fedprox", "privacy": mechanism}, rounds={"cohort": 4, "quorum": 3})


# ── what an update can tell ──────────────────────────────────────────────────────────────────────────────────


def of_one_sample(algorithm: dict[str, Any], extra: State | None = None) -> tuple[Result, Dataset, Layout]:
    """What a device with a single sample answers to a coordinator that starts a linear model from 0."""
    job, split = prepared(run_file({"name": "fedavg"}))
    data, model = split.devices[0].take(np.arange(1)), job.device_model
    table = {"lr": 1.0, "batch": 1, "epochs": 1, "momentum": 0.0, **algorithm}
    private = registry.algorithm(table)
    transforms = device_transforms(private, Float32())
    worker = Worker("job", VICTIM, private, model, data, loss("cross_entropy"), transforms, 3, secret=True)
    task = Task(1, np.zeros(model.layout.size, np.float32), Budget(None, None), extra or {})
    return worker.result(task, ModelRef("run", "model"), {}), data, model.layout


def read_off(delta: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """The sample behind one step of a linear layer: its weights moved by (step of the bias) times the sample."""
    layers = layout.layers(delta)
    weights, bias = (next(layer for layer in layers.values() if layer.ndim == axes) for axes in (2, 1))
    row = int(np.argmax(np.abs(bias)))
    return np.asarray(weights[row] / bias[row])


def test_an_update_without_noise_can_be_the_sample_itself() -> None:
    result, data, layout = of_one_sample({"name": "fedavg"})
    np.testing.assert_allclose(read_off(result.update.delta, layout), data.x[0].ravel(), rtol=1e-4, atol=1e-6)


def test_with_the_noise_of_a_small_epsilon_it_is_not() -> None:
    sigma = output_sigma(1, CLIP, 8.0, 1e-5)
    noise = {"mechanism": "output", "clip": CLIP, "clips": "update", "sigma": sigma}
    result, data, layout = of_one_sample({"name": "fedprox", "mu": 0.1, "privacy": noise})
    seen = read_off(result.update.delta, layout)
    assert np.linalg.norm(seen - data.x[0].ravel()) > 0.5 * np.linalg.norm(data.x[0])


@pytest.mark.parametrize("selection", [PowerOfChoice(), Oort()], ids=["power_of_choice", "oort"])
def test_a_private_device_tells_no_loss_whoever_asks(selection: LossBasedSelection) -> None:
    asked = reported_loss.asked(selection.loss)
    noise = {"mechanism": "output", "clip": CLIP, "sigma": 1.0}
    assert of_one_sample({"name": "fedprox", "mu": 0.1}, asked)[0].update.loss is not None, "the question is understood"
    assert of_one_sample({"name": "fedprox", "mu": 0.1, "privacy": noise}, asked)[0].update.loss is None


# ── what a device's operator allows ──────────────────────────────────────────────────────────────────────────


def declined(run: RunFile, allowance: Allowance, folder: Path) -> tuple[list[str], int]:
    """Why the one device with an allowance declines, and how many updates its ledger has."""
    broker, told = InMemoryBroker(), list[dict[str, Any]]()
    fleet = Fleet(run, folder, broker.client)
    for name in fleet.data:
        fleet.start(fleet.agent(name, allowance=allowance if name == VICTIM else None))
    fleet.coordinator(tell=told.append).run()
    fleet.join()
    events = sum(entry["odd_updates"] for entry in fleet.agents[VICTIM].ledger.runs.values())
    reasons = [event["reason"] for event in told if event["event"] == "declined" and event["device"] == VICTIM]
    assert len([event for event in told if event["event"] == "round"]) == run.run.rounds, "the others go on"
    return reasons, events


def test_a_device_with_an_allowance_trains_for_nobody_without_noise(tmp_path: Path) -> None:
    reasons, events = declined(run_file({"name": "fedavg"}, rounds={"cohort": 4}), Allowance(epsilon=8), tmp_path)
    assert reasons
    assert all(reason.startswith("privacy.noise: this device trains with noise only") for reason in reasons)
    assert events == 0


def test_it_declines_noise_that_the_coordinator_could_draw_again(tmp_path: Path) -> None:
    reasons, events = declined(private(100.0, noise="seeded"), Allowance(epsilon=8), tmp_path)
    assert reasons
    assert all(reason.startswith("privacy.spent: with this update") for reason in reasons)
    assert events == 0


def test_it_trains_until_its_allowance_is_spent_and_no_further(tmp_path: Path) -> None:
    sigma = 2.0
    two, three = (output_epsilon(n, CLIP, sigma, 1e-3) for n in (2, 3))
    reasons, events = declined(private(sigma), Allowance(epsilon=(two + three) / 2), tmp_path)
    assert events == 2
    assert len(reasons) == 2, "the third and the fourth round"
    assert all(reason.startswith("privacy.spent") for reason in reasons)


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ({"purpose": "describe"}, "sends nothing about its data without noise"),
        ({"purpose": "evaluate"}, "sends nothing about its data without noise"),
        ({"evaluates": 10}, "sends no counts"),
        ({}, ""),
    ],
)
def test_counts_and_sums_are_not_told_beside_an_allowance(task: dict[str, Any], why: str) -> None:
    asked = replace(Tasked(job="job", run_id="run", round=1, attempt=0, model="m"), **task)
    noise = {"mechanism": "output", "clip": CLIP, "sigma": 1.0}
    algorithm = registry.algorithm({"name": "fedprox", "mu": 0.1, "privacy": noise})
    reason = without_noise(asked, algorithm)
    assert why in reason
    assert bool(why) == bool(reason)


# ── the ledger behind it ─────────────────────────────────────────────────────────────────────────────────────


def price(sigma: float) -> Price:
    return Price(Output(clip=CLIP, sigma=sigma), 40, 0.1, LAYOUT)


def test_more_noise_later_does_not_make_little_noise_before_it_forgotten() -> None:
    ledger, one = PrivacyLedger(MemoryDisk()), price(0.5).of(1)["epsilon"]
    ledger.spend("job.one", price(0.5))
    ledger.spend("job.one", price(1000.0))
    entry = ledger.runs["job.one"]
    assert entry["epsilon"] == pytest.approx(one + price(1000.0).of(1)["epsilon"])
    assert entry["delta"] == pytest.approx(2e-3)
    ledger.spend("job.one", price(0.5))
    assert ledger.runs["job.one"]["epsilon"] == pytest.approx(2 * one + price(1000.0).of(1)["epsilon"])


def test_noise_that_promised_nothing_is_not_made_good_by_noise_that_does() -> None:
    ledger = PrivacyLedger(MemoryDisk())
    ledger.spend("job.one", Price(Output(clip=CLIP, sigma=9.0, noise="seeded"), 40, 0.1, LAYOUT))
    ledger.spend("job.one", price(1000.0))
    assert ledger.runs["job.one"]["epsilon"] is None
    assert beyond(Allowance(epsilon=1e9), ledger.runs.values())


def test_runs_are_added_up() -> None:
    ledger, one = PrivacyLedger(MemoryDisk()), price(10.0).of(1)["epsilon"]
    for run in ("a.1", "b.1", "c.1"):
        ledger.spend(run, price(10.0))
    assert not beyond(Allowance(epsilon=3.01 * one, delta=0.01), ledger.runs.values())
    assert beyond(Allowance(epsilon=2.99 * one, delta=0.01), ledger.runs.values())
    assert beyond(Allowance(epsilon=3.01 * one, delta=2e-3), ledger.runs.values()), "and so are deltas"
    assert not beyond(Allowance(), ledger.runs.values()), "no limit unless said"


def test_updates_that_cost_next_to_nothing_are_counted_too() -> None:
    ledger, allowance = PrivacyLedger(MemoryDisk()), Allowance(epsilon=8.0, delta=0.01, updates=3)
    for run in ("a.1", "a.1", "b.1"):
        ledger.spend(run, price(1e6))
        assert not beyond(allowance, ledger.runs.values())
    ledger.spend("b.1", price(1e6))
    assert beyond(allowance, ledger.runs.values()).startswith("with this update the device would have made 4 of them")


def test_another_model_has_a_price_of_its_own() -> None:
    ledger = PrivacyLedger(MemoryDisk())
    small, large = (Layout(("w", "b"), ((classes, 3), (classes,))) for classes in (2, 9))
    one = Price(Objective(), 200, 0.1, large).of(1)["epsilon"]
    ledger.spend("job.one", Price(Objective(), 200, 0.1, large))
    ledger.spend("job.one", Price(Objective(), 200, 0.1, small))
    assert ledger.runs["job.one"]["epsilon"] > one
