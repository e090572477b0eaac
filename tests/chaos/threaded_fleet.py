"""A fleet in threads around a broker in memory: thousands of faults per minute, each exactly where it is wanted."""

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from facts import in_json
from fleet import expected, run_table

from coordinator.durable.journal import Journal
from coordinator.shell.threaded import Threaded
from device_agent.shell.backends import choose, maker
from device_agent.shell.setup import DeviceIdentity, Scope, TrainingSetup
from device_agent.start import AgentHost
from edgefl.base.events import Answered
from edgefl.job.config.local_compute import LocalCompute
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.system.disk import FolderDisk
from edgefl.wire import chunks, signed
from edgefl.wire.transport import Payload, joined
from tools.in_memory_broker import InMemoryBroker, InMemoryClient

PATIENCE = 120.0


class PowerCut(BaseException):
    """The device is off, in the middle of what it did."""


class Supply(InMemoryClient):
    """A transport whose device loses power after so many chunks of an answer; None: never."""

    left: int | None = None
    sent_chunks: Counter[bytes]

    def publish(self, topic: str, payload: Payload, *, retain: bool = False, **more: Any) -> None:
        part = signed.opened(joined(payload)).payload if topic.endswith("/up") else b""
        if part and chunks._HEAD.unpack_from(part)[5] > 1:
            if self.left == 0:
                self._broker.kill(self.id)
                raise PowerCut
            self.left = None if self.left is None else self.left - 1
            self.sent_chunks[part[: chunks.HEAD]] += 1
        super().publish(topic, payload, retain=retain, **more)


class ThreadedFleet:
    """One run, its coordinator and its devices."""

    def __init__(self, folder: Path, **more: Mapping[str, Any]) -> None:
        self.folder, self.table = folder, run_table(folder / "runs", **more)
        self.run: RunFile = parse(RunFile, self.table, "chaos", environment={})
        self.job, held = jobs.prepare(self.run)
        self.data = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
        self.broker = InMemoryBroker()
        self.events: list[dict[str, Any]] = []
        self.news = threading.Condition()
        self.sent_chunks: Counter[bytes] = Counter()
        self.threads: list[threading.Thread] = []
        self.problems: list[BaseException] = []
        self.sha256 = ""
        self.cuts = 0
        self.watch: Callable[[dict[str, Any]], None] = lambda _: None
        self.coordinator: Threaded | None = None

    # ---- who takes part ----------------------------------------------------------------------------------------

    def agent(self, name: str, left: int | None = None) -> AgentHost:
        supply = Supply(self.broker, name)
        supply.left, supply.sent_chunks = left, self.sent_chunks
        compute = LocalCompute()
        return AgentHost(
            DeviceIdentity(name, "default", choose(compute)),
            supply,
            FolderDisk(self.folder / name),
            TrainingSetup(self.data[name], maker(compute)),
            scope=Scope(once=True),
        )

    def live(self, name: str, cut: Callable[[], int | None]) -> None:
        """A device that is switched on again whenever it lost power."""
        while True:
            agent = self.agent(name, cut())
            try:
                agent.run()
            except PowerCut:
                self.cuts += 1
            else:
                return

    def start(self, cut: Callable[[], int | None] = lambda: None) -> None:
        for name in self.data:
            self._thread(lambda name=name: self.live(name, cut))
        self._thread(self._coordinate)

    def _coordinate(self) -> None:
        self.coordinator = Threaded(
            self.run,
            self.broker.client("coordinator"),
            lambda: self.job,
            folder=self.folder / "runs",
            tell=in_json(self.tell),
        )
        self.sha256 = self.coordinator.run().sha256()

    def _thread(self, work: Callable[[], None]) -> None:
        def watched() -> None:
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 - told by whoever waits
                self.problems.append(problem)

        thread = threading.Thread(target=watched, daemon=True)
        self.threads.append(thread)
        thread.start()

    # ---- what happens ------------------------------------------------------------------------------------------

    def tell(self, event: dict[str, Any]) -> None:
        with self.news:
            self.events.append(event)
            self.news.notify_all()
        self.watch(event)

    def wait_for(self, **fields: Any) -> dict[str, Any]:
        matches: list[dict[str, Any]] = []

        def here() -> bool:
            matches[:] = [e for e in self.events if fields.items() <= e.items()]
            return bool(matches or self.problems)

        with self.news:
            assert self.news.wait_for(here, PATIENCE), f"never saw {fields} in {self.events[-5:]}"
        assert not self.problems, self.problems
        return matches[0]

    def finish(self, what: str) -> None:
        """Everything ended, with the model of an undisturbed run, and every answer was counted once."""
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{what}: did not end: {self.events[-5:]}"
        assert not self.problems, f"{what}: {self.problems}"
        book = Journal(FolderDisk(self.folder / "runs"), reading=True)
        counted = Counter(
            (fact.device, fact.round)
            for fact in book.story()
            if isinstance(fact, Answered) and fact.verdict == "accepted"
        )
        book.close()
        assert set(counted.values()) == {1}, f"{what}: counted twice: {counted}"
        assert len(counted) == self.run.run.rounds * len(self.data), f"{what}: {len(counted)} answers"
        assert self.sha256 == expected(self.table), f"{what}: another model"

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
