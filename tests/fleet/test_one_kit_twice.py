"""Two agents with one kit put each other off the line: both sides say what is the matter, once, and what to do."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, run_file, until
from secured_fleet import Secured, broker, make

from device_agent.durable.birth_number import Birth
from device_agent.durable.identity import NAME
from device_agent.shell.duplicate_identity import CERTAIN, DuplicateIdentity
from edgefl.base.errors import Interrupted
from edgefl.wire.messages import Presence
from edgefl.wire.mqtt import MqttTransport

DEVICE, COPY = "device-00", "copy"
RUN = run_file({"name": "fedavg"}, rounds={"cohort": 2, "quorum": 2, "start_with": 2})
MATTER = f"two agents have the keys of '{DEVICE}'"


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    fleet = make(tmp_path, DEVICE)
    with broker(fleet):
        yield fleet


@pytest.mark.night
@pytest.mark.broker
def test_both_agents_and_the_coordinator_say_that_a_kit_was_installed_twice(
    secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def connect(name: str) -> MqttTransport:
        if name.startswith("coordinator"):
            return MqttTransport(secured.fleet.folder.here, name)
        return MqttTransport(secured.address, name, tls=secured.tls(DEVICE))

    fleet, told = Fleet(RUN, tmp_path, connect, once=False), list[dict[str, Any]]()
    for client in (DEVICE, COPY):
        (tmp_path / client).mkdir()
        (tmp_path / client / NAME).touch(mode=0o600)
        (tmp_path / client / NAME).write_text(secured.kits[DEVICE].device_key)
    hosts = [fleet.agent(DEVICE, client=client) for client in (DEVICE, COPY)]
    coordinator = fleet.coordinator(told.append)

    def run() -> None:
        with pytest.raises(Interrupted):
            coordinator.run()

    threads = [threading.Thread(target=host.run, daemon=True) for host in hosts]
    threads.append(threading.Thread(target=run, daemon=True))
    for thread in threads:
        thread.start()

    def refusals() -> list[str]:
        return [event["reason"] for event in told if event.get("code") == "device.copied"]

    until(lambda: all(any(MATTER in line for line in host.agent.complaints) for host in hosts))
    until(refusals)
    lost = sum(event["event"] == "lost" for event in told)
    until(lambda: sum(event["event"] == "lost" for event in told) > lost + 2)  # it goes on, and nothing more is said
    for host in hosts:
        host.stop()
    coordinator.stop()
    for thread in threads:
        thread.join(60)
    assert [line.count(MATTER) for line in refusals()] == [1]
    assert "edgefl fleet add" in refusals()[0]
    assert sum(MATTER in line for line in caplog.messages if not line.startswith("refused")) <= len(hosts)
    assert not [event for event in told if event.get("code") == "message.replayed"], "nobody repeats anything"


OURS = Birth("here", 4, before=2)


def presence(installation: str = "here", birth: int = 4) -> Presence:
    return Presence(online=False, installation=installation, birth=birth, host="h")


@pytest.mark.parametrize(
    ("theirs", "by_us", "other"),
    [
        (presence("there", 1), False, True),
        (presence(birth=5), False, True),
        (presence(), False, True),
        (presence(), True, False),
        (presence(birth=3), False, True),
        (presence(birth=2), False, False),
    ],
    ids=[
        "another installation",
        "a copied disk",
        "a copied disk of the same birth",
        "ours",
        "a copied disk that was started before ours",
        "an earlier life of ours",
    ],
)
def test_another_agent_is_certain_when_it_was_met_in_several_connections(
    theirs: Presence, by_us: bool, other: bool
) -> None:
    duplicate = DuplicateIdentity(OURS)
    for _ in range(CERTAIN):
        duplicate.connected()
        assert not duplicate.certain
        for _ in range(3):
            duplicate.heard(theirs, by_us=by_us)
    assert duplicate.certain is other


def test_what_an_earlier_installation_left_at_the_broker_is_no_other_agent() -> None:
    duplicate = DuplicateIdentity(OURS)
    for _ in range(2 * CERTAIN):
        duplicate.connected()
        duplicate.heard(presence("before", 9), by_us=False)
        duplicate.connected()  # ours stands there by now
    assert not duplicate.certain
