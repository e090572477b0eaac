"""The page's server: one thread beside the run. Nothing that happens in it reaches the run."""

import asyncio
import logging
import socket
from pathlib import Path
from threading import Thread
from typing import cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgefl.config.page import Page
from edgefl.errors import ConfigError
from edgefl.page import token as tokens
from edgefl.page.app import Runs, build
from edgefl.page.feed import Feed
from edgefl.page.listening import MOST, listening
from edgefl.page.token import Token

log = logging.getLogger(__name__)

EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - a name is told instead
SILENT = 10.0  # seconds that a connection may say nothing at first
FAREWELL = 2  # seconds that answers may still take when the run has ended


class Impatient(H11Protocol):
    """Whoever connects and asks for nothing is let go of."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))  # over TCP it is one
        self.loop.call_later(SILENT, self._look)

    def _look(self) -> None:
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


class Server:
    """Serves from its making until it is closed."""

    def __init__(self, page: Page, feed: Feed, runs: Runs, name: str | None = None) -> None:
        self.page, self.feed = page, feed
        self.name = name or socket.gethostname()  # of this machine, for others
        self.token: Token | None = None
        self.token_file: Path | None = None
        if page.token or not page.local:
            self.token_file = page.token or tokens.default_file()
            self.token = tokens.opened(self.token_file)
        self._socket, self.as_asked = listening(page.host, page.port)
        self.port: int = self._socket.getsockname()[1]
        try:
            config = uvicorn.Config(
                build(feed, runs, self.token),
                http=Impatient,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=MOST,
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
        """Tell whoever watches that it is over, and let go of everything."""
        self.feed.close()
        self._server.should_exit = True
        self._thread.join(FAREWELL + 3)

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            log.exception("the page has ended; the run goes on without it")
        finally:
            self._socket.close_all()
