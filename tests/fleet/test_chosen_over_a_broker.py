"""`rounds.where` over a real broker: the model of the loop, and labels that change while the run goes on."""

import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import secured_fleet
from fleets import Fleet, loop, run_file, until
from logged import logged
from secured_fleet import EDGEFL, Secured

from device_agent import enrol
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport

PATIENCE = 120.0  # seconds until something is lost rather than late
NORTH = {name: {"site": "north"} for name in ("device-00", "device-01", "device-03")}
NAMES = "pi-01", "pi-02", "pi-03"
RUN = """
[run]
name = "chosen"
rounds = 1000000
[task]
data = "digits"
model = "softmax"
partition = { kind = "iid", devices = 3 }
[algorithm]
name = "fedavg"
batches = 2
[rounds]
where = "site == 'north' and memory_mb > 1"
cohort = 2
quorum = 1
deadline = 5.0
"""


@pytest.mark.broker
def test_a_fleet_over_mosquitto_ends_with_the_model_of_the_loop(mosquitto: Broker, tmp_path: Path) -> None:
    run = run_file({"name": "scaffold"}, fleet={"labels": NORTH}, rounds={"where": "site == 'north'", "cohort": 2})
    told: list[dict[str, Any]] = []
    fleet = Fleet(run, tmp_path, lambda client: MqttTransport(mosquitto.address, client))
    fleet.start_all()
    run_state = fleet.coordinator(told.append, folder=tmp_path / "coordinator").run()
    fleet.stop()  # the device that was never asked does not know that the run was for it
    fleet.join()
    assert run_state.sha256() == loop(run).sha256()
    assert {name for one in told if one["event"] == "asked" for name in one["devices"]} == set(NORTH)
    assert [(one["device"], one["reason"]) for one in told if one["event"] == "excluded"] == [
        ("device-02", "it has no 'site'")
    ]
    joined = {one["device"]: one for one in told if one["event"] == "joined"}
    assert set(joined) == {*NORTH, "device-02"}
    assert all(one["arch"] and one["memory_mb"] > 0 for one in joined.values()), "as this machine says"


class Labelled:
    """A secured fleet of three that trains, and what its facts say."""

    def __init__(self, secured: Secured, running: list[subprocess.Popen[bytes]]) -> None:
        self.secured, self.running = secured, running

    def until(self, true: Callable[[], object]) -> None:
        """Wait for what comes as long as no process has ended."""

        def holds() -> object:
            assert [process.poll() for process in self.running] == [None] * len(self.running)
            return true()

        until(holds, PATIENCE)

    def facts(self, kind: str) -> list[dict[str, Any]]:
        done = self.secured.edgefl("replay", "runs/chosen", "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [one for one in lines if one["event"] == kind]

    def asked_since(self, round: int) -> set[str]:
        return {name for one in self.facts("asked") if one["round"] > round for name in one["devices"]}

    def round(self) -> int:
        return max((one["round"] for one in self.facts("round")), default=0)


@pytest.mark.broker
@pytest.mark.timeout(300)
def test_labels_that_change_in_a_live_run_say_who_is_asked_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured = secured_fleet.make(tmp_path, *NAMES)
    (tmp_path / "run.toml").write_text(RUN)
    refused = secured.edgefl("coordinator", "start", "run.toml", "--no-rehearse")
    assert refused.returncode == 2
    assert "rounds.where: no device has a label 'site'" in refused.stderr
    assert "`edgefl fleet label DEVICE site=VALUE` gives it to one" in refused.stderr
    assert secured.edgefl("fleet", "label", "pi-01", "site=north").returncode == 0
    agents = [str(enrol.install(secured.kits[name], tmp_path / "devices", "digits")) for name in NAMES]
    commands = [["coordinator", "start", "run.toml", "--no-rehearse"], *(["agent", "start", one] for one in agents)]
    with ExitStack() as until_done:
        until_done.enter_context(secured_fleet.broker(secured))
        running = [
            until_done.enter_context(
                logged([*EDGEFL, *words], tmp_path / f"{name}.log", env=secured.environment, cwd=tmp_path)
            )
            for name, words in zip(("coordinator", *NAMES), commands, strict=True)
        ]
        live = Labelled(secured, running)
        live.until(lambda: live.round() >= 2 and len(live.facts("excluded")) >= 2)
        assert live.asked_since(0) == {"pi-01"}
        text = secured.edgefl("status", "chosen", "--once").stdout
        assert "not asked (rounds.where does not mean them): pi-02, pi-03" in text
        narrow = json.loads(secured.edgefl("status", "chosen", "--json", "--where", "site == 'north'").stdout)
        assert [(one["name"], one["labels"]) for one in narrow["devices"]] == [("pi-01", {"site": "north"})]

        assert secured.edgefl("fleet", "label", "pi-03", "site=north").returncode == 0
        assert secured.edgefl("fleet", "label", "pi-01", "site=").returncode == 0
        live.until(lambda: any(one["device"] == "pi-01" for one in live.facts("excluded")))
        since = live.round() + 1
        live.until(lambda: live.round() >= since + 2)
        assert live.asked_since(since) == {"pi-03"}
        assert [one["device"] for one in live.facts("included")] == ["pi-03"]
        listed = secured.edgefl("fleet", "list", "--json", "--where", "site == 'north'").stdout.splitlines()
        assert [json.loads(line)["name"] for line in listed] == ["pi-03"]
