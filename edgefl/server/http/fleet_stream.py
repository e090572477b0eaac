"""Server-sent events of a fleet: changed devices (`message`) and the queue (`queue`), on one connection.

A browser opens six connections to one server, so a page has one stream. It ends when its reader may not see the fleet
any more.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from edgefl.server.http.queue_feed import QueueFeed
from edgefl.watch.page.feed import MOST, Feed, FeedListener
from edgefl.watch.page.stream import HEARTBEAT, PACE, dumps

LOOK = 5.0  # seconds between two looks how far runs have come


@dataclass(frozen=True, slots=True)
class FleetStream:
    """What one browser is told of a fleet, as long as it listens and `may_see` holds."""

    fleet: str
    feed: Feed
    queue: QueueFeed
    may_see: Callable[[], bool]

    def answer(self, request: Request) -> Response:
        """Return the stream, or a refusal if too many listen."""
        listener = self.feed.listen()
        if listener is None:
            return PlainTextResponse(f"{MOST} browsers watch already.\n", 503, {"Retry-After": "10"})
        self.queue.join(listener)
        mark = request.headers.get("last-event-id") or request.query_params.get("since", "")
        events = self._events(listener, mark)
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _events(self, listener: FeedListener, mark: str) -> AsyncIterator[str]:
        shown, quiet = "", 0.0
        try:
            while self.may_see() and not self.feed.closed:
                before = shown, mark
                shown = await self._queue_text(shown)
                if shown != before[0]:
                    yield f"event: queue\ndata: {shown}\n\n"
                if self.feed.newer(mark):
                    changes = self.feed.changes(mark)
                    mark = changes["mark"]
                    yield f"id: {mark}\ndata: {dumps(changes)}\n\n"
                quiet = quiet + LOOK if (shown, mark) == before else 0.0
                if quiet >= HEARTBEAT:
                    quiet = 0.0
                    yield ": still here\n\n"
                if await listener.wait(LOOK) and not self.feed.closed:
                    await asyncio.sleep(PACE)
            yield "event: end\ndata: {}\n\n"
        finally:
            self.queue.leave(listener)
            self.feed.leave(listener)

    async def _queue_text(self, shown: str) -> str:
        """Return the queue as it stands; what is shown already, while the server is too busy to tell."""
        try:
            return await run_in_threadpool(self.queue.text, self.fleet)
        except NoAnswer:
            return shown
