"""The socket that the page is served on, and whose connections have a place there.

The rest of the coordinator needs files too, so there are MOST places. A connection on which no request has shown the
token is a stranger's (without a token: none was answered). All strangers together have STRANGERS places, and one
address has PER_ADDRESS. A new stranger takes the place of the oldest one of the largest crowd, so strangers push out
each other and never a connection that showed the token.

A new connection of the owner is a stranger's too, until its request is read. So a burst of strangers must not come
between: the event loop takes only ACCEPTED connections before it reads requests again, and the rest waits in the
kernel. Addresses that come more often than `rate.py` allows are sent away at once, or wait for their answers.
"""

import errno
import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from edgefl.base.errors import ConfigError
from edgefl.watch.page.rate import Rate
from edgefl.wire.address import is_loopback

MOST = 128  # open connections
STRANGERS = 32  # of these for connections that have not been admitted
PER_ADDRESS = 8  # of these for one address: a browser opens six at once to load the form
ACCEPTED = 2  # connections that are taken in one turn of the event loop; three turns later their requests are read
ENDING = 128  # connections that were pushed out, and not closed yet
SENT_AWAY = 64  # connections that are closed at once, in one turn
QUEUE = 256  # connections that wait in the kernel
TRIES = 20  # ports after the one that was asked for

Peer: TypeAlias = tuple[str, int]  # address and port


class LimitedSocket(socket.socket):
    """A socket that takes no more connections than are good for us."""

    def __init__(self, *family: Any) -> None:
        super().__init__(*family)
        self._open: dict[Peer, socket.socket] = {}  # the oldest first
        self._ended: list[socket.socket] = []  # pushed out, and not closed yet by their protocol
        self._admitted: set[Peer] = set()
        self._rate = Rate()

    def listen(self, _backlog: int = QUEUE, /) -> None:
        """Let QUEUE connections wait: the event loop asks for the number that it takes in one turn."""
        super().listen(QUEUE)

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(SENT_AWAY):
            connection, address = super().accept()
            self._forget_closed()
            peer: Peer = address[:2]
            if len(self._ended) < ENDING and self._may_come(peer):
                self._make_room(peer)
                self._open[peer] = connection
                return connection, address
            connection.close()
        raise BlockingIOError(errno.EAGAIN, "the rest in the next turn")

    def admit(self, peer: Peer) -> None:
        """Keep this connection: it showed the token, or none is asked for and its request was not refused."""
        self._admitted.add(peer)

    def delay(self, peer: Peer) -> float:
        """Return how many seconds the answer to a request waits that is not admitted."""
        return self._rate.take(_household(peer), time.monotonic())

    def _may_come(self, peer: Peer) -> bool:
        """Return whether this address keeps to its rate, or is one of those that others than strangers come from too.

        These are addresses of loopback (users of this machine, and tunnels that end here), and such with a connection
        that was admitted.
        """
        household, now = _household(peer), time.monotonic()
        wait = self._rate.take(household, now)
        shared = is_loopback(peer[0]) or any(_household(other) == household for other in self._admitted)
        return wait == 0.0 or shared

    def _strangers(self) -> list[Peer]:
        return [other for other in self._open if other not in self._admitted]

    def _make_room(self, newcomer: Peer) -> None:
        strangers = self._strangers()
        leaving = gives_way(strangers, newcomer)
        if leaving is None and len(self._open) >= MOST:
            leaving = _of_largest_crowd(strangers or [*self._open])
        if leaving is not None:
            self._end(self._open.pop(leaving))

    def close_all(self) -> None:
        """Close the socket, and connections that were accepted after the last look."""
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
    return _of_largest_crowd(strangers)


def _of_largest_crowd(peers: Sequence[Peer]) -> Peer:
    """Return the oldest of the network, and in it of the address, that has most of these connections."""
    networks, households = Counter(map(_network, peers)), Counter(map(_household, peers))
    return max(peers, key=lambda peer: (networks[_network(peer)], households[_household(peer)]))  # the first of several


def _household(peer: Peer) -> str:
    """Return what one attacker has of addresses: one of IPv4, a network of 64 bits of IPv6."""
    return _within(peer, 32, 64)


def _network(peer: Peer) -> str:
    """Return what an attacker with many addresses has: a network of 24 bits of IPv4, of 48 of IPv6."""
    return _within(peer, 24, 48)


def _within(peer: Peer, bits_4: int, bits_6: int) -> str:
    """Return the network with this number of bits in which this address is."""
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except ValueError:
        return peer[0]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    bits = bits_4 if isinstance(address, ipaddress.IPv4Address) else bits_6
    return str(ipaddress.ip_network((address, bits), strict=False))


def listening(host: str, port: int) -> tuple[LimitedSocket, bool]:
    """A socket at this place, or at the next port that is free; and whether it is the one that was asked for."""
    for one in range(port, min(65536, port + TRIES)) if port else (0,):
        if bound := _bound(host, one):
            return bound, one == port
    raise ConfigError(f"page.port = {port}: this and the next {TRIES - 1} are taken; choose another one, or --no-page")


def _bound(host: str, port: int) -> LimitedSocket | None:
    """A socket at this very place; None if another process has it."""
    bound = None
    try:
        place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = LimitedSocket(*place[:3])
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place[4])
        bound.listen()
        bound.setblocking(False)
    except OSError as error:
        if bound:
            bound.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise ConfigError(f"page.host = '{host}', page.port = {port}: {error.strerror or error}") from None
    return bound
