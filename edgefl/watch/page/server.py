"""The page's server: one thread beside the run. Nothing that happens in it reaches the run."""

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgefl.base.errors import ConfigError
from edgefl.job.config.page import Page
from edgefl.watch.page import token as tokens
from edgefl.watch.page.app import Runs, build
from edgefl.watch.page.feed import Feed
from edgefl.watch.page.guard import Places
from edgefl.watch.page.listening import ACCEPTED, listening
from edgefl.watch.page.token import PageToken

log = logging.getLogger(__name__)

EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - a name is told instead
PATIENCE = 10.0  # seconds that a request may take to arrive, and LEAST bytes of its answer to be taken
LEAST = 64 << 10
FAREWELL = 2  # seconds that answers may still take when the run has ended


class TimedConnection(H11Protocol):
    """A connection that ends when a request takes longer than PATIENCE, from its first byte to its last.

    The first one counts from the connection. Between two requests uvicorn's own time of keeping alive holds. An answer
    has PATIENCE for every LEAST bytes: who asks and does not read is let go of.
    """

    _arriving: asyncio.TimerHandle | None = None
    _leaving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tcp = cast("asyncio.Transport", transport)  # over TCP it is one
        super().connection_made(tcp)
        tcp.set_write_buffer_limits(high=1, low=0)  # be told of what is not taken at once; TLS stops for ever at high=0
        self._arriving = self.loop.call_later(PATIENCE, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_arrived()
        self._is_taken()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if not self._incomplete():
            self._has_arrived()
        elif self._arriving is None and not self.transport.is_closing():
            self._arriving = self.loop.call_later(PATIENCE, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._is_taken()
        super().resume_writing()

    def shutdown(self) -> None:
        super().shutdown()
        if self._leaving:  # before uvicorn cancels its answer, and logs that as an error
            self._is_taken()
            self._leaving = self.loop.call_later(FAREWELL / 2, self.transport.abort)

    def _watch_reader(self) -> None:
        """Let go of this connection in a while, unless enough is taken of its answer until then."""
        left = self.transport.get_write_buffer_size()
        self._is_taken()
        self._leaving = self.loop.call_later(PATIENCE, self._look_at_reader, left)

    def _look_at_reader(self, left: int) -> None:
        if left - self.transport.get_write_buffer_size() < LEAST:
            self.transport.abort()
        else:
            self._watch_reader()

    def _incomplete(self) -> bool:
        """Return whether a request has begun and not ended."""
        begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        return begun or self.conn.their_state is h11.SEND_BODY

    def _has_arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _is_taken(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None


class HttpServer:
    """Serves an application from a thread of its own, from its making until it is closed."""

    def __init__(self, page: Page, application: Callable[[Places], ASGIApp], name: str | None = None) -> None:
        """`application` is given the socket, which it tells of connections that may stay."""
        self.page = page
        self.name = name or socket.gethostname()  # of this machine, for others
        self._socket, self.as_asked = listening(page.host, page.port)
        self.port: int = self._socket.getsockname()[1]
        try:
            config = uvicorn.Config(
                application(self._socket),
                http=TimedConnection,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=ACCEPTED,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=FAREWELL,
                ssl_certfile=page.certificate,
                ssl_keyfile=page.key,
            )
            config.load()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            self._socket.close()
            raise ConfigError(
                f"page.certificate = '{page.certificate}', page.key = '{page.key}': cannot be used ({error})"
            ) from None
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._serve, name="page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What to type into a browser."""
        scheme = "https" if self.page.certificate else "http"
        host = self.name if self.page.host in EVERYWHERE else self.page.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        """Close everything; answers under way have a few seconds."""
        self._server.should_exit = True
        self._thread.join(FAREWELL + 3)

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            log.exception("the page has ended; all else goes on without it")
        finally:
            self._socket.close_all()


class PageServer(HttpServer):
    """The page of one run."""

    def __init__(self, page: Page, feed: Feed, runs: Runs, name: str | None = None) -> None:
        self.feed = feed
        self.token: PageToken | None = None
        self.token_file: Path | None = None
        if page.token or not page.local:
            self.token_file = page.token or tokens.default_file()
            self.token = tokens.opened(self.token_file)
        super().__init__(page, lambda places: build(feed, runs, self.token, places), name)

    def close(self) -> None:
        """Tell all listeners that it is over, and close everything."""
        self.feed.close()
        super().close()
