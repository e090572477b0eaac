"""Large messages through a TLS socket: whole, in order, whatever pieces they come in; and small ones behind them."""

import os
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from certificates import Authority

from edgefl.protocol.tls_socket import TlsSocket


@contextmanager
def connected(folder: Path) -> Iterator[tuple[TlsSocket, ssl.SSLSocket]]:
    """Our end, which does not block, and the other one, which does."""
    authority = Authority.new(folder)
    issued = authority.issue("127.0.0.1")
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(issued.certificate, issued.key)
    here = ssl.create_default_context(cafile=issued.ca)
    here.sslsocket_class, here.check_hostname = TlsSocket, False
    with socket.create_server(("127.0.0.1", 0)) as server:
        plain = socket.create_connection(server.getsockname())
        accepted: list[ssl.SSLSocket] = []
        thread = threading.Thread(
            target=lambda: accepted.append(there.wrap_socket(server.accept()[0], server_side=True))
        )
        thread.start()
        ours = here.wrap_socket(plain)
        thread.join()
    assert isinstance(ours, TlsSocket)
    ours.setblocking(False)
    with ours, accepted[0] as theirs:
        theirs.settimeout(20)
        yield ours, theirs


def received(ours: TlsSocket, size: int) -> bytes:
    """As a packet is read: we ask for what is missing, and wait where nothing is there."""
    packet = bytearray()
    while len(packet) < size:
        packet += arrived(ours, size - len(packet))
    return bytes(packet)


def arrived(ours: TlsSocket, most: int) -> bytes:
    """What comes next; nothing at the end."""
    while True:
        with suppress(ssl.SSLWantReadError):
            room = bytearray(most)
            return bytes(room[: ours.recv_into(room)])
        assert select.select([ours], [], [], 20)[0], "it sleeps although what it waits for is there"


@pytest.mark.parametrize("size", [1, 100, 16384, 16385, 122_880, 1_000_000])
@pytest.mark.parametrize("piece", [1000, 16384, 1_000_000])
def test_what_is_sent_comes_whole_and_a_small_word_behind_it_too(tmp_path: Path, size: int, piece: int) -> None:
    message = os.urandom(size)

    def send(theirs: ssl.SSLSocket) -> None:
        for start in range(0, size, piece):
            theirs.sendall(message[start : start + piece])
        theirs.sendall(b"end")

    with connected(tmp_path) as (ours, theirs):
        thread = threading.Thread(target=send, args=(theirs,))
        thread.start()
        assert received(ours, size) == message
        assert received(ours, 3) == b"end"
        thread.join()


def test_a_message_that_the_kernel_does_not_take_at_once_is_sent_in_parts(tmp_path: Path) -> None:
    message, sent = os.urandom(8_000_000), 0
    cut = [0, 5, 300, 20_000, 20_001, 1_000_000, len(message)]  # small parts and large ones
    rest = [memoryview(message)[start:end] for start, end in pairwise(cut)]
    with connected(tmp_path) as (ours, theirs):
        got = bytearray()

        def take() -> None:
            while len(got) < len(message):
                got.extend(theirs.recv(65536))

        thread = threading.Thread(target=take)
        while sent < len(message):
            with suppress(ssl.SSLWantWriteError):
                went = ours.sendmsg(rest)
                sent += went
                while went:  # as the rest is kept: from the first byte that did not go
                    first = rest.pop(0)
                    rest[:0] = [first[went:]] if went < len(first) else []
                    went = max(0, went - len(first))
                continue
            if not thread.is_alive():
                thread.start()
            assert select.select([], [ours], [], 20)[1]
        thread.join(60)
        assert bytes(got) == message


def test_the_end_of_a_connection_wakes_who_waits_for_more(tmp_path: Path) -> None:
    with connected(tmp_path) as (ours, theirs):
        theirs.sendall(bytes(30_000))
        threading.Timer(0.2, theirs.close).start()
        seen = 0
        while part := arrived(ours, 100_000 - seen):
            seen += len(part)
        assert seen == 30_000
