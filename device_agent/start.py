"""From an agent file to an agent that runs."""

import atexit
import logging
import os
import signal
import uuid
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from device_agent import identity
from device_agent.backends import choose, maker
from device_agent.renewal import Renewal
from device_agent.samples import samples_of
from device_agent.service import Agent
from device_agent.vocabulary import Stopped
from edgefl.config import reader
from edgefl.config.schema import AgentFile
from edgefl.errors import ConfigError
from edgefl.protocol import exposure
from edgefl.protocol.address import parse
from edgefl.protocol.first_use import missing_key
from edgefl.protocol.mqtt import MqttTransport
from edgefl.protocol.transport import Transport
from edgefl.system import logs, resident_memory
from edgefl.system.clock import SystemClock
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own
from edgefl.system.reactor import serve
from edgefl.system.replaceable_thread import ReplaceableThread
from edgefl.training.divergence import unscaled

log = logging.getLogger(__name__)


def run(
    path: Path | None,
    sets: Sequence[str],
    root: Path | None,
    *,
    once: bool,
    only: str | None = None,
    insecure: bool = False,
    level: str,
) -> tuple[int, str]:
    """Serve with the agent file behind `path` until a signal or the end; the exit code and the reason."""
    logs.set_up(level)
    resident_memory.one_heap()
    file = reader.load(AgentFile, path or _enrolled(), sets)
    folder = file.agent.folder.expanduser() / file.agent.id
    identity.check(FolderDisk(folder))
    with own(folder):
        agent = open_agent(file, root, once=once, only=only, insecure=insecure)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, agent.stopper)
        code, reason = agent.run()
    if not agent.background.quiet:  # a graph goes on, and native code must not be taken apart while it runs
        atexit.register(os._exit, code)
    return code, reason


def _enrolled() -> Path:
    from device_agent.enrol import only  # noqa: PLC0415 - most agents are told where their file is

    return only()


class Host:
    """An agent in the real world: the queue it is served from, the machine's clock, a thread to train in."""

    def __init__(self, *, transport: Transport, **about: Any) -> None:  # Any: whatever else an Agent is made of
        self.events: SimpleQueue[Any] = SimpleQueue()
        self.transport, self.clock, self.background = transport, SystemClock(), ReplaceableThread(self.events.put)
        self.agent = Agent(
            transport=transport, clock=self.clock, background=self.background, put=self.events.put, **about
        )

    def run(self) -> tuple[int, str]:
        """Serve until it has ended; the exit code and the reason."""
        try:
            serve(self.agent, self.events, self.clock)
        finally:  # also when something went wrong: no training outlives its agent
            self.agent.trainer.cancel()
            self.background.close()
        while not self.events.empty():
            self.agent.handle(self.events.get())
        self.transport.flush(2.0)
        self.transport.close()
        return self.agent.exit or (1, "did not end")

    def stop(self) -> None:
        """End cleanly; may be called from any thread."""
        self.events.put(Stopped())

    def stopper(self, _signal: int, _frame: object) -> None:
        """The same, as a signal handler."""
        self.stop()


def open_agent(
    file: AgentFile, root: Path | None = None, *, once: bool = False, only: str | None = None, insecure: bool = False
) -> Host:
    """The agent of this file; what is wrong with it is said before anything is connected."""
    me = file.agent
    address = parse(me.broker)
    if missing := missing_key(address, me.coordinator):
        raise ConfigError(str(missing))
    exposure.check(address, me.tls, "agent", insecure=insecure)
    back_end = choose(file.compute)
    samples = samples_of(file.data, root)
    log.info("device=%s broker=%s samples=%d back_end=%s", me.id, address, len(samples.data), back_end)
    if top := unscaled(samples.data):
        log.warning("features go up to %.6g: scale them to about -1 to 1, or learning will probably fail", top)
    # A suffix, so that a second agent of this name is noticed by the coordinator and told, not silently swapped in.
    transport = MqttTransport(address, f"{me.id}-{uuid.uuid4().hex[:8]}", tls=me.tls)
    return Host(
        device=me.id,
        fleet=me.fleet,
        transport=transport,
        data=samples,
        make_model=maker(file.compute, lambda: len(samples.data)),
        back_end=back_end,
        disk=FolderDisk(me.folder.expanduser() / me.id),
        once=once,
        run=only,
        connect_timeout=me.connect_timeout,
        broker=str(address),
        coordinator=me.coordinator,
        limit_mb=me.limit_mb,
        allowed=file.compute.factories,
        renewal=Renewal(me.id, me.tls, SystemClock().wall),
    )
