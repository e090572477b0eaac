"""A thousand devices lose their broker in the same moment: they come back one after the other, and the run goes on."""

import os
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import psutil
import pytest
from crowd import Crowd
from fleet import Fleet

from edgefl.wire.reconnect import PER_SECOND, spread

THOROUGH = os.environ.get("EDGEFL_CHAOS") == "1"
DEVICES = 1000
SIZE = 20 * 10 + 10  # numbers in the model
MEMORY = 64.0  # MiB that the coordinator may take to hear of a thousand devices, twice


@pytest.mark.broker
@pytest.mark.timeout(600)
@pytest.mark.skipif(not THOROUGH, reason="a thousand connections: make chaos")
def test_a_thousand_devices_do_not_come_back_at_once(tmp_path: Path, figures: Any) -> None:
    with Fleet(
        tmp_path,
        run={"rounds": 5000},
        task={"partition": {"kind": "iid", "devices": DEVICES}},
        algorithm={"name": "fedavg", "batch": 64},
        rounds={"cohort": 20, "quorum": 15, "start_with": DEVICES, "deadline": 60.0},
    ) as fleet:
        where = fleet.broker.address
        life = fleet.coordinator()
        with Crowd(fleet.names, where.host, where.port, job="chaos", size=SIZE) as crowd:
            assert life.wait_for(event="round", round=2)  # the state says by now how large the fleet is
            missing = crowd.wait(lambda device: device.pace.spread == spread(DEVICES), 60)
            assert not missing, f"{len(missing)} were never told the pace"
            process = psutil.Process(life.process.pid)
            before = process.memory_info().rss / 2**20
            lost = monotonic()
            fleet.kill_broker()
            late = crowd.wait(lambda device: device.connected[-1] > lost, 60)
            assert not late, f"{len(late)} never came back"
            rounds = sum(event["event"] == "round" for event in life.events)
            life.wait_for(event="round", round=rounds + 5)
            after = process.memory_info().rss / 2**20
            back = np.sort([next(at for at in device.connected if at > lost) - lost for device in crowd.devices])
        life.end()
    busiest = int(max(np.searchsorted(back, back + 1.0) - np.arange(DEVICES)))
    assert busiest <= 2 * PER_SECOND, f"{busiest} devices came back within one second"
    assert after - before < MEMORY
    half, most, last = np.percentile(back, [50, 95, 100])
    figures(
        "1,000 devices lose their broker",
        "1,000 emulated devices in one asyncio process, real coordinator, real Mosquitto killed and started again",
        "none needed",
        f"half are back after {half:.1f} s, 95 % after {most:.1f} s, all after {last:.1f} s; at most {busiest} in any"
        f" second; the coordinator grew by {after - before:.1f} MiB and went on with its rounds",
    )
