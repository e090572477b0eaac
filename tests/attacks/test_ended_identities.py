"""Who was revoked, or whose certificate ended while it was connected, is out: at the broker, and without its help."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from facts import in_json
from fleets import prepared, run_file, until
from puppet import Puppet
from secured_fleet import Party, Secured, broker, make

from coordinator.device_keys import DeviceKeys
from coordinator.threaded import Threaded
from edgefl.errors import Interrupted
from edgefl.fleet import authority, revocation
from edgefl.fleet.administration import DEVICE, Fleet
from edgefl.fleet.authority import clock
from edgefl.fleet.members import MembersFile
from edgefl.protocol import topics
from edgefl.protocol.in_memory_broker import InMemoryBroker
from edgefl.protocol.messages import Declined, frame
from edgefl.protocol.transport import Connected

RUN = run_file({"name": "fedavg"}, run={"rounds": 2}, rounds={"cohort": 2, "quorum": 2, "start_with": 2})
MEMBER, OTHER = "device-00", "device-01"
NOT_AUTHORIZED = 0x87


class Held:
    """A run at a broker that knows no lists and no certificates; `clock` is the one that the members are judged by."""

    def __init__(self) -> None:
        self.broker, self.events, self.late = InMemoryBroker(), list[dict[str, Any]](), 0.0
        connect = self.broker.client
        self.puppets = {name: Puppet(name, connect(name), lambda *_: None, job="fleet") for name in (MEMBER, OTHER)}
        self.fleet = Fleet.new("default", ["localhost"], 8883, clock())
        ends_soon = clock() - DEVICE + timedelta(hours=1)
        for name, begun in ((MEMBER, ends_soon), (OTHER, clock())):
            self.fleet.admit(name, authority.new_key().public_key(), self.puppets[name].speaker.key, begun)
        members = MembersFile(self.fleet.folder.members, wall=lambda: clock().timestamp() + self.late)
        self.coordinator = Threaded(
            RUN,
            connect("coordinator"),
            lambda: prepared(RUN)[0],
            tell=in_json(self.events.append),
            device_keys=DeviceKeys(members=members),
        )
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with suppress(Interrupted):
            self.coordinator.run()

    def start(self) -> None:
        self.thread.start()
        for puppet in self.puppets.values():
            puppet.start()
        until(lambda: all(puppet.run for puppet in self.puppets.values()))

    def happened(self, event: str) -> list[dict[str, Any]]:
        return [told for told in list(self.events) if told["event"] == event and told.get("device") == MEMBER]


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    playing = Held()
    playing.start()
    yield playing
    playing.coordinator.stop()
    playing.thread.join(60)


@pytest.mark.parametrize("how", ["revoked", "ended"])
def test_a_coordinator_s_list_counts_at_a_broker_that_knows_none(held: Held, how: str) -> None:
    if how == "revoked":
        held.fleet.revoke(MEMBER, clock())
    else:
        held.late = 2 * 3600.0  # its certificate had an hour left when it connected
    until(lambda: held.happened("lost"))
    held.puppets[MEMBER].say(frame(Declined(job="fleet", round=1, reason="still here")))
    until(
        lambda: sum(held.coordinator.shell.state.refusals.get(code, 0) for code in ("device.revoked", "device.unknown"))
    )
    assert not held.happened("declined")
    held.puppets[MEMBER]._deliver(Connected())  # it announces itself again
    until(lambda: [one for one in held.happened("refused") if one["code"] == "device.key"])
    assert len(held.happened("joined")) == 1


# ---- at the broker ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("fleet")
        patch.setenv("XDG_STATE_HOME", str(state))
        fleet = make(state, "pi-1", "pi-2")
        with broker(fleet):
            yield fleet


@pytest.mark.broker
def test_at_a_broker_that_read_the_list_a_revoked_one_has_neither_connection_nor_rights(secured: Secured) -> None:
    device = Party(secured.port, secured.tls("pi-1"))
    assert device.publish(topics.presence("default", "pi-1")) != NOT_AUTHORIZED
    assert revocation.revoke(secured.fleet, "pi-1") == "out"
    assert device.hears() == "disconnected"
    device.close()
    assert not revocation._let_in(secured.address, secured.tls("pi-1"))
    assert revocation._let_in(secured.address, secured.tls("pi-2")), "others are"
