"""A private device may be killed at any write: every update that could have left it is counted, on its own disk."""

import json
import signal
from pathlib import Path

import pytest
from fleet import Fleet, expected

from device_agent.durable.privacy_ledger import NAME

pytestmark = [pytest.mark.broker, pytest.mark.timeout(200)]

SEEDED = {"mechanism": "output", "clip": 5.0, "sigma": 0.01, "noise": "seeded"}
PRIVATE = {"name": "upcycled", "epochs": 1, "privacy": SEEDED}
ODD = 2  # of four rounds


def events(fleet: Fleet, name: str) -> int:
    """How many private updates the device says it has computed."""
    path = fleet.folder / "agents" / name / NAME
    return sum(spent["odd_updates"] for spent in json.loads(path.read_text()).values()) if path.exists() else 0


def spooled(fleet: Fleet, name: str) -> int:
    """How many of them it had ready to be sent."""
    return (fleet.folder / f"{name}.log").read_text().count(" trained round=")


@pytest.mark.parametrize("fault", ["kill:6", "full:5"])
def test_every_private_update_is_counted_whatever_its_device_dies_of(fault: str, tmp_path: Path) -> None:
    with Fleet(tmp_path, algorithm=PRIVATE) as fleet:
        life = fleet.coordinator()
        first, *others = fleet.names
        for name in others:
            fleet.agent(name)
        fleet.agent(first, fault)
        lost = 0
        if fault.startswith("kill"):
            fleet.agents[first].join(60)
            assert fleet.agents[first].exitcode == -signal.SIGKILL
            lost = events(fleet, first) - spooled(fleet, first)
            assert lost == 1  # computed and counted, and then there was nothing to send: the round is trained again
            fleet.agent(first)
        ended = fleet.until_done(life)
        assert ended["sha256"] == expected(fleet.table)  # seeded noise: the same model, however often it was trained
        assert {name: events(fleet, name) for name in fleet.names} == {first: ODD + lost, **dict.fromkeys(others, ODD)}
