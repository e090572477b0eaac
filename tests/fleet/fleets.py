"""A whole fleet in one test: a real coordinator and real agents, over any transport."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from device_agent.shell.backends import choose, maker
from device_agent.shell.samples import Samples
from device_agent.shell.service import Agent
from device_agent.shell.setup import DeviceIdentity, Limits, Scope, TrainingSetup
from device_agent.start import AgentHost
from edgefl.base.events import as_record
from edgefl.job.config.allowance import Allowance
from edgefl.job.config.local_compute import LocalCompute
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.job.run.network import Network
from edgefl.learn import losses
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.split import Split
from edgefl.learn.training.descent import step_plan
from edgefl.sim.loop import simulate
from edgefl.system import user_code
from edgefl.system.disk import FolderDisk
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Transport


def run_file(algorithm: Mapping[str, Any], **more: Mapping[str, Any]) -> RunFile:
    """A run that takes a moment: four devices, softmax regression on generated data."""
    table: dict[str, Any] = {
        "run": {"name": "fleet", "rounds": 4, "seed": 3},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "public": 0.1,
            "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 4},
        },
        "algorithm": {"lr": 0.1, "batch": 64, "epochs": 1, "momentum": 0.0, **algorithm},
        "rounds": {"cohort": 3, "quorum": 2, "deadline": 120.0},
    }
    for section, keys in more.items():
        table[section] = {**table.get(section, {}), **keys} if isinstance(keys, Mapping) else keys
    user_code.allow_in(table)
    return parse(RunFile, table, "test", environment={})


@cache
def _prepared(text: str) -> tuple[Job, Split]:
    run = RunFile.model_validate_json(text)
    return jobs.prepare(run, None, network(run))


def prepared(run: RunFile) -> tuple[Job, Split]:
    """The job and its data, made once for all who need the same."""
    return _prepared(run.model_dump_json())


_networks: dict[str, Network] = {}


def network(run: RunFile) -> Network:
    """The run's network, made once for all that take the same steps: to export it takes longer than to train."""
    plan = step_plan(run.make_algorithm(), losses.loss(run.task.loss))
    of = repr((run.task, run.data, run.compute, run.evaluation, run.run.seed, plan))
    if of not in _networks:
        _networks[of] = jobs.make_network(run)
    return _networks[of]


def loop(run: RunFile) -> RunState:
    """What the specification says."""
    job, held = prepared(run)
    return simulate(job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True)))


def until(true: Callable[[], object], patience: float = 60.0) -> None:
    """Wait until something holds that no event tells of."""
    for _ in range(int(100 * patience)):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


def builds_with(agent: Any, make_model: Any) -> None:
    """From now on the agent, which trains in its own process, has its models from there."""
    agent.train = replace(agent.train, make_model=make_model)


class Fleet:
    """Agents in threads; each has its own transport, model and folder."""

    def __init__(self, run: RunFile, folder: Path, connect: Callable[[str], Transport], *, once: bool = True) -> None:
        self.run, self.folder, self.connect, self.once = run, folder, connect, once
        _, held = prepared(run)
        self.data = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
        self.hosts: dict[str, AgentHost] = {}
        self.agents: dict[str, Agent] = {}
        self.threads: list[threading.Thread] = []
        self.exits: dict[str, tuple[int, str]] = {}

    def agent(
        self,
        name: str,
        data: Dataset | Samples | None = None,
        client: str | None = None,
        compute: LocalCompute | None = None,
        allowance: Allowance | None = None,
    ) -> AgentHost:
        """An agent that is not yet running."""
        compute = compute or LocalCompute(backend=self.run.task.backend)
        return AgentHost(
            DeviceIdentity(name, self.run.broker.fleet, choose(compute)),
            self.connect(client or name),
            FolderDisk(self.folder / (client or name)),
            TrainingSetup(self.data[name] if data is None else data, maker(compute)),
            scope=Scope(once=self.once),
            limits=Limits(allowed=compute.factories, allowance=allowance),
        )

    def start(self, host: AgentHost) -> threading.Thread:
        name = host.agent.device

        def serve() -> None:
            self.exits[name] = host.run()

        self.hosts[name], self.agents[name] = host, host.agent
        thread = threading.Thread(target=serve, name=name, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def start_all(self) -> None:
        for name in self.data:
            self.start(self.agent(name))

    def coordinator(
        self,
        tell: Callable[[dict[str, Any]], None] = lambda _: None,
        run: RunFile | None = None,
        signer: Signer | None = None,
        folder: Path | None = None,
    ) -> Threaded:
        """One for this fleet's run, or for another; devices that see more than one need the same signer.

        With a folder it has a journal.
        """
        the_run = run or self.run
        client = self.connect(f"coordinator-{the_run.run.name}")
        return Threaded(
            the_run,
            client,
            lambda: prepared(the_run)[0],
            folder=folder,
            tell=lambda fact: tell(as_record(fact)),
            security=Security(signer),
        )

    def stop(self) -> None:
        """Whoever is at work shall end."""
        for host in self.hosts.values():
            host.stop()

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.name} did not end"
