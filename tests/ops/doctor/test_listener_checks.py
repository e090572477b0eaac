"""The doctor on a fleet's own server, with the real Mosquitto: the door that its devices come by."""

from pathlib import Path

import pytest
from certificates import mosquitto
from secured_fleet import Secured, broker, make

from edgefl.fleet.authority import clock
from edgefl.fleet.mosquitto import FILES
from edgefl.fleet.revocation import lets_revoked_in
from edgefl.ops.doctor import network
from edgefl.wire.address import Address

pytestmark = pytest.mark.broker


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return make(tmp_path, "pi-1", "pi-2")


def told(port: int, secured: Secured) -> dict[str, str]:
    door = Address("mqtts", "127.0.0.1", port)
    return {found.what: found.level for found in network.listener(door, secured.fleet.folder.coordinator_tls())}


def test_nothing_is_wrong_with_the_door_of_a_new_fleet_and_the_revoked_stay_outside(fleet: Secured) -> None:
    with broker(fleet):
        door = Address("mqtts", "127.0.0.1", fleet.port)
        assert told(fleet.port, fleet) == {"TLS": "ok"}
        assert not lets_revoked_in(fleet.fleet, door, clock()), "nobody was revoked"
        assert fleet.edgefl("fleet", "revoke", "pi-1").returncode == 0
        assert not lets_revoked_in(fleet.fleet, door, clock())
        run = Path(__file__).parents[3] / "deploy/examples/digits/run.toml"
        doctor = fleet.edgefl("doctor", str(run))
        assert doctor.returncode == 0, doctor.stdout
        assert " 0 wrong" in doctor.stdout


def test_a_door_that_was_left_open_is_told(fleet: Secured, tmp_path: Path) -> None:
    """As if somebody had written a configuration of his own, and forgotten what makes it safe."""
    fleet.fleet.revoke("pi-1", clock())
    files, home = fleet.fleet.folder.broker, tmp_path / "careless"
    home.mkdir()
    for name in FILES:
        (home / name).write_bytes((files / name).read_bytes())
        (home / name).chmod(0o600)
    lines = f"cafile {home / 'ca.crt'}", f"certfile {home / 'broker.crt'}", f"keyfile {home / 'broker.key'}"
    with mosquitto(home, *lines, "allow_anonymous true", "tls_version tlsv1.2") as port:
        assert told(port, fleet) == {"TLS": "ok", "TLS version": "warning", "anonymous": "warning"}
    listed = "require_certificate true", "use_identity_as_username true", "tls_version tlsv1.3"
    with mosquitto(home, *lines, *listed) as port:
        assert lets_revoked_in(fleet.fleet, Address("mqtts", "127.0.0.1", port), clock()), "there is no crlfile"
    with mosquitto(home, *lines, *listed, f"crlfile {home / 'revoked.crl'}") as port:
        assert not lets_revoked_in(fleet.fleet, Address("mqtts", "127.0.0.1", port), clock())
    assert told(port, fleet) == {"listener": "wrong"}, "nobody is there any more"
