"""The page of a run that somebody else coordinates, or that has ended: its facts come from its folder.

A folder is looked at again while the page is served: two seconds after something is written there, it is seen. What is
never written down (how far a device is in its work) is not.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from zlib import crc32

from coordinator import past
from edgefl.config.page import Page
from edgefl.errors import StoreError
from edgefl.overview.overview import Overview
from edgefl.page.feed import Feed
from edgefl.page.history import History
from edgefl.page.server import Server
from edgefl.system.disk import FolderDisk

log = logging.getLogger(__name__)

EVERY = 2.0  # seconds between two looks at the folder


class FolderPage:
    """Serves from its making until it is closed."""

    def __init__(self, page: Page, disk: FolderDisk) -> None:
        self._disk, self._seen, self._count, self._digest = disk, _written(disk.folder), 0, 0
        self._end = Event()
        overview, _ = self._read()
        self.feed = Feed(overview)
        folder = disk.folder.resolve()
        self.server = Server(page, self.feed, History(folder.parent, folder.name))
        self._thread = Thread(target=self._follow, name="folder", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join(EVERY)
        self.server.close()

    def _follow(self) -> None:
        while not self._end.wait(EVERY):
            written = _written(self._disk.folder)
            if not written or written == self._seen:  # a folder that was moved away leaves what is shown
                continue
            try:
                overview, longer = self._read()
            except (StoreError, OSError) as error:  # a piece was moved while we read: the next look sees all of it
                log.debug("not read why=%s", error)
                continue
            self._seen = written
            self.feed.replace(overview, same=longer)

    def _read(self) -> tuple[Overview, bool]:
        """The overview of the folder, and whether its story is the one that was read before, and perhaps more."""
        overview, digest, same = Overview(), 0, self._count == 0
        for count, fact in enumerate(past.facts(self._disk), 1):
            overview.tell(fact)
            digest = crc32(f"{type(fact).__name__} {fact.at!r}".encode(), digest)
            if count == self._count:
                same = digest == self._digest
        self._count, self._digest = overview.sequence, digest
        return overview, same


def _written(folder: Path) -> Sequence[tuple[str, int, int]]:
    """By what one sees that something was written."""
    try:
        stats = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.suffix in (".log", ".jsonl")]
    except OSError:
        return ()
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
