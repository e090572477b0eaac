"""Pages of runs: each from its folder, opened by a browser's first request, closed some minutes after its last."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.routing import Router

from coordinator.durable import journal
from edgefl.ops.folder_page import FolderFeed
from edgefl.system.disk import FolderDisk
from edgefl.watch.page.app import Answers, run_routes
from edgefl.watch.page.history import PastRuns

log = logging.getLogger(__name__)

MOST = 8  # runs whose facts are held in memory for their pages
IDLE = 300.0  # seconds after the last request until a page without a browser is closed
LOOK = 60.0  # seconds between two looks for such pages


class TooMany(Exception):  # noqa: N818 - what it is
    """Every place is taken by a run whose page is open in a browser."""


@dataclass(slots=True)
class _OpenPage:
    source: FolderFeed
    router: Router
    asked_at: float = field(default_factory=time.monotonic)


class FleetHistory:
    """Runs in one folder, as far as they are of one fleet: all fleets of a server may share a folder."""

    def __init__(self, history: PastRuns, names: Callable[[], Collection[str]]) -> None:
        self._history, self._names = history, names

    def listed(self) -> list[dict[str, Any]]:
        names = self._names()
        return [run for run in self._history.listed() if run["name"] in names]

    def rounds(self, name: str) -> list[dict[str, Any]] | None:
        return self._history.rounds(name) if name in self._names() else None


class RunPages:
    """At most MOST of them; used in the page's event loop alone."""

    def __init__(self) -> None:
        self._open: dict[Path, _OpenPage] = {}
        self._turn = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None

    async def page(self, folder: Path, names: Callable[[], Collection[str]]) -> Router | None:
        """Return what answers for the run in this folder; None if nothing is written there.

        `names` are those of the runs that may be shown beside it.
        """
        async with self._turn:
            shown = self._open.get(folder)
            if shown is None:
                disk = FolderDisk(folder)
                if not await run_in_threadpool(journal.exists, disk):
                    return None
                await self._make_room()
                source = await run_in_threadpool(FolderFeed, disk)
                history = FleetHistory(PastRuns(folder.parent, folder.name), names)
                router = Router(run_routes(Answers(source.feed, history, None)))
                shown = self._open[folder] = _OpenPage(source, router)
                self._timer = self._timer or asyncio.get_running_loop().call_later(LOOK, self._sweep)
            shown.asked_at = time.monotonic()
            return shown.router

    def close(self) -> None:
        """Close all of them; from any thread."""
        while self._open:
            _, shown = self._open.popitem()
            shown.source.close()

    async def _make_room(self) -> None:
        while len(self._open) >= MOST:
            unwatched = [path for path, shown in self._open.items() if not shown.source.feed.watched]
            if not unwatched:
                raise TooMany(f"the pages of {MOST} runs are watched already: close one")
            oldest = min(unwatched, key=lambda path: self._open[path].asked_at)
            await run_in_threadpool(self._open.pop(oldest).source.close)

    def _sweep(self) -> None:
        """Close pages without a browser or a request for IDLE seconds; look again while others are open."""
        now, loop = time.monotonic(), asyncio.get_running_loop()
        for path, shown in tuple(self._open.items()):
            if shown.source.feed.watched:
                shown.asked_at = now
            elif now - shown.asked_at >= IDLE:
                log.debug("the page of a run is closed folder=%s", path)
                del self._open[path]
                loop.run_in_executor(None, shown.source.close)
        self._timer = loop.call_later(LOOK, self._sweep) if self._open else None
