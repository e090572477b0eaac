"""Server-sent events: what has changed in a run, to each browser that watches, at its own pace.

Each event has a mark as its id. A browser that was away says the last one it saw (Last-Event-ID), and is told what it
missed; one that comes from before a restart of the coordinator is told everything.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from edgefl.watch.page.feed import MOST, Feed, FeedListener

PACE = 0.5  # seconds between two events for one browser, however much happens
HEARTBEAT = 15.0  # seconds after which a comment shows that the line still holds


def answer(feed: Feed, request: Request) -> Response:
    """A stream of changes, as long as the browser listens."""
    listener = feed.listen()
    if listener is None:
        return PlainTextResponse(f"{MOST} browsers watch already.\n", 503, {"Retry-After": "10"})
    mark = request.headers.get("last-event-id") or request.query_params.get("since", "")
    return StreamingResponse(
        _events(feed, listener, mark), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _events(feed: Feed, listener: FeedListener, mark: str) -> AsyncIterator[str]:
    try:
        while True:
            if feed.newer(mark):
                changes = feed.changes(mark)
                mark = changes["mark"]
                yield f"id: {mark}\ndata: {dumps(changes)}\n\n"
            if feed.closed:
                yield "event: end\ndata: {}\n\n"
                return
            if await listener.wait(HEARTBEAT):
                if not feed.closed:
                    await asyncio.sleep(PACE)
            else:
                yield ": still here\n\n"
    finally:
        feed.leave(listener)


def dumps(value: Any) -> str:  # Any: whatever JSON can say
    """JSON on one line."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
