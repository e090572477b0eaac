"""A coordinator in this process: its turns, a thread for its slow work, and the machine's own clock.

The thread that reads a small message from the network also handles it, and the thread that merged a round opens the
next one: no other thread has to wake up. Large messages are left to the serving thread, so that the network goes on
while answers of such a size are written.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator.decide.vocabulary import Stop
from coordinator.durable import identity
from coordinator.durable.journal import Journal
from coordinator.shell.device_keys import NAME as DEVICE_KEYS
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.service import Coordinator
from coordinator.shell.setup import Prepare, Security
from edgefl.base.events import Tell
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import RunState
from edgefl.system.background import Threads
from edgefl.system.clock import SystemClock
from edgefl.system.disk import FolderDisk
from edgefl.system.service_manager import ServiceManager
from edgefl.system.turns import Turns
from edgefl.wire.transport import Message, Transport
from edgefl.wire.wiring import Wiring

LARGE = 1 << 16  # bytes of a message that is left to the thread that serves


class Threaded:
    """One run, from its beginning to its end; see `Coordinator` for what it is made of."""

    def __init__(
        self,
        run: RunFile,
        transport: Transport,
        prepare: Prepare,
        *,
        folder: Path | None = None,
        journal: Journal | None = None,
        tell: Tell = lambda _: None,
        security: Security = Security(),
        manager: ServiceManager | None = None,
    ) -> None:
        self.clock = SystemClock()
        self.turns = Turns(self.clock, manager.beat, manager.every) if manager else Turns(self.clock)
        if folder:
            journal = journal or Journal(FolderDisk(folder), clock=self.clock)
            security = replace(security, signer=security.signer or identity.opened(folder / identity.NAME))
        keys = security.device_keys or DeviceKeys(folder / DEVICE_KEYS if folder else None, run.devices)
        self.shell = Coordinator(
            run,
            Wiring(transport, self.clock, Threads(self._put, "coordinator"), self._put),
            prepare,
            journal=journal,
            tell=tell,
            security=replace(security, device_keys=keys),
        )

    def run(self) -> RunState:
        """Coordinate until the job is finished."""
        try:
            self.turns.serve(self.shell)
        finally:
            self.shell.close()
        return self.shell.result()

    def stop(self, *_: object) -> None:
        """End early; may be called from any thread, and as a signal handler."""
        self.turns.post(Stop())

    def _put(self, event: Any) -> None:
        large = isinstance(event, Message) and len(event.payload) > LARGE
        (self.turns.post if large else self.turns.put)(event)
