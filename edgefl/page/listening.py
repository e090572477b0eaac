"""The socket that the page is served on, and how many may come to it: the rest of the coordinator needs files too."""

import errno
import socket
from typing import Any
from weakref import WeakSet

from edgefl.errors import ConfigError

MOST = 128  # open connections; whoever comes when there are so many is sent away at once
TRIES = 20  # ports after the one that was asked for


class Listening(socket.socket):
    """A socket that takes no more connections than are good for us."""

    def __init__(self, *family: Any) -> None:
        super().__init__(*family)
        self._accepted: WeakSet[socket.socket] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if sum(1 for one in tuple(self._accepted) if one.fileno() >= 0) >= MOST:
            connection.close()
            raise BlockingIOError(errno.EAGAIN, "enough")
        self._accepted.add(connection)
        return connection, address

    def close_all(self) -> None:
        """Also connections that came when nobody looked at them any more."""
        for connection in tuple(self._accepted):
            connection.close()
        self.close()


def listening(host: str, port: int) -> tuple[Listening, bool]:
    """A socket at this place, or at the next port that is free; and whether it is the one that was asked for."""
    for one in range(port, min(65536, port + TRIES)) if port else (0,):
        if bound := _bound(host, one):
            return bound, one == port
    raise ConfigError(f"page.port = {port}: this and the next {TRIES - 1} are taken; choose another one, or --no-page")


def _bound(host: str, port: int) -> Listening | None:
    """A socket at this very place; None if somebody else has it."""
    bound = None
    try:
        place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = Listening(*place[:3])
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place[4])
        bound.listen(64)
        bound.setblocking(False)
    except OSError as error:
        if bound:
            bound.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise ConfigError(f"page.host = '{host}', page.port = {port}: {error.strerror or error}") from None
    return bound
