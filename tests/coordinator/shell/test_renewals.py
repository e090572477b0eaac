"""Who gets a new certificate from the fleet's authority, and who does not."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from coordinator.decide import vocabulary
from coordinator.shell.renewals import Renewals
from edgefl.base import events
from edgefl.fleet import administration, authority, last_seen
from edgefl.fleet.administration import DEVICE, FleetAdministration
from edgefl.fleet.members import LOOK, MembersFile
from edgefl.fleet.renewals import SOON
from edgefl.watch import fleet_inventory
from edgefl.watch.fleet_inventory import EVERY, LastSeenWriter


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetAdministration:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    fleet = FleetAdministration.new("default", ["localhost"], 8883, authority.clock())
    fleet.add("pi-01", authority.clock())
    return fleet


def answered(request: str, device: str = "pi-01") -> list[Any]:
    events: list[Any] = []
    Renewals("default").work(device, request, 7.0)(events.append)
    return events


def request() -> str:
    return authority.request("pi-01", authority.new_key()).decode()


def later(monkeypatch: pytest.MonkeyPatch, after: timedelta) -> None:
    then = authority.clock() + after
    monkeypatch.setattr(authority, "clock", lambda: then)


def test_a_member_whose_certificate_ends_soon_gets_another(
    fleet: FleetAdministration, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch, DEVICE * (1 - SOON) + timedelta(days=2))
    wish = request()
    [event] = answered(wish)
    certificate = authority.read_certificate(event.certificate.encode())
    assert (event.device, certificate.public_key()) == ("pi-01", authority.requested_key(wish.encode()))
    member = fleet.members.active()["pi-01"]
    assert member.expires == certificate.not_valid_after_utc
    assert len(member.certificates) == 2


def test_who_needs_none_gets_none_so_that_nobody_fills_the_list(fleet: FleetAdministration) -> None:
    before = fleet.members
    assert answered(request()) == []
    assert fleet.members == before


def test_who_was_sent_away_gets_none(fleet: FleetAdministration, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.revoke("pi-01", authority.clock())
    later(monkeypatch, DEVICE * 0.9)
    assert answered(request()) == []
    assert answered(request(), "stranger") == []


def test_who_is_replaced_while_its_request_is_looked_at_gets_none(
    fleet: FleetAdministration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate for the old device would be one of the new device's, and nobody would revoke it."""
    later(monkeypatch, DEVICE * 0.9)
    renew = FleetAdministration.renew

    def replaced_first(self: FleetAdministration, *about: Any) -> bytes:
        fleet.add("pi-01", authority.clock(), replace=True)
        return renew(self, *about)

    monkeypatch.setattr(FleetAdministration, "renew", replaced_first)
    assert answered(request()) == []
    assert sum(one.revoked is None for one in fleet.members.active()["pi-01"].certificates) == 1


def test_a_request_that_cannot_be_read_is_held_against_its_device(fleet: FleetAdministration) -> None:
    [event] = answered("-----BEGIN CERTIFICATE REQUEST-----")
    assert isinstance(event, vocabulary.Misbehaved)
    assert (event.device, event.code) == ("pi-01", "renewal.malformed")


def test_a_damaged_authority_does_not_end_the_run(fleet: FleetAdministration, caplog: pytest.LogCaptureFixture) -> None:
    fleet.folder.authority[1].write_bytes(b"nothing")
    assert answered(request()) == []
    assert "damaged" in caplog.text


def test_a_member_is_not_heard_any_more_when_it_was_revoked_or_its_certificate_has_ended(
    fleet: FleetAdministration,
) -> None:
    now = authority.clock().timestamp()
    file = MembersFile(fleet.folder.members, lambda: now)
    assert file.key_of("pi-01") == fleet.members.active()["pi-01"].key
    now += DEVICE.total_seconds() - 60
    assert file.key_of("pi-01") is not None
    now += 120
    assert file.key_of("pi-01") is None
    now = 0.0
    fleet.revoke("pi-01", authority.clock())
    assert file.key_of("pi-01") is None


def test_messages_by_the_thousand_cost_one_look_a_second_and_a_revoked_sender_is_not_heard_longer(
    fleet: FleetAdministration, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, looks = 0.0, list[Path]()
    file, stat = MembersFile(fleet.folder.members, clock=lambda: seconds), Path.stat
    key = fleet.members.active()["pi-01"].key
    monkeypatch.setattr(Path, "stat", lambda path: (looks.append(path), stat(path))[1])
    assert all(file.still("pi-01", key) for _ in range(1000))
    read = len(looks)
    fleet.revoke("pi-01", authority.clock())
    looks.clear()
    seconds = LOOK - 0.01
    assert all(file.still("pi-01", key) for _ in range(1000))
    assert not looks
    seconds = LOOK
    assert not any(file.still("pi-01", key) for _ in range(1000))
    assert len(looks) == read
    assert file.key_of("pi-01") is None


def test_who_was_seen_is_written_once_in_a_while(fleet: FleetAdministration, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[float] = []
    monkeypatch.setattr(fleet_inventory.last_seen, "write", lambda _folder, seen: writes.append(len(seen)))
    seen = LastSeenWriter(fleet.folder.seen, "run")
    for second in range(int(EVERY) + 1):
        seen(events.Answered("pi-01", 1, 10, at=1e9 + second))
    seen(events.Waiting("nobody", at=1e9 + 2 * EVERY))
    assert len(writes) == 2
    for second in range(20):
        seen(events.Joined("pi-02", 5, at=1e9 + EVERY + 2 + second))
    assert len(writes) == 3, "who comes for the first time is written at once, who comes and goes is not"


def test_who_was_seen_stands_in_the_file_and_an_older_sighting_does_not_replace_it(fleet: FleetAdministration) -> None:
    folder = fleet.folder.seen
    first, second = LastSeenWriter(folder, "one"), LastSeenWriter(folder, "two")
    first(events.Joined("pi-01", 5, version="0.2", at=1e9))
    second(events.Joined("pi-02", 5, version="0.1", at=1e9 + 1))
    first(events.Answered("pi-01", 1, 10, at=1e9 + 2))
    first.write(), second.write()
    LastSeenWriter(folder, "three").write()
    known = last_seen.read(folder)
    assert {name: (one.at.timestamp(), one.version) for name, one in known.items()} == {
        "pi-01": (1e9 + 2, "0.2"),
        "pi-02": (1e9 + 1, "0.1"),
    }
    assert timedelta(0) < administration.DEVICE
