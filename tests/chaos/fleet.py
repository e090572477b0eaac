"""A fleet of real processes around a real broker, any of which may be killed; and what must be true afterwards."""

import json
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import entrypoints
import psutil
from counter import Witness
from entrypoints import Setting
from netns import HERE, Netns

from coordinator.durable.identity import opened
from coordinator.durable.journal import Journal
from edgefl.base.events import Answered
from edgefl.fleet.members import COORDINATOR
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.config.toml_text import written
from edgefl.job.run import job as jobs
from edgefl.sim.loop import simulate
from edgefl.system.disk import FolderDisk
from edgefl.wire import broker as brokers
from edgefl.wire.address import is_loopback
from edgefl.wire.broker import Broker

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["entrypoints", "warm"])
PATIENCE = 120.0  # seconds; a healthy run takes two


def server() -> None:
    """Start what all processes are forked from; it must find our modules, and does not look where we look."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    forkserver.ensure_running()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def run_table(folder: Path, **more: Mapping[str, Any]) -> dict[str, Any]:
    """A run that takes a moment; everybody is asked and everybody must answer, so that its model is always the same."""
    table: dict[str, Any] = {
        "run": {"name": "chaos", "rounds": 4, "seed": 5, "folder": str(folder)},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "public": 0.1,
            "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 3},
        },
        "algorithm": {"name": "scaffold", "batch": 64},  # it keeps a state on both sides
        "rounds": {"cohort": 3, "quorum": 3, "deadline": 60.0},
        "guards": {"strikes": 1000},
    }
    for section, keys in more.items():
        table[section] = {**table.get(section, {}), **keys}
    return table


def toml(table: Mapping[str, Any]) -> str:
    """The file that says the same as the table."""
    sections = (
        f"[{name}]\n" + "".join(f"{k} = {written(v)}\n" for k, v in keys.items()) for name, keys in table.items()
    )
    return "".join(sections)


def expected(table: Mapping[str, Any]) -> str:
    """The hash of the model that the plain loop makes of this run."""
    run = {key: value for key, value in table["run"].items() if key != "folder"}
    return _expected(json.dumps({**table, "run": run, "broker": {}}))


@cache
def _expected(text: str) -> str:
    run = parse(RunFile, json.loads(text), "chaos", environment={})
    job, held = jobs.prepare(run)
    return simulate(job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))).sha256()


class Life:
    """One life of the coordinator: its process, and everything it told."""

    def __init__(self, table: Mapping[str, Any], log: Path, fault: str, place: Setting) -> None:
        ear, mouth = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(
            target=entrypoints.coordinator, args=(table, log, fault, place, mouth), daemon=True
        )
        self.events: list[dict[str, Any]] = []
        self.news = threading.Condition()
        self.over = False
        self.process.start()
        mouth.close()
        self.thread = threading.Thread(target=self._listen, args=(ear,), daemon=True)
        self.thread.start()

    def _listen(self, ear: Connection) -> None:
        while True:
            try:
                event = ear.recv()
            except (EOFError, OSError):
                break
            with self.news:
                self.events.append(event)
                self.news.notify_all()
        with self.news:
            self.over = True
            self.news.notify_all()

    def find(self, **fields: Any) -> dict[str, Any] | None:
        return next((e for e in self.events if fields.items() <= e.items()), None)

    def wait_for(self, patience: float = PATIENCE, **fields: Any) -> dict[str, Any] | None:
        """The event, or None when the life ended without it."""
        with self.news:
            assert self.news.wait_for(lambda: self.over or self.find(**fields), patience), self.events[-5:]
        return self.find(**fields)

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join(30)
        self.thread.join(30)

    def finished(self, patience: float = PATIENCE) -> dict[str, Any] | None:
        return self.wait_for(patience, event="ended")


class Fleet(AbstractContextManager["Fleet"]):
    """Broker, agents, coordinator and witness."""

    def __init__(
        self, folder: Path, *, through: int | None = None, netns: Netns | None = None, **more: Mapping[str, Any]
    ) -> None:
        server()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.table = run_table(folder / "runs", **more)
        self.places: dict[str, Setting] = {}
        self.names = jobs.device_names(self.table["task"]["partition"]["devices"])
        self.password, self.host = "", "127.0.0.1"
        with netns.at_the_server() if netns else nullcontext():
            users = dict.fromkeys((COORDINATOR, *self.names), netns.password) if netns else {}
            open_to = {"bind": "0.0.0.0", "users": users, "insecure": True} if netns else {}
            self.broker: Broker = brokers.start(prefer="auto", **open_to)
            self.witness = Witness(self.broker.address.port, *((COORDINATOR, netns.password) if netns else ()))
        self.port = through or self.broker.address.port
        self.agents: dict[str, Any] = {}
        self.lives: list[Life] = []
        self.broker_kills = 0
        if netns:
            self.password, self.host = netns.password, HERE
            self.places = {"coordinator": Setting(netns.server), **dict.fromkeys(self.names, Setting(netns.devices))}
        address = f"mqtt://{self.login(COORDINATOR)}127.0.0.1:{self.broker.address.port}"
        self.table["broker"] = {"url": address, "identity": str(folder / "identity.key")}

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        for life in self.lives:
            life.end()
        for name in list(self.agents):
            self.kill_agent(name)
        self.witness.close()
        self.broker.close()
        if kind is not None:
            for log in sorted(self.folder.glob("*.log")):
                print(f"---- {log.name}\n{log.read_text()[-3000:]}")

    def login(self, name: str) -> str:
        return f"{name}:{self.password}@" if self.password else ""

    # ---- who may be killed -------------------------------------------------------------------------------------

    def coordinator(self, fault: str = "") -> Life:
        place = self.places.get("coordinator", Setting())
        life = Life(self.table, self.folder / "coordinator.log", fault, place)
        self.lives.append(life)
        return life

    def agent_table(self, name: str, port: int | None = None) -> dict[str, Any]:
        """A device's file."""
        task = self.table["task"]
        key = {} if is_loopback(self.host) else {"coordinator": opened(self.folder / "identity.key").key}
        return {
            "agent": {
                **key,
                "id": name,
                "broker": f"mqtt://{self.login(name)}{self.host}:{port or self.port}",
                "folder": str(self.folder / "agents"),
                "connect_timeout": 0,
            },
            "data": {
                "source": task["data"],
                "partition": task["partition"],
                "part": self.names.index(name),
                "public": task["public"],
                "seed": self.table["run"]["seed"],
            },
        }

    def agent(self, name: str, fault: str = "", port: int | None = None) -> None:
        table, place = self.agent_table(name, port), self.places.get(name, Setting())
        self.agents[name] = CONTEXT.Process(
            target=entrypoints.agent, args=(table, self.folder / f"{name}.log", fault, place), daemon=True
        )
        self.agents[name].start()

    def all_agents(self) -> None:
        for name in self.names:
            self.agent(name)

    def kill_agent(self, name: str) -> None:
        process = self.agents.pop(name)
        if process.is_alive():
            process.kill()
        process.join(30)

    def kill_broker(self) -> None:
        """SIGKILL, and a new one at the same port that knows nothing."""
        port = self.broker.address.port
        for child in psutil.Process().children():
            if child.is_running() and any(f"{port}" in c.laddr.__repr__() for c in child.net_connections("tcp")):
                child.kill()
        self.broker.close()
        self.broker = brokers.start(port, prefer="auto")
        self.broker_kills += 1

    # ---- what must be true -------------------------------------------------------------------------------------

    def until_done(self, first: Life, kills: int = 1000) -> dict[str, Any]:
        """Start the coordinator again as often as it dies; what it ended with."""
        life = first
        for _ in range(kills):
            ended = life.finished()
            if ended is not None:
                return ended
            life.end()
            life = self.coordinator()
        raise AssertionError("it never ended")

    def check(self, ended: Mapping[str, Any], what: str) -> None:
        """The same model as an undisturbed run, and every promise kept exactly once."""
        book = Journal(FolderDisk(self.folder / "runs" / "chaos"), reading=True)
        counted = Counter(
            (fact.device, fact.round)
            for fact in book.story()
            if isinstance(fact, Answered) and fact.verdict == "accepted"
        )
        book.close()
        rounds = self.table["run"]["rounds"]
        promised = {(device, round) for device, round, _ in self.witness.accepted}
        assert promised <= set(counted), f"{what}: receipts lost: {promised - set(counted)}"
        assert set(counted.values()) == {1}, f"{what}: counted twice: {counted}"
        assert len(counted) == rounds * len(self.names), f"{what}: {sorted(counted)}"
        assert ended["sha256"] == expected(self.table), f"{what}: another model"
        left = self.witness.standing("edgefl/v1/default/chaos/#")
        assert left <= {"edgefl/v1/default/chaos/state"}, f"{what}: left at the broker: {sorted(left)}"
