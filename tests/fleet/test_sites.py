"""Two sites with a broker each, bridged, as `edgefl fleet site` makes them: real Mosquittos, TLS, one site cut off."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, prepared, run_file, until
from proxy import Proxy
from secured_fleet import EDGEFL, Party, Secured, broker, free_ports, make

from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import ConfigError, Interrupted
from edgefl.base.events import as_json
from edgefl.fleet import revocation, sites
from edgefl.fleet.authority import clock
from edgefl.fleet.members import MembersFile
from edgefl.fleet.sites import SiteFile
from edgefl.system.store import make_private, write_atomically
from edgefl.wire import topics
from edgefl.wire.address import Address
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.opening import admitted
from edgefl.wire.tls import Tls
from edgefl.wire.transport import Transport

OK, NOT_AUTHORIZED = 0x00, 0x87
NOBODY_LISTENS = 0x10
HERE, NORTH = "device-00", ("device-01", "device-02")

pytestmark = pytest.mark.broker


def make_site(secured: Secured, path: Path) -> SiteFile:
    """A site 'north' of two devices, each with a kit for it."""
    made = sites.add(secured.fleet, "north", ["127.0.0.1"], free_ports(), clock(), replace=False)
    secured.kits.update({name: secured.fleet.add(name, clock(), site="north") for name in NORTH})
    made = made.model_copy(update={"members": sites.members_of(secured.fleet, "north")})
    sites.write(made, path)
    return made


@contextmanager
def site_broker(secured: Secured, path: Path) -> Iterator[None]:
    """The site's broker, as its operator starts it."""
    command = [*EDGEFL, "broker", "start", "--site", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=secured.environment) as process:
        try:
            assert process.stdout is not None
            assert "listens on" in process.stdout.readline()
            yield
        finally:
            process.terminate()


def let_in(address: Address, files: Tls) -> bool:
    with suppress(ConfigError):
        admitted(address, files)
        return True
    return False


class Story:
    """What the coordinator tells."""

    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []

    def lost(self, why: str) -> set[str]:
        return {fact["device"] for fact in self.facts if fact["event"] == "lost" and why in fact.get("reason", "")}

    def rounds(self, devices: int) -> int:
        return sum(fact["event"] == "round" and fact["devices"] == devices for fact in self.facts)


def test_a_run_goes_on_while_a_site_is_cut_off_and_with_all_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured, path = make(tmp_path, HERE), tmp_path / "north.site"
    made = make_site(secured, path)
    at_site = Address("mqtts", "127.0.0.1", made.port)
    run = run_file(
        {"name": "fedavg"},
        run={"rounds": 100_000},
        task={"partition": {"kind": "iid", "devices": 3}},
        rounds={"cohort": 3, "quorum": 1, "start_with": 3, "deadline": 600.0},
    )

    def connect(name: str) -> Transport:
        member = name if name in secured.kits else "coordinator"
        where = at_site if member in NORTH else secured.address
        return MqttTransport(where, name, tls=secured.tls(member))

    with broker(secured), Proxy(secured.port) as line:
        sites.write(made.model_copy(update={"centre": f"mqtts://127.0.0.1:{line.port}"}), path)
        with site_broker(secured, path):
            fleet, story = Fleet(run, tmp_path / "agents", connect, once=False), Story()
            coordinator = Threaded(
                run,
                connect("coordinator"),
                lambda: prepared(run)[0],
                tell=lambda fact: story.facts.append(as_json(fact)),
                security=Security(device_keys=DeviceKeys(members=MembersFile(secured.fleet.folder.members))),
            )
            for name in fleet.data:
                make_private(tmp_path / "agents" / name)
                write_atomically(tmp_path / "agents" / name / "device.key", secured.kits[name].device_key.encode())
                host = fleet.agent(name)
                host.agent.attendance.site = secured.kits[name].site
                fleet.start(host)

            def coordinate() -> None:
                with suppress(Interrupted):
                    coordinator.run()

            running = threading.Thread(target=coordinate)
            running.start()
            try:
                until(lambda: story.rounds(3))
                line.shut()
                until(lambda: story.lost("its site 'north' is cut off") == set(NORTH))
                before = story.rounds(1)
                until(lambda: story.rounds(1) > before + 3)
                assert revocation.revoke(secured.fleet, "device-02") == "out"
                assert not revocation.told_at(secured.fleet, "north", patience=0.2)
                assert let_in(at_site, secured.tls("device-02")), "its broker cannot know yet"
                line.open()
                until(lambda: story.rounds(2))
                until(lambda: not let_in(at_site, secured.tls("device-02")))
                assert revocation.told_at(secured.fleet, "north")
                assert let_in(at_site, secured.tls("device-01"))
            finally:
                coordinator.stop()
                fleet.stop()
                running.join(60)
                fleet.join()


def test_a_bridge_speaks_for_the_devices_of_its_site_and_for_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured = make(tmp_path, HERE)
    made = make_site(secured, tmp_path / "north.site")
    bridge = Tls(ca=tmp_path / "ca", certificate=tmp_path / "crt", key=tmp_path / "key")
    texts = (bridge.ca, made.ca), (bridge.certificate, made.bridge_certificate), (bridge.key, made.bridge_key)
    for file, text in texts:
        assert file is not None
        file.touch(mode=0o600)
        file.write_text(text)
    with broker(secured):
        party = Party(secured.port, bridge)
        assert party.publish(topics.up("default", "job", NORTH[0])) == NOBODY_LISTENS
        assert party.publish(topics.presence("default", NORTH[1])) == NOBODY_LISTENS
        forbidden = (
            topics.up("default", "job", HERE),
            topics.presence("default", HERE),
            topics.state("default", "job"),
            topics.down("default", "job", NORTH[0]),
            topics.site("default", "south"),
            sites.list_topic("default", "north"),
        )
        assert [party.publish(topic) for topic in forbidden] == [NOT_AUTHORIZED] * len(forbidden)
        party.close()
        stranger = Party(secured.port, secured.tls(NORTH[0]))
        assert stranger.publish(topics.up("default", "job", NORTH[0])) == NOT_AUTHORIZED, "it is at its site's broker"
        stranger.close()
