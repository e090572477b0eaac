"""What a device says becomes an event: of peers of another version too."""

from datetime import datetime, timezone
from pathlib import Path

import pytest
from test_shell import Hand

from coordinator.shell.device_keys import DeviceKeys
from edgefl.base import events
from edgefl.fleet.members import Member, MemberCertificate, Members, MembersFile
from edgefl.wire import topics
from edgefl.wire.messages import Presence
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer

UNSIGNED = b'{"online": true, "installation": "x", "birth": 1}'
LATER = b"ES\x63" + bytes(120)  # an envelope of version 99


@pytest.mark.parametrize(("presence", "code"), [(UNSIGNED, "message.unsigned"), (LATER, "message.version")])
@pytest.mark.parametrize("name", ["pi-01", "stranger"])
def test_a_member_that_speaks_another_version_of_the_wire_is_named(
    name: str, presence: bytes, code: str, tmp_path: Path
) -> None:
    ends = datetime(2100, 1, 1, tzinfo=timezone.utc)
    member = Member(key=Signer.new().key, added=ends, certificates=(MemberCertificate(serial="4f", expires=ends),))
    (tmp_path / "members.json").write_text(Members(members={"pi-01": member}).model_dump_json())
    hand = Hand(keys=DeviceKeys(members=MembersFile(tmp_path / "members.json")))
    device = hand.broker.client("older")
    device.start(lambda _: None)
    for _ in range(9):
        device.publish(topics.presence(hand.shell.outbox.fleet, name), presence)
        hand.go()
    told = [fact for fact in hand.told if isinstance(fact, events.Refused | events.Quarantined)]
    if name == "pi-01":
        (fact,) = told
        assert (fact.device, fact.code, fact.barred) == (name, code, True)
    else:
        assert {fact.device for fact in told} == {"-"}, "nobody knows who that is"


def test_whether_a_device_runs_is_nothing_to_a_run_that_is_for_others() -> None:
    hand, speaker = Hand(keys=DeviceKeys(listed={"pi-01": Signer.new().key})), Speaker(Signer.new(), "default", 1)
    device = hand.broker.client("pi-02")
    device.start(lambda _: None)
    hand.go()
    for online in (True, False):
        presence = Presence(online=online, installation="x", birth=1).model_dump_json().encode()
        device.publish(topics.presence("default", "pi-02"), speaker.seal("presence", presence, device="pi-02"))
        hand.go()
    told = [fact for fact in hand.told if isinstance(fact, events.Refused | events.Lost)]
    assert [(type(fact), fact.device) for fact in told] == [(events.Refused, "pi-02")], "its row stays: not in this run"
