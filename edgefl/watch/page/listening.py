"""The socket that the page is served on, and whose connections have a place there.

The rest of the coordinator needs files too, so there are MOST places. A connection on which no request has shown the
token is a stranger's (without a token: none was answered). All strangers together have STRANGERS places, and one
address has PER_ADDRESS. A new stranger takes the place of the oldest, so strangers push out each other and never the
owner.
"""

import errno
import ipaddress
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from edgefl.base.errors import ConfigError

MOST = 128  # open connections; whoever comes when there are so many is sent away at once
STRANGERS = 32  # of these for connections that have not been admitted
PER_ADDRESS = 8  # of these for one address: a browser opens six at once to load the form
TRIES = 20  # ports after the one that was asked for

Peer: TypeAlias = tuple[str, int]  # address and port


class Listening(socket.socket):
    """A socket that takes no more connections than are good for us."""

    def __init__(self, *family: Any) -> None:
        super().__init__(*family)
        self._open: dict[Peer, socket.socket] = {}  # the oldest first
        self._ended: list[socket.socket] = []  # pushed out, and not closed yet by their protocol
        self._admitted: set[Peer] = set()

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._forget_closed()
        if len(self._open) + len(self._ended) >= MOST:
            connection.close()
            raise BlockingIOError(errno.EAGAIN, "enough")
        peer: Peer = address[:2]
        oldest = gives_way([other for other in self._open if other not in self._admitted], peer)
        if oldest is not None:
            self._end(self._open.pop(oldest))
        self._open[peer] = connection
        return connection, address

    def admit(self, peer: Peer) -> None:
        """Keep this connection: it showed the token, or none is asked for and its request was not refused."""
        self._admitted.add(peer)

    def close_all(self) -> None:
        """Also connections that came when nobody looked at them any more."""
        for connection in (*self._open.values(), *self._ended):
            connection.close()
        self.close()

    def _end(self, connection: socket.socket) -> None:
        """End it without closing it: its file belongs to the protocol, which sees the end and closes it."""
        with suppress(OSError):  # the other side was first
            connection.shutdown(socket.SHUT_RDWR)
        self._ended.append(connection)

    def _forget_closed(self) -> None:
        self._open = {peer: one for peer, one in self._open.items() if one.fileno() >= 0}
        self._ended = [one for one in self._ended if one.fileno() >= 0]
        self._admitted.intersection_update(self._open)


def gives_way(strangers: Sequence[Peer], newcomer: Peer) -> Peer | None:
    """Return the stranger, oldest first in the list, whose place the newcomer takes; None if a place is free."""
    own = [peer for peer in strangers if _household(peer) == _household(newcomer)]
    if len(own) >= PER_ADDRESS:
        return own[0]
    if len(strangers) < STRANGERS:
        return None
    crowd = Counter(_household(peer) for peer in strangers)
    return max(strangers, key=lambda peer: crowd[_household(peer)])  # the first of several: the oldest


def _household(peer: Peer) -> str:
    """Return what one attacker has of addresses: one of IPv4, a network of 64 bits of IPv6."""
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except ValueError:
        return peer[0]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def listening(host: str, port: int) -> tuple[Listening, bool]:
    """A socket at this place, or at the next port that is free; and whether it is the one that was asked for."""
    for one in range(port, min(65536, port + TRIES)) if port else (0,):
        if bound := _bound(host, one):
            return bound, one == port
    raise ConfigError(f"page.port = {port}: this and the next {TRIES - 1} are taken; choose another one, or --no-page")


def _bound(host: str, port: int) -> Listening | None:
    """A socket at this very place; None if another process has it."""
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
