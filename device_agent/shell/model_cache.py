"""What the device has fetched from the broker: models and graphs by their ids, and those that are on their way."""

import logging
from collections import OrderedDict
from collections.abc import Iterable

from device_agent.durable.trust import RequestedModel, Trust
from device_agent.shell.download import Download
from device_agent.shell.order import Item
from edgefl.base.errors import WireError
from edgefl.system.clock import Clock
from edgefl.wire.chunks import digest
from edgefl.wire.messages import Enclosed
from edgefl.wire.transport import Transport

log = logging.getLogger(__name__)

KEPT = 4  # of each run: a model, the one before it, its graphs, and one that was just superseded
MOST = 4 * KEPT  # of all runs
STALLED = 3.0  # seconds without a chunk before the coordinator is asked to publish again


class ModelCache:
    """Fetches what it is asked for, and keeps what was used last."""

    def __init__(self, transport: Transport, fleet: str, trust: Trust, limit: int, clock: Clock) -> None:
        self.transport, self.fleet, self.trust, self.limit = transport, fleet, trust, limit
        self.clock = clock
        self.items: OrderedDict[str, Item] = OrderedDict()
        self.underway: dict[str, Download] = {}

    def fetch(self, targets: Iterable[RequestedModel]) -> None:
        """Ask the broker for whatever of these is not here yet."""
        for one in targets:
            if self.has([one]):
                self.items.move_to_end(one.id)
                continue
            download = self.underway.get(one.id)
            if download is None or download.target != one:
                download = self.underway[one.id] = Download(self.fleet, one, self.trust, self.limit)
                download.progressed = self.clock.now()
            download.touched = self.clock.now()
            self.transport.subscribe(*download.filters())

    def give_up(self, targets: Iterable[RequestedModel]) -> None:
        """Fetch these no longer."""
        for one in targets:
            if download := self.underway.pop(one.id, None):
                self.transport.unsubscribe(*download.filters())

    def keep(self, targets: Iterable[RequestedModel]) -> None:
        """Fetch nothing but these any longer."""
        still = set(targets)
        self.give_up([download.target for download in self.underway.values() if download.target not in still])

    def take(self, id: str, last: str, payload: bytes | memoryview) -> bool:
        """Take in a message of a model's topic; True when something has just come whole."""
        download = self.underway.get(id)
        if download is None:
            return False
        asked_more = download.add(last, payload)
        # Not by what is refused: that it does not come must show.
        download.touched = download.progressed = self.clock.now()
        if asked_more:
            self.transport.subscribe(*download.filters())
        if download.manifest is None or download.frame is None:
            return False
        del self.underway[id]
        self.transport.unsubscribe(*download.filters())
        self._keep(id, Item(download.manifest, download.frame, download.signed))
        return True

    def enclose(self, one: RequestedModel, enclosed: Enclosed) -> None:
        """A model came with its task, whose signature covers it."""
        manifest = self.trust.manifest(enclosed.manifest, one, proven=True)
        if digest(enclosed.frame).hex() != manifest.digest:
            raise WireError("model.corrupt", f"model {one.id} came with its task, and is another one")
        self.give_up([one])
        self._keep(one.id, Item(manifest, enclosed.frame, enclosed.manifest))

    def _keep(self, id: str, fresh: Item) -> None:
        self.items[id] = fresh
        self.items.move_to_end(id)
        of_run = [id for id, item in self.items.items() if item.manifest.run_id == fresh.manifest.run_id]
        for old in of_run[:-KEPT]:
            del self.items[old]
        while len(self.items) > MOST:
            self.items.popitem(last=False)

    def forget(self, run_id: str) -> None:
        """Nothing of this run is needed any more."""
        for id in [id for id, item in self.items.items() if item.manifest.run_id == run_id]:
            del self.items[id]

    def has(self, targets: Iterable[RequestedModel]) -> bool:
        """Whether all of these are here, signed for this very run of the job: a model may be the same in another."""
        return all(
            (item := self.items.get(one.id)) is not None and item.manifest.run_id == one.run_id for one in targets
        )

    def __getitem__(self, id: str) -> Item:
        self.items.move_to_end(id)
        return self.items[id]

    def deadline(self) -> float | None:
        """When the next download will have stalled, if nothing comes before."""
        return min((download.touched + STALLED for download in self.underway.values()), default=None)

    def stalled(self) -> list[tuple[str, float]]:
        """Downloads that nothing has come of for a while, and for how long; each is asked for again."""
        now = self.clock.now()
        late = [download for download in self.underway.values() if download.touched + STALLED <= now]
        for download in late:
            log.warning("does not come model=%s", download.id)
            download.touched = now
            self.transport.subscribe(*download.filters())
        return [(download.id, now - download.progressed) for download in late]
