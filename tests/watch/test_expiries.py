"""Until when devices can show a certificate is told beside what lets one see it."""

from datetime import datetime, timezone
from pathlib import Path

from edgefl.base import events
from edgefl.fleet.members import Member, MemberCertificate, Members, MembersFile
from edgefl.watch.expiries import expiry
from edgefl.watch.overview.overview import Overview
from edgefl.wire.signing import Signer

ENDS = datetime(2027, 1, 31, tzinfo=timezone.utc)


def members(folder: Path) -> MembersFile:
    one = Member(key=Signer.new().key, added=ENDS, certificates=(MemberCertificate(serial="4f", expires=ENDS),))
    bare = Member(key=Signer.new().key, added=ENDS)
    (folder / "members.json").write_text(Members(members={"pi-01": one, "pi-02": bare}).model_dump_json())
    return MembersFile(folder / "members.json")


def test_a_member_that_comes_has_an_end_of_its_certificate(tmp_path: Path) -> None:
    told = expiry(members(tmp_path), events.Joined("pi-01", at=7.0))
    assert told == events.Certificate("pi-01", ENDS.timestamp(), at=7.0)
    overview = Overview()
    overview.tell(events.Joined("pi-01", at=7.0))
    overview.tell(told)
    (row,) = overview.changes(1).devices
    assert row.certificate_ends == ENDS.timestamp()


def test_of_others_and_of_other_facts_nothing_is_told(tmp_path: Path) -> None:
    known = members(tmp_path)
    assert expiry(known, events.Joined("pi-02")) is None
    assert expiry(known, events.Joined("stranger")) is None
    assert expiry(known, events.Lost("pi-01")) is None
    assert expiry(None, events.Joined("pi-01")) is None
