"""A fleet of a server: what its members and their presence come to, as the page shows it."""

from datetime import datetime, timezone

import pytest

from coordinator.durable import identity
from edgefl.base import events
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.members import MembersFile
from edgefl.server.shell.fleet import FleetService
from edgefl.sim.world import World
from edgefl.wire import key_file, topics
from edgefl.wire.messages import Presence
from edgefl.wire.signed import Speaker
from tools.in_memory_broker import InMemoryBroker

NOW = datetime.now(timezone.utc)


class Fleet:
    """A fleet with two devices, its server's part on a virtual clock, and the facts that it has told."""

    def __init__(self, folder):
        self.administration = FleetAdministration.new("north", ["127.0.0.1"], 8883, NOW)
        self.kits = {name: self.administration.add(name, NOW) for name in ("d1", "d2")}
        self.facts, self.world, self.broker, self.folder = [], World(), InMemoryBroker(), folder
        process = self.world.process("server")
        members = self.administration.folder
        self.service = FleetService(
            "north",
            process.wiring(self.broker.client("server"), lambda _: 0.1),
            MembersFile(members.members),
            identity.opened(members.signing_key),
            lambda _fleet, fact: self.facts.append(fact),
            life=1,
            lifetime=1e7,
        )
        self.service.put = self.service.handle
        self.service.start()

    def announce(self, device, **about):
        """The device says that it is there."""
        path = self.folder / device
        path.touch(mode=0o600)
        path.write_text(self.kits[device].device_key)
        speaker = Speaker(key_file.opened(path, "the device's", elsewhere="", lost=""), "north", 5)
        here = Presence(online=True, installation=device, birth=1, **about)
        sealed = speaker.seal("presence", here.model_dump_json().encode(), device=device)
        client = self.broker.client(device)
        client.start(lambda _event: None)
        client.publish(topics.presence("north", device), sealed, retain=True)

    def told(self, kind):
        return [fact for fact in self.facts if isinstance(fact, kind)]


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Fleet(tmp_path)


def test_labels_are_told_once_and_again_when_they_change(fleet):
    fleet.service._look_at_members(1.0)
    assert fleet.told(events.Labelled) == []
    fleet.administration.label(["d1"], {"site": "roof"}, NOW)
    for _ in range(2):
        fleet.service._look_at_members(2.0)
    assert [fact.labels for fact in fleet.told(events.Labelled)] == [{"d1": {"site": "roof"}}]
    fleet.administration.label(["d1"], {"site": ""}, NOW)
    fleet.service._look_at_members(3.0)
    assert fleet.told(events.Labelled)[-1].labels == {"d1": {}}


def test_a_device_that_comes_tells_its_machine(fleet):
    fleet.announce("d2", arch="aarch64", memory_mb=905, samples=7)
    (joined,) = fleet.told(events.Joined)
    assert (joined.device, joined.samples, joined.arch, joined.memory_mb) == ("d2", 7, "aarch64", 905)
