"""A coordinator in this process: its turns, a thread for its slow work, and the machine's own clock.

A small message is taken in by the thread that reads it from the network, and the next round is asked for by the one
that merged the last: no thread is woken for either. A large one is left to the thread that serves, so that the network
goes on while answers of such a size are written.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordinator.decide.vocabulary import Stop
from coordinator.durable import identity
from coordinator.durable.journal import Journal
from coordinator.shell.device_keys import NAME as DEVICE_KEYS
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.renewals import Renewals
from coordinator.shell.service import Coordinator
from edgefl.base.events import Tell
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import Job, RunState
from edgefl.system.background import Threads
from edgefl.system.clock import SystemClock
from edgefl.system.disk import FolderDisk
from edgefl.system.turns import Turns
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Message, Transport

LARGE = 1 << 16  # bytes of a message that is left to the thread that serves


class Threaded:
    """One run, from its beginning to its end; see `Coordinator` for what it is made of."""

    def __init__(
        self,
        run: RunFile,
        transport: Transport,
        prepare: Callable[[], Job],
        *,
        folder: Path | None = None,
        book: Journal | None = None,
        tell: Tell = lambda _: None,
        signer: Signer | None = None,
        device_keys: DeviceKeys | None = None,
        renewals: Renewals | None = None,
        seal: bool | None = None,
        beat: Callable[[], None] = lambda: None,
        beat_every: float | None = None,
    ) -> None:
        self.clock = SystemClock()
        self.turns = Turns(self.clock, beat, beat_every)
        self.shell = Coordinator(
            run,
            transport,
            prepare,
            put=self._put,
            clock=self.clock,
            background=Threads(self._put, "coordinator"),
            disk=FolderDisk(folder) if folder else None,
            book=book,
            tell=tell,
            signer=signer or (identity.opened(folder / identity.NAME) if folder else None),
            device_keys=device_keys or DeviceKeys(folder / DEVICE_KEYS if folder else None, run.devices),
            renewals=renewals,
            seal=seal,
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
