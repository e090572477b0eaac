"""Large messages through a TLS socket: whole, in order, whatever pieces they come in; and small ones behind them."""

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from certificates import Authority

from edgefl.wire import packets
from edgefl.wire.lean_client import LeanClient
from edgefl.wire.tls_socket import RECORD, TlsSocket


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


@contextmanager
def encrypting(folder: Path) -> Iterator[tuple[TlsSocket, socket.socket, Callable[[bytes], bytes]]]:
    """Our end, the plain socket of the other one, and what that has to send for a message to come."""
    authority = Authority.new(folder)
    issued = authority.issue("127.0.0.1")
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(issued.certificate, issued.key)
    here = ssl.create_default_context(cafile=issued.ca)
    here.sslsocket_class, here.check_hostname = TlsSocket, False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = there.wrap_bio(incoming, outgoing, server_side=True)

    def shake(theirs: socket.socket) -> None:
        for _ in range(2):  # its greeting, and its last word
            incoming.write(theirs.recv(1 << 16))
            with suppress(ssl.SSLWantReadError):
                session.do_handshake()
            theirs.sendall(outgoing.read())

    def encrypted(message: bytes) -> bytes:
        session.write(message)
        return outgoing.read()

    with socket.create_server(("127.0.0.1", 0)) as server:
        plain = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    thread = threading.Thread(target=shake, args=(theirs,))
    thread.start()
    ours = here.wrap_socket(plain)
    thread.join()
    ours.setblocking(False)
    assert isinstance(ours, TlsSocket)
    with ours, theirs:
        yield ours, theirs, encrypted


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
    message = Random(size).randbytes(size)

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
    message, sent = Random(0).randbytes(8_000_000), 0
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


@pytest.mark.parametrize("size", [20_000, 40_000, 66_000, 100_000, 480_000])
@pytest.mark.parametrize("of_record", [6, 3000, 16_000], ids=lambda piece: f"{piece} bytes of a record")
def test_who_holds_a_part_of_a_record_is_woken_by_the_rest_of_it(tmp_path: Path, size: int, of_record: int) -> None:
    """OpenSSL takes what has come of a record: so much less will be there for the kernel to count."""
    messages: list[int] = []
    client = LeanClient("here", "tcp", lambda _topic, payload, _retained: messages.append(len(payload)), print)
    with encrypting(tmp_path) as (ours, theirs, encrypted):
        client._sock = ours
        stream = encrypted(packets.publish(b"topic", 1, size, retain=False, expires=None) + bytes(size))
        cut = len(stream) - min(len(stream) // 2, RECORD + of_record)
        for piece in (stream[:cut], stream[cut:]):
            theirs.sendall(piece)
            while not messages and select.select([ours], [], [], 0.5)[0]:
                client.loop_read()
    assert messages == [size]
