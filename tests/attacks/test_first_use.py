"""Who speaks first is not believed: a real agent process at a real broker, and a forger who has the password too."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from facts import in_json
from fleets import prepared, run_file

from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import Interrupted
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import device_names
from edgefl.wire import broker as brokers
from edgefl.wire.address import Address, parse
from edgefl.wire.first_use import missing_key
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.signing import Signer

RUN = run_file({"name": "fedavg"}, run={"rounds": 1}, rounds={"cohort": 1, "quorum": 1, "start_with": 1})
OURS, FORGER = Signer.new(), Signer.new()
PASSWORD = "shared-by-all"
AGENT = """
[agent]
id = "{id}"
broker = "{broker}"
folder = "{folder}"
{more}
[data]
source = "synthetic"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 4 }}
public = 0.1
seed = 3
"""


def agent(folder: Path, broker: object, more: str = "") -> subprocess.Popen[str]:
    file = folder / "agent.toml"
    file.write_text(AGENT.format(id=device_names(4)[0], broker=broker, folder=folder / "state", more=more))
    command = [sys.executable, "-m", "edgefl", "agent", "start", str(file), "--once"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={"EDGEFL_MQTT_PASSWORD": PASSWORD, "PATH": "", "HOME": str(folder)},
    )  # fmt: skip


@pytest.fixture
def shared() -> Iterator[Address]:
    """A broker where everybody has the same user and password, on loopback."""
    if brokers.find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    with brokers.start(prefer="mosquitto", users={"fleet": PASSWORD}) as running:
        where = running.address
        yield Address(where.scheme, where.host, where.port, "fleet", PASSWORD)


def serve(run: RunFile, broker: Address, signer: Signer, told: list[dict[str, Any]], declined: str) -> None:
    """A coordinator that ends with its run, or when a device declines for the reason given."""

    def tell(event: dict[str, Any]) -> None:
        told.append(event)
        if event["event"] == "declined" and declined in event["reason"]:
            serving.stop()

    transport = MqttTransport(broker, f"coordinator-{signer.key[-6:]}")
    serving = Threaded(run, transport, lambda: prepared(run)[0], tell=in_json(tell), security=Security(signer))
    with suppress(Interrupted):
        serving.run()


@pytest.mark.broker
def test_a_forger_that_speaks_first_is_not_believed_and_gets_no_update(shared: Address, tmp_path: Path) -> None:
    forged: list[dict[str, Any]] = []
    first = threading.Thread(target=serve, args=(RUN, shared, FORGER, forged, "message.key"), daemon=True)
    first.start()
    process = agent(tmp_path, shared, f'coordinator = "{OURS.key}"')
    try:
        first.join(120)
        assert not first.is_alive()
        true: list[dict[str, Any]] = []
        serve(RUN, shared, OURS, true, "never")
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert f"signed by {FORGER.key}, but this device trusts {OURS.key}" in output
    assert not {"answered", "round"} & {event["event"] for event in forged}, "nothing was trained for the forger"
    assert "round" in {event["event"] for event in true}


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts"])
def test_an_agent_across_a_network_without_a_key_does_not_start(scheme: str, tmp_path: Path) -> None:
    """Whoever is at that address is not even asked."""
    process = agent(tmp_path, f"{scheme}://fleet@192.0.2.1")
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2
    (line,) = output.splitlines()
    assert line.startswith(
        "edgefl: agent.coordinator is not set, so this device would trust the first coordinator that it meets at "
    )
    assert 'write coordinator = "ed25519:..." under [agent]' in line
    assert "`edgefl coordinator key run.toml` prints it on the server" in line


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("mqtt://localhost", True),
        ("mqtt://127.0.0.9:1", True),
        ("mqtt://[::1]:1883", True),
        ("mqtt://localhost.example", False),
        ("mqtt://127.0.0.1.example", False),
        ("mqtt://[fe80::1]", False),
        ("mqtt://0.0.0.0", False),
        ("mqtts://server.local", False),
    ],
)
def test_what_is_loopback_is_known_from_the_address_alone(url: str, may: bool) -> None:
    assert (missing_key(parse(url), None) is None) is may
    assert missing_key(parse(url), OURS.key) is None
