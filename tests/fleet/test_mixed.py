"""Devices with torch and devices with onnxruntime are one fleet, and end where either kind alone would."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import Fleet, loop, run_file

from edgefl.job.config.local_compute import LocalCompute
from tools.in_memory_broker import InMemoryBroker

FIVE = ("fedavg", "fedgc", "gradma", "flashback", "fedreg")
POINT = 0.01


def test_a_fleet_of_both_kinds_finishes_and_agrees_with_onnx_alone(tmp_path: Path) -> None:
    run = run_file({"name": "fedavg"}, task={"model": "mlp"})
    broker = InMemoryBroker()
    fleet = Fleet(run, tmp_path, broker.client)
    kinds = {}
    for number, name in enumerate(fleet.data):
        host = fleet.agent(name, compute=LocalCompute(backend="torch" if number % 2 else "onnx"))
        kinds[name] = host.agent.attendance.back_end
        fleet.start(host)
    run_state = fleet.coordinator().run()
    fleet.join()
    alone = loop(run)
    assert sorted(kinds.values()) == ["onnx", "onnx", "torch", "torch"]
    assert all(code == 0 for code, _ in fleet.exits.values()), fleet.exits
    assert np.abs(run_state.params - alone.params).max() < 1e-4
    assert run_state.sha256() != alone.sha256()  # the other half really computed otherwise


def accuracy(algorithm: str, back_end: str, seed: int, **task: Any) -> float:
    """What a run reaches when all devices have this back-end."""
    run = run_file(
        {"name": algorithm},
        run={"rounds": task.pop("rounds"), "seed": seed},
        task={"backend": back_end, **task},
    )
    reached = loop(run).accuracy
    assert reached is not None
    return reached


def means(algorithm: str, **task: Any) -> tuple[float, float]:
    onnx, torch = (
        float(np.mean([accuracy(algorithm, back_end, seed, **task) for seed in (1, 2, 3)]))
        for back_end in ("onnx", "torch")
    )
    return onnx, torch


@pytest.mark.parametrize("algorithm", FIVE)
def test_both_back_ends_reach_the_same_accuracy(algorithm: str) -> None:
    onnx, torch = means(algorithm, data="synthetic", model="softmax", rounds=3)
    assert onnx == pytest.approx(torch, abs=POINT)
    assert onnx > 0.2  # twice what guessing among ten classes gives


@pytest.mark.skipif(not os.environ.get("EDGEFL_SLOW"), reason="takes minutes; EDGEFL_SLOW=1 runs it")
@pytest.mark.parametrize("algorithm", FIVE)
def test_both_back_ends_reach_the_same_accuracy_on_digits(algorithm: str) -> None:
    onnx, torch = means(algorithm, data="digits", model="cnn", rounds=15)
    assert onnx == pytest.approx(torch, abs=POINT)
