"""The page of a run that another process coordinates, or that has ended: its facts come from its folder.

A folder is looked at again while the page is served: two seconds after something is written there, it is seen. What is
never written down (how far a device is in its work) is not. A run that has not ended, and that no coordinator on this
machine is at work on, is shown as interrupted.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

from coordinator.durable.run_history import Follower
from edgefl.base.errors import StoreError
from edgefl.job.config.page import Page
from edgefl.ops.coordination import coordination
from edgefl.system.disk import FolderDisk
from edgefl.watch.overview.overview import Overview
from edgefl.watch.page.feed import Feed
from edgefl.watch.page.history import PastRuns
from edgefl.watch.page.server import PageServer

log = logging.getLogger(__name__)

EVERY = 2.0  # seconds between two looks at the folder


class FolderPage:
    """Serves from its making until it is closed."""

    def __init__(self, page: Page, disk: FolderDisk) -> None:
        self._source = FolderFeed(disk)
        self.feed = self._source.feed
        folder = disk.folder.resolve()
        try:
            self.server = PageServer(page, self.feed, PastRuns(folder.parent, folder.name))
        except BaseException:
            self._source.close()
            raise

    def close(self) -> None:
        self._source.close()
        self.server.close()


class FolderFeed:
    """What a run's folder tells, as a feed: followed from its making until it is closed."""

    def __init__(self, disk: FolderDisk) -> None:
        self._disk, self._written = disk, _written(disk.folder)
        self._end = Event()
        self._follower, self.feed = Follower(disk), Feed(Overview())
        self._read()
        self._look_for_coordinator()
        self._thread = Thread(target=self._follow, name="folder", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following, and tell listeners that nothing comes any more."""
        self._end.set()
        self._thread.join(EVERY)
        self.feed.close()

    def _follow(self) -> None:
        while not self._end.wait(EVERY):
            written = _written(self._disk.folder)
            if not written:  # a folder that was moved away leaves what is shown
                continue
            try:
                if written != self._written:
                    self._read()
                    self._written = written
            except (StoreError, OSError) as error:  # a piece was moved while we read: the next look sees all of it
                log.debug("not read why=%s", error)
                continue
            self._look_for_coordinator()

    def _read(self) -> None:
        """Show what was written since the last look, or another run from its beginning."""
        facts, anew = self._follower.look()
        if anew:
            overview = Overview()
            for fact in facts:
                overview.tell(fact)
            self.feed.replace(overview)
            return
        for fact in facts:
            self.feed.tell(fact)

    def _look_for_coordinator(self) -> None:
        run, at = self.feed.look(lambda overview: (overview.run, overview.at))
        for fact in coordination(run, at, self._disk.folder):
            self.feed.tell(fact)


def _written(folder: Path) -> Sequence[tuple[str, int, int]]:
    """By what one sees that something was written."""
    try:
        stats = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.suffix in (".log", ".jsonl")]
    except OSError:
        return ()
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
