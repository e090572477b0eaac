"""From an agent file to an agent that runs."""

import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from device_agent.box.fork_client import Box
from device_agent.box.fork_server import ForkServer
from device_agent.decide.conditions import silent, unmet
from device_agent.decide.vocabulary import Stopped
from device_agent.durable import identity
from device_agent.durable.broker_addresses import BrokerAddresses
from device_agent.durable.failures import boot
from device_agent.shell.backends import choose, maker
from device_agent.shell.own_samples import samples_of
from device_agent.shell.renewal import CertificateRenewal
from device_agent.shell.samples import Samples
from device_agent.shell.service import Agent
from device_agent.shell.setup import DeviceIdentity, Hooks, Limits, RemoteAnswers, Scope, TrainingSetup
from device_agent.shell.vitals import Machine
from edgefl.base.errors import ConfigError
from edgefl.job.config import reader
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.conditions import Conditions
from edgefl.learn.training.divergence import unscaled
from edgefl.system import logs, resident_memory
from edgefl.system.background import Put, Threads
from edgefl.system.clock import SystemClock
from edgefl.system.disk import Disk, FolderDisk
from edgefl.system.locks import own
from edgefl.system.logs import TOLD
from edgefl.system.portable import LINUX
from edgefl.system.service_manager import ServiceManager
from edgefl.system.turns import Turns
from edgefl.wire import exposure
from edgefl.wire.address import parse
from edgefl.wire.first_use import missing_key
from edgefl.wire.messages import WireVitals
from edgefl.wire.opening import open_transport
from edgefl.wire.transport import Transport
from edgefl.wire.wiring import Wiring

log = logging.getLogger(__name__)

KEPT = 16 << 20  # bytes of freed memory that an agent keeps: the frames of a round with a million parameters


def run(
    path: Path | None,
    sets: Sequence[str],
    root: Path | None,
    *,
    once: bool,
    only: str | None = None,
    insecure: bool = False,
    level: str,
    fork_server: ForkServer | None = None,
) -> tuple[int, str]:
    """Serve with the agent file behind `path` until a signal or the end; the exit code and the reason."""
    logs.set_up(level)
    if fork_server is None:
        resident_memory.one_heap()
        # Before anything else: it shall know nothing, and a process with threads is not forked.
        fork_server = ForkServer()
    path = path or _enrolled()
    file = reader.load(AgentFile, path, sets)
    folder = file.agent.folder.expanduser() / file.agent.id
    identity.check(FolderDisk(folder))
    with own(folder):
        remote = _remote(file, path, sets)
        agent = open_agent(file, root, once=once, only=only, insecure=insecure, fork_server=fork_server, remote=remote)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, agent.stop)
        resident_memory.one_heap(KEPT)  # not before: what starting frees is given back
        resident_memory.release_code()  # most of it was for starting
        return agent.run()


def _remote(file: AgentFile, path: Path, sets: Sequence[str]) -> RemoteAnswers:
    """How questions of the fleet's operator are answered; what is logged from here on may be among the answers."""
    allowed, recent = file.remote.allow, logs.RecentLines()
    if "logs" in allowed:
        logging.getLogger().addHandler(recent)

    def examine(put: Put) -> None:
        from device_agent.shell.examination import Examination  # noqa: PLC0415 - most agents are never asked

        Examination(path, sets)(put)

    return RemoteAnswers(allowed, recent.lines, examine)


def _enrolled() -> Path:
    from device_agent.enrol import only  # noqa: PLC0415 - most agents are told where their file is

    return only()


class AgentHost:
    """An agent in the real world: its turns, the machine's clock, a thread to train in."""

    def __init__(
        self,
        identity: DeviceIdentity,
        transport: Transport,
        disk: Disk,
        setup: TrainingSetup,
        *,
        box: Box | None = None,
        scope: Scope = Scope(),
        limits: Limits = Limits(),
        hooks: Hooks = Hooks(),
    ) -> None:
        self.transport, self.clock, self.box = transport, SystemClock(), box
        self.manager = ServiceManager()
        self.events = Turns(self.clock, self.manager.beat, self.manager.every)
        self.background = Threads(self.events.put, "training")
        wiring = Wiring(transport, self.clock, self.background, self.events.put)
        setup = replace(setup, train=box) if box is not None else setup
        self.agent = Agent(identity, wiring, disk, setup, scope=scope, limits=limits, hooks=hooks)

    def run(self) -> tuple[int, str]:
        """Serve until it has ended; the exit code and the reason."""
        if self.box is not None:
            box = self.box
            self.background.start(lambda _put: box.warm())
        self.manager.ready(f"device '{self.agent.device}' serves {self.agent.broker}")
        try:
            self.events.serve(self.agent)
        finally:  # also when something went wrong: no training outlives its agent
            self.agent.trainer.cancel()
            self.background.close()
            if self.box is not None:
                self.box.close()
        self.manager.stopping()
        for event in self.events.rest():
            self.agent.handle(event)
        self.transport.flush(2.0)
        self.transport.close()
        return self.agent.exit or (1, "did not end")

    def stop(self, *_: object) -> None:
        """End cleanly; may be called from any thread, and as a signal handler."""
        self.events.post(Stopped())


def open_agent(
    file: AgentFile,
    root: Path | None = None,
    *,
    once: bool = False,
    only: str | None = None,
    insecure: bool = False,
    fork_server: ForkServer | None = None,
    remote: RemoteAnswers | None = None,
) -> AgentHost:
    """Return the agent of this file. What is wrong with the file is raised; data that cannot be read are announced."""
    me = file.agent
    fork_server = fork_server or ForkServer()
    disk = FolderDisk(me.folder.expanduser() / me.id)
    addresses = BrokerAddresses(disk, [parse(url, "agent.broker") for url in me.brokers])
    address, where = addresses()[0], " or ".join(map(str, addresses()))
    for one in addresses.given:
        if missing := missing_key(one, me.coordinator):
            raise ConfigError(str(missing))
        exposure.check(one, me.tls, "agent", insecure=insecure)
    back_end = choose(file.compute)
    samples = samples_of(file.data, root)
    about = me.id, where, len(samples.data), back_end
    log.info("device=%s broker=%s samples=%d back_end=%s", *about, extra=TOLD)
    if len(samples.data) and (top := unscaled(samples.data)):
        log.warning("features go up to %.6g: scale them to about -1 to 1, or learning will probably fail", top)
    machine = Machine(me.folder.expanduser())
    for condition in silent(file.conditions, machine()):
        log.warning("conditions.%s has no effect: this machine does not report it", condition)
    transport = open_transport(address, me.id, me.tls, addresses=addresses)
    return AgentHost(
        DeviceIdentity(
            me.id,
            me.fleet,
            back_end=back_end,
            site=me.site,
            renewal=CertificateRenewal(me.id, me.tls, SystemClock().wall),
            boot=boot(),
        ),
        transport,
        disk,
        TrainingSetup(samples, maker(file.compute, lambda: len(samples.data))),
        box=_box(file, samples, fork_server),
        scope=Scope(
            broker=where,
            addresses=addresses,
            connect_timeout=me.connect_timeout,
            coordinator=me.coordinator,
            models=me.models,
            once=once,
            run=only,
        ),
        limits=Limits(
            limit_mb=me.limit_mb,
            allowed=file.compute.factories,
            allowance=file.privacy,
            own_models=me.own_models,
            own_models_mb=me.own_models_mb,
        ),
        hooks=Hooks(machine=machine, unmet=_unmet(file.conditions), remote=remote),
    )


def _unmet(conditions: Conditions) -> Callable[[WireVitals], str] | None:
    """Why the device should not work at the moment, if its operator has conditions at all."""
    if conditions == Conditions():
        return None
    return lambda vitals: unmet(conditions, vitals, datetime.now().astimezone().time())


def _box(file: AgentFile, samples: Samples, fork_server: ForkServer) -> Box | None:
    """Where graphs run, unless the operator wants them in the agent's own process."""
    if file.compute.box and not LINUX:
        raise ConfigError(
            "compute.box needs Linux, which alone can confine the process in which graphs run: set compute.box = false,"
            " and they run in the agent's own process, beside its keys"
        )
    if file.compute.box:
        return Box(fork_server, file.agent.id, file.compute, samples, file.agent.limit_mb << 20)
    fork_server.close()
    log.warning(
        "compute.box = false: graphs run in the agent's own process, beside its keys; one that crashes or hangs"
        " takes the agent with it"
    )
    return None
