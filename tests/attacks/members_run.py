"""A run of a fleet with two members, whose coordinator and list of members are real; the broker knows no lists.

MEMBER's certificate began as long ago as a test says, OTHER's begins now.
"""

import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

from facts import in_json
from fleets import prepared, run_file, until
from puppet import Puppet

from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.renewals import Renewals
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import Interrupted
from edgefl.fleet import authority
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.fleet.members import MembersFile
from tools.in_memory_broker import InMemoryBroker

MEMBER, OTHER = "device-00", "device-01"
RUN = run_file({"name": "fedavg"}, run={"rounds": 2}, rounds={"cohort": 2, "quorum": 2, "start_with": 2})


class MembersRun:
    """Begun when it is made; XDG_STATE_HOME must be a folder of the test's."""

    def __init__(self, ago: timedelta) -> None:
        self.broker, self.events = InMemoryBroker(), list[dict[str, Any]]()
        self.late = 0.0  # seconds that the members are judged later than now
        connect = self.broker.client
        self.puppets = {name: Puppet(name, connect(name), lambda *_: None, job="fleet") for name in (MEMBER, OTHER)}
        self.fleet = FleetAdministration.new("default", ["localhost"], 8883, clock())
        for name, begun in ((MEMBER, clock() - ago), (OTHER, clock())):
            key = self.puppets[name].speaker.key
            with self.fleet.folder.changing():
                self.fleet.admit(name, authority.new_key().public_key(), key, begun)
        members = MembersFile(self.fleet.folder.members, wall=lambda: clock().timestamp() + self.late)
        self.coordinator = Threaded(
            RUN,
            connect("coordinator"),
            lambda: prepared(RUN)[0],
            tell=in_json(self.events.append),
            security=Security(device_keys=DeviceKeys(members=members), renewals=Renewals("default")),
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        for puppet in self.puppets.values():
            puppet.start()
        until(lambda: all(puppet.run for puppet in self.puppets.values()))

    def _run(self) -> None:
        with suppress(Interrupted):
            self.coordinator.run()

    def happened(self, event: str, device: str | None = None) -> list[dict[str, Any]]:
        """What was told of this kind, of all devices or of one."""
        told = [one for one in list(self.events) if one["event"] == event]
        return [one for one in told if device in (None, one.get("device"))]

    def refused(self, *codes: str) -> int:
        """How many messages were refused with these codes."""
        return sum(self.coordinator.shell.state.refusals.get(code, 0) for code in codes)

    def close(self) -> None:
        self.coordinator.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()
