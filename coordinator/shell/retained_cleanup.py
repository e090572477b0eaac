"""What an earlier run of the job left at the broker: looked for at the first connection, cleared when it is not ours.

A coordinator that is killed cannot clear what it published, and a broker keeps a retained message for ever. Every
publication can be found by its manifest or by its first chunk. It is sent from the first chunk to the manifest, and
cleared from the last chunk to the first and then the manifest, so an interrupted one still has one of the two.
"""

import logging
from collections.abc import Collection
from contextlib import suppress

from coordinator.shell.publisher import wipe
from edgefl.base.errors import WireError
from edgefl.wire import chunks, topics
from edgefl.wire.messages import Manifest, read_json
from edgefl.wire.transport import Message, Transport

log = logging.getLogger(__name__)


class RetainedCleanup:
    """Models of this job that stand at the broker and may not be ours."""

    def __init__(self, transport: Transport, fleet: str, job: str, limit: int) -> None:
        self.transport, self.fleet, self.job, self.limit = transport, fleet, job, limit
        self.chunk_counts: dict[str, int] = {}  # a model's id, and how many chunks it has
        self.searched = False
        self._filters = (
            topics.manifest(fleet, job, "+"),
            topics.chunk(fleet, job, "+", 0),
            topics.state(fleet, job),
        )

    def search(self) -> None:
        """Ask the broker. It has told everything when the job's state, said after this, comes back to us."""
        if not self.searched:
            self.transport.subscribe(*self._filters)

    def hear(self, message: Message) -> None:
        """Something of this job that stands at the broker, or our own word coming back."""
        match topics.parts(message.topic):
            case (self.job, "model", id, *_, last) if message.retained and message.payload:
                self.chunk_counts[id] = max(self.chunk_counts.get(id, 0), self._count(last, message.payload))
            case (self.job, "state") if not message.retained and not self.searched:
                self.searched = True
                self.transport.unsubscribe(*self._filters)

    def clear(self, ours: Collection[str]) -> None:
        """Take away everything that was found, but for what this run has published itself."""
        for id in self.chunk_counts.keys() - set(ours):
            log.info("cleared what an earlier run left model=%s", id)
            wipe(self.transport, self.fleet, self.job, id, range(self.chunk_counts[id]))
        self.chunk_counts.clear()

    def _count(self, last: str, payload: bytes | memoryview) -> int:
        """How many chunks the model has; what cannot be read or is absurd has none that we know of."""
        with suppress(WireError):
            if last != "manifest":
                return chunks.read(payload, self.limit).count
            size = read_json(Manifest, payload).size
            return chunks.count(size) if size <= self.limit else 0
        return 0
