"""An operator's mistake with a fleet, its broker or a kit gets one line that says what to do, and exit code 2."""

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefl.cli.app import main
from edgefl.fleet.folder import FleetFolder
from edgefl.system.locks import own
from edgefl.wire.broker import find_mosquitto

Edgefl = Callable[..., tuple[int, str]]


@pytest.fixture
def edgefl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Edgefl:
    """Run a command for an operator who has no fleet yet: its exit code and what it said on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", *words])
        with pytest.raises(SystemExit) as end:
            main()
        code = end.value.code
        return (0 if code is None else int(code)), capsys.readouterr().err.strip()

    return run


@pytest.fixture
def port(edgefl: Edgefl) -> int:
    """The port of a fleet on loopback with the device pi-01, whose kit lies in the current folder."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = int(server.getsockname()[1])
    assert edgefl("fleet", "init", "--host", "127.0.0.1", "--port", str(number), "--devices", "pi-01") == (0, "")
    return number


@pytest.mark.usefixtures("port")
def test_a_second_init_speaks_of_the_fleet_and_not_of_its_kits(edgefl: Edgefl) -> None:
    code, error = edgefl("fleet", "init", "--devices", "pi-01")
    assert code == 2
    assert "fleet 'default' is there already" in error


@pytest.mark.usefixtures("port")
def test_a_second_add_speaks_of_the_member_and_not_of_its_kit(edgefl: Edgefl) -> None:
    code, error = edgefl("fleet", "add", "pi-01")
    assert code == 2
    assert "'pi-01' is a member of fleet 'default' already: --replace" in error


@pytest.mark.usefixtures("port")
@pytest.mark.parametrize("option", [["--bind", "127.0.0.1"], ["--port", "1883"], ["--user", "fleet"]])
def test_an_option_that_a_fleets_broker_would_not_heed_is_refused(option: list[str], edgefl: Edgefl) -> None:
    code, error = edgefl("broker", "start", *option)
    assert code == 2
    assert f"{option[0]}: the broker of fleet 'default' listens where `edgefl fleet init` said" in error


@pytest.mark.usefixtures("port")
def test_a_second_broker_of_a_fleet_is_told_of_the_first(edgefl: Edgefl) -> None:
    with own(FleetFolder("default").broker):
        code, error = edgefl("broker", "start")
    assert code == 2
    assert error.endswith(f"is in use by process {os.getpid()}: the broker of this fleet runs already")


@pytest.mark.skipif(find_mosquitto() is None, reason="Mosquitto is not installed")
def test_a_fleets_port_in_use_is_not_changed_by_an_option(port: int, edgefl: Edgefl) -> None:
    with socket.create_server(("127.0.0.1", port)):
        code, error = edgefl("broker", "start")
    assert code == 2
    assert f"broker port {port} on 127.0.0.1 cannot be used (address already in use)" in error
    assert "choose another with --port" not in error


@pytest.mark.usefixtures("port")
@pytest.mark.parametrize("part", ["ca", "certificate", "key", "device_key"])
def test_a_damaged_kit_is_not_installed(part: str, edgefl: Edgefl) -> None:
    kit = json.loads(Path("pi-01.kit").read_text())
    begin, body = kit[part].split("\n", 1)
    kit[part] = f"{begin}\nAAAA{body[4:]}"
    Path("pi-01.kit").write_text(json.dumps(kit))
    code, error = edgefl(
        "agent", "enrol", "pi-01.kit", "--data", "npz:windows.npz", "--install-only", "--folder", "home"
    )
    assert code == 2
    assert "\n" not in error
    assert "copy it again from the server" in error
    assert not Path("home").exists()


@pytest.mark.usefixtures("port")
def test_data_that_are_not_there_yet_are_said_at_the_installation(edgefl: Edgefl) -> None:
    code, error = edgefl(
        "agent", "enrol", "pi-01.kit", "--data", "npz:/nothere.npz", "--install-only", "--folder", "home"
    )
    assert code == 0
    assert "edgefl: its agent will not train yet: data set 'npz:/nothere.npz': /nothere.npz is not a file" in error
