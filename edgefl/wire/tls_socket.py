"""A TLS socket for large messages, under a client that is written in Python.

A TLS record holds 16 KiB, so a message of 480 KiB is thirty of them. Python gives back one for each call. Here a read
takes all records that have come, straight to where they belong; a write goes through all of them in one call, and
leaves in as few segments as possible.
"""

import socket
import ssl
from collections.abc import Iterable, Iterator
from typing import Any

RECORD = 16 << 10
CORK: int | None = getattr(socket, "TCP_CORK", None)  # Linux has it


class TlsSocket(ssl.SSLSocket):
    """What `ssl.SSLContext.sslsocket_class` makes of a plain socket."""

    def do_handshake(self, block: bool = False) -> None:
        """Closes itself when it fails: paho forgets to, and we may try for days."""
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """As many bytes of what has come as there is room for; 0 at the end."""
        room, end = memoryview(buffer)[: nbytes or None], 0
        try:
            while end < len(room) and (came := super().recv_into(room[end:], None, flags)):
                end += came
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not end:
                raise
        return end

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]  # of a stream, no more is known
        """As much as the kernel takes. What did not go must be the first of what is sent next."""
        parts, sent = list(buffers), 0
        large = sum(map(len, parts)) > RECORD
        if large:
            self._cork(True)
        try:
            for record in _records(parts):
                sent += super().send(record)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not sent:
                raise
        finally:
            if large:
                self._cork(False)
        return sent

    def _cork(self, corked: bool) -> None:
        if CORK is not None:
            self.setsockopt(socket.IPPROTO_TCP, CORK, corked)


def _records(parts: Iterable[Any]) -> Iterator[Any]:
    """Small parts together, as much as a record holds; large ones as they are, however many records they need."""
    small: list[Any] = []
    size = 0
    for part in parts:
        if size and size + len(part) > RECORD:
            yield b"".join(small)
            small, size = [], 0
        if len(part) > RECORD:
            yield part
        else:
            small.append(part)
            size += len(part)
    if size:
        yield b"".join(small)
