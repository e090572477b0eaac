"""What the device has fetched from the broker: models and graphs by their ids, and those that are on their way."""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import monotonic

from device_agent.download import Download
from edgefl.protocol.messages import Manifest
from edgefl.protocol.transport import Transport

log = logging.getLogger(__name__)

KEPT = 4  # a model, the one before it, its graphs, and one that was just superseded
STALLED = 3.0  # seconds without a chunk before the coordinator is asked to publish again


@dataclass(frozen=True, slots=True)
class Item:
    """Something that has come whole."""

    manifest: Manifest
    frame: bytes | bytearray


class Library:
    """Fetches what it is asked for, and keeps what was used last."""

    def __init__(self, transport: Transport, fleet: str, limit: int) -> None:
        self.transport, self.fleet, self.limit = transport, fleet, limit
        self.items: OrderedDict[str, Item] = OrderedDict()
        self.underway: dict[str, Download] = {}

    def fetch(self, job: str, ids: Iterable[str]) -> None:
        """Ask the broker for whatever of these is not here yet."""
        for id in ids:
            if id in self.items:
                self.items.move_to_end(id)
            else:
                download = self.underway.setdefault(id, Download(self.fleet, job, id, self.limit))
                download.touched = monotonic()
                self.transport.subscribe(*download.filters())

    def take(self, id: str, last: str, payload: bytes) -> bool:
        """Take in a message of a model's topic; True when something has just come whole."""
        download = self.underway.get(id)
        if download is None:
            return False
        download.touched = monotonic()
        if download.add(last, payload):
            self.transport.subscribe(*download.filters())
        if download.manifest is None or download.frame is None:
            return False
        del self.underway[id]
        self.transport.unsubscribe(*download.filters())
        self.items[id] = Item(download.manifest, download.frame)
        while len(self.items) > KEPT:
            self.items.popitem(last=False)
        return True

    def has(self, ids: Iterable[str]) -> bool:
        """Whether all of these are here."""
        return all(id in self.items for id in ids)

    def __getitem__(self, id: str) -> Item:
        self.items.move_to_end(id)
        return self.items[id]

    def stalled(self) -> Iterator[Download]:
        """Downloads that nothing has come of for a while; each is asked for again."""
        for download in self.underway.values():
            if monotonic() - download.touched > STALLED:
                log.warning("does not come model=%s", download.id)
                download.touched = monotonic()
                self.transport.subscribe(*download.filters())
                yield download
