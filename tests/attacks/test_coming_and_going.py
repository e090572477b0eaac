"""A device with a valid key that comes and goes without end, at a real coordinator with its journal on a disk."""

import threading
from pathlib import Path

from fleets import prepared, run_file
from puppet import Puppet

from coordinator.decide.story_limit import FACTS
from coordinator.durable.journal import Journal
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import Interrupted
from edgefl.base.events import Fact, Joined, LeftOut, Lost
from edgefl.system.disk import FolderDisk
from edgefl.wire import topics
from edgefl.wire.messages import Presence
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg"}, rounds={"cohort": 2, "quorum": 2, "start_with": 2})
TIMES = 250  # and as often away: half a minute of what a device may say


def test_coming_and_going_fills_no_journal_and_the_page_still_knows_who_is_there(tmp_path: Path) -> None:
    broker, gone, told = InMemoryBroker(), threading.Semaphore(0), list[Fact]()

    def tell(fact: Fact) -> None:
        told.append(fact)
        if isinstance(fact, Lost):
            gone.release()

    coordinator = Threaded(RUN, broker.client("coordinator"), lambda: prepared(RUN)[0], folder=tmp_path, tell=tell)
    ended: list[Exception] = []
    thread = threading.Thread(target=_run, args=(coordinator, ended))
    thread.start()
    device = Puppet("device-00", broker.client("device-00"), lambda _puppet, _task: None, job="fleet")
    device.start()
    for number in range(2 * TIMES):
        presence = Presence(online=bool(number % 2), installation="device-00", birth=1, samples=10)
        device.transport.publish(topics.presence("default", "device-00"), device.presence(presence), retain=True)
    for _ in range(TIMES):
        assert gone.acquire(timeout=120)
    coordinator.stop()
    thread.join(120)
    assert isinstance(ended[0], Interrupted)
    story = list(Journal(FolderDisk(tmp_path), reading=True).story("device-00"))
    assert [sum(isinstance(fact, kind) for fact in story) for kind in (Joined, Lost)] == [FACTS, FACTS]
    (summary,) = [fact for fact in story if isinstance(fact, LeftOut)]
    assert summary.times["lost"] == TIMES - FACTS
    assert sum(isinstance(fact, Joined) for fact in told) == FACTS + summary.times["joined"]
    assert sum(path.stat().st_size for path in tmp_path.glob("journal*.log")) < 50_000


def _run(coordinator: Threaded, ended: list[Exception]) -> None:
    try:
        coordinator.run()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        ended.append(error)
