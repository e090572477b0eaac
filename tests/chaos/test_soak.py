"""`soak` of scripts/Makefile: 200 emulated devices, 20 real agents, 300 rounds; the coordinator's memory stays."""

import os
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import psutil
import pytest
from crowd import Crowd
from fleet import Fleet

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(os.environ.get("EDGEFL_SOAK") != "1", reason="takes many minutes: scripts/Makefile soak"),
]

REAL, EMULATED = 20, 200
ROUNDS = int(os.environ.get("EDGEFL_SOAK_ROUNDS", "300"))
SETTLED = ROUNDS // 4  # rounds before memory is looked at: caches fill, allocators find their size
SLOPE = 1.0  # MiB per 100 rounds
SIZE = 20 * 10 + 10  # numbers in the model


def test_a_long_run_of_many_devices_does_not_grow(tmp_path: Path, figures: Any) -> None:
    devices = REAL + EMULATED
    with Fleet(
        tmp_path,
        run={"rounds": ROUNDS},
        task={"partition": {"kind": "iid", "devices": devices}},
        algorithm={"name": "fedavg", "batch": 64},
        rounds={"cohort": 44, "quorum": 40, "deadline": 120.0},
    ) as fleet:
        where = fleet.broker.address
        for name in fleet.names[:REAL]:
            fleet.agent(name)
        life = fleet.coordinator()
        with Crowd(fleet.names[REAL:], where.host, where.port, job="chaos", size=SIZE) as crowd:
            began, memory = monotonic(), []
            coordinator = psutil.Process(life.process.pid)
            for round in range(1, ROUNDS + 1):
                assert life.wait_for(600, event="round", round=round) is not None, "it ended too early"
                memory.append(coordinator.memory_info().rss / 2**20)
            took = monotonic() - began
            assert life.finished() is not None
            answered = sum(device.accepted for device in crowd.devices)
    slope = 100 * _slope(np.array(memory[SETTLED:]))
    figures(
        "soak",
        f"{EMULATED} emulated devices in one asyncio process, {REAL} real agents, 44 asked per round, {ROUNDS} rounds",
        "none needed",
        f"{took:.0f} s, {answered} answers of emulated devices accepted;"
        f" coordinator {memory[SETTLED]:.1f} MiB after {SETTLED} rounds, {memory[-1]:.1f} MiB at the end:"
        f" slope {slope:+.2f} MiB per 100 rounds",
    )
    assert slope < SLOPE


def _slope(memory: np.ndarray[Any, Any]) -> float:
    """MiB per round: the median over all pairs of rounds.

    An allocator takes 2 MiB at a time, and a line of least squares through one such step rises by 1.3 per 100 rounds.
    """
    earlier, later = np.triu_indices(len(memory), 1)
    return float(np.median((memory[later] - memory[earlier]) / (later - earlier)))
