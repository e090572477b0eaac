"""A fleet in two tiers, in one process: some devices at the coordinator's broker, the others behind a gateway."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any

from fleets import Fleet, loop, prepared, run_file, until

from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from device_agent.shell.backends import maker
from device_agent.shell.setup import DeviceIdentity, Scope, TrainingSetup
from device_agent.start import AgentHost
from edgefl.base.events import as_record
from edgefl.job.config.gateway import GatewayFile
from edgefl.job.config.local_compute import LocalCompute
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import RunState
from edgefl.system.background import Threads
from edgefl.system.disk import FolderDisk
from edgefl.system.reactor import serve
from edgefl.wire.signing import Signer
from gateway.service import SiteSetup
from gateway.start import GatewayHost, run_of
from tools.in_memory_broker import InMemoryBroker, InMemoryClient

__all__ = ["DIRECT", "SITE", "Tiers", "loop", "run_file", "tiered", "until"]


class Killed(Exception):
    """The power is gone."""


DIRECT, SITE = ("device-00",), ("device-01", "device-02", "device-03")


def tiered(run: RunFile, **more: Mapping[str, Any]) -> RunFile:
    """The same run for one device and one gateway."""
    tables = run.model_dump(exclude_unset=True)
    tables["rounds"] = {"cohort": 2, "quorum": 2, "start_with": 2, "deadline": 120.0, **more.get("rounds", {})}
    tables["guards"] = {"speaks_for": 3, **more.get("guards", {})}
    return parse(RunFile, tables, "test", environment={})


@dataclass
class Tiers:
    """Its brokers, and who is there."""

    run: RunFile
    folder: Path
    site: dict[str, Any] = field(default_factory=dict)
    seal: bool = False
    centre: InMemoryBroker = field(default_factory=InMemoryBroker)
    north: InMemoryBroker = field(default_factory=InMemoryBroker)
    signers: dict[str, Signer] = field(default_factory=lambda: {name: Signer.new() for name in ("centre", "north")})
    facts: list[dict[str, Any]] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    exits: dict[str, tuple[int, str]] = field(default_factory=dict)
    gateways: int = 0

    def __post_init__(self) -> None:
        self.fleet = Fleet(self.run, self.folder, self.centre.client)
        self.behind = Fleet(self.run, self.folder, self.north.client)

    def coordinator(self) -> Threaded:
        return Threaded(
            self.run,
            self.centre.client("coordinator"),
            lambda: prepared(self.run)[0],
            tell=lambda fact: self.facts.append(as_record(fact)),
            security=Security(self.signers["centre"]),
        )

    def agent(self, name: str, fleet: Fleet, **about: Any) -> AgentHost:
        compute = LocalCompute(backend=self.run.task.backend)
        return AgentHost(
            DeviceIdentity(name, self.run.broker.fleet, "onnx"),
            fleet.connect(name),
            FolderDisk(self.folder / name),
            TrainingSetup(fleet.data[name], maker(compute)),
            scope=Scope(once=True, **about),
        )

    def gateway(self) -> GatewayHost:
        """A life of the gateway, from whatever its folder knows."""
        self.gateways += 1
        tables = {"site": {"devices": len(SITE), "quorum": len(SITE), "deadline": 60.0, **self.site}}
        file, folder = parse(GatewayFile, tables, "test", environment={}), self.folder / "gateway"
        place = SiteSetup(
            run=lambda errand: run_of(file, errand, self.run),
            connect=lambda run: self.north.client(f"gateway-{self.gateways}-{run}"),
            disk=lambda run: FolderDisk(folder / "site" / run),
            knows=lambda run: (folder / "site" / run).exists(),
            forget=lambda run: rmtree(folder / "site" / run, ignore_errors=True),
            background=lambda put: Threads(put, "site"),
            signer=self.signers["north"],
            device_keys=lambda: DeviceKeys(folder / "keys"),
            make_model=maker(LocalCompute()),
            fleet=self.run.broker.fleet,
            devices=len(SITE),
            seal=self.seal,
        )
        client = self.centre.client(f"gateway-{self.gateways}")
        self.host = GatewayHost(
            place, DeviceIdentity("gw-north", self.run.broker.fleet, "gateway"), client, FolderDisk(folder)
        )
        return self.host

    def kill_at(self, message: int) -> None:
        """A life of the gateway that ends in the moment in which it would send its so-manieth message."""
        host, sent = self.gateway(), count()

        def publish(client: Any, topic: str, payload: Any, **how: Any) -> None:
            if next(sent) == message:
                raise Killed
            type(client).publish(client, topic, payload, **how)

        def dies(client: InMemoryClient) -> InMemoryClient:
            client.publish = partial(publish, client)  # type: ignore[method-assign]
            return client

        connect = host.gateway.site.connect
        host.gateway.site = replace(host.gateway.site, connect=lambda run: dies(connect(run)))
        dies(host.transport)
        with suppress(Killed):
            serve(host.gateway, host.events, host.clock)
        for broker in (self.centre, self.north):
            for client in [id for id in broker._clients if id.startswith(f"gateway-{self.gateways}")]:
                broker.kill(client)

    def start(self, host: GatewayHost | AgentHost, name: str) -> threading.Thread:
        def run() -> None:
            self.exits[name] = host.run()

        return self.thread(run, name)

    def thread(self, target: Callable[[], Any], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def start_devices(self, names: tuple[str, ...] = (*DIRECT, *SITE)) -> None:
        keys = {"coordinator": self.signers["north"].key, "models": self.signers["centre"].key}
        for name in names:
            direct = name in DIRECT
            host = self.agent(name, self.fleet if direct else self.behind, **({} if direct else keys))
            self.start(host, name)

    def play(self, dies_at: int | None = None) -> RunState:
        """From the beginning to the end, with everybody there; the gateway may have a life before its last one."""
        self.start_devices()
        if dies_at is None:
            self.start(self.gateway(), "gateway")
        else:
            self.thread(lambda: (self.kill_at(dies_at), self.start(self.gateway(), "gateway")), "lives")
        state = self.coordinator().run()
        until(lambda: {*DIRECT, *SITE} <= self.exits.keys())
        self.host.stop()
        self.join()
        return state

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.name} did not end"

    def rounds(self, until_round: int = 0) -> Callable[[], bool]:
        return lambda: any(fact["event"] == "round" and fact["round"] >= until_round for fact in self.facts)
