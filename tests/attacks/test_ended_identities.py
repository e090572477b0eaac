"""Who was revoked, or whose certificate ended while it was connected, is out: at the broker, and without its help."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fleets import until
from members_run import MEMBER, MembersRun
from secured_fleet import Party, Secured, broker, make

from edgefl.fleet import revocation
from edgefl.fleet.administration import DEVICE
from edgefl.fleet.authority import clock
from edgefl.wire import topics
from edgefl.wire.messages import DeclinedMessage, frame
from edgefl.wire.transport import ConnectionMade

NOT_AUTHORIZED = 0x87


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MembersRun]:
    """MEMBER's certificate has an hour left."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    playing = MembersRun(DEVICE - timedelta(hours=1))
    yield playing
    playing.close()


@pytest.mark.parametrize("how", ["revoked", "ended"])
def test_a_coordinator_s_list_counts_at_a_broker_that_knows_none(held: MembersRun, how: str) -> None:
    if how == "revoked":
        held.fleet.revoke(MEMBER, clock())
    else:
        held.late = 2 * 3600.0  # its certificate had an hour left when it connected
    until(lambda: held.happened("lost", MEMBER))
    held.puppets[MEMBER].say(frame(DeclinedMessage(job="fleet", round=1, reason="still here")))
    until(lambda: held.refused("device.revoked", "device.unknown"))
    assert not held.happened("declined", MEMBER)
    held.puppets[MEMBER]._deliver(ConnectionMade())  # it announces itself again
    until(lambda: [one for one in held.happened("refused", MEMBER) if one["code"] == "device.key"])
    assert len(held.happened("joined", MEMBER)) == 1


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
