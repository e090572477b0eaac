"""A stranger without the page's token costs its owner nothing: a real `edgefl page`, and sockets."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from coordinator.durable.journal import Journal
from edgefl.base import events
from edgefl.system.disk import FolderDisk

NO_BODY = (
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 99\r\n\r\n"
)
WORD = "a-token-that-is-long-enough"


@dataclass(frozen=True)
class Served:
    """The page of a process, and its owner's way to ask it."""

    port: int
    token: bool
    process: subprocess.Popen[str]
    until_done: ExitStack

    def ask(self, path: str, *, owner: bool = True, **headers: str) -> HTTPResponse:
        return self.asking(path, owner=owner, **headers).getresponse()

    def asking(self, path: str, *, owner: bool = True, address: str = "127.0.0.1", **headers: str) -> HTTPConnection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if owner and self.token:
            named["Authorization"] = f"Bearer {WORD}"
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(address, 0))
        self.until_done.enter_context(closing(connection))
        connection.request("GET", path, headers=named)
        return connection

    def stranger(self, address: str, kept: int = 0) -> socket.socket:
        """Connect from this address; the kernel keeps about this number of unread bytes."""
        stranger = socket.socket()
        if kept:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kept)
        stranger.settimeout(60)
        stranger.bind((address, 0))
        stranger.connect(("127.0.0.1", self.port))
        return stranger


@pytest.fixture(params=[True, False], ids=["with a token", "on loopback"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    Journal(FolderDisk(tmp_path / "run")).note(events.Joined("pi-01", at=1.0))
    word = tmp_path / "page.token"
    word.write_text(WORD)
    word.chmod(0o600)
    shown = ["--token", str(word)] if request.param else []
    command = [sys.executable, "-m", "edgefl", "page", str(tmp_path / "run"), "--page", "127.0.0.1:0", *shown]
    errors = tmp_path / "errors"
    with ExitStack() as until_done, errors.open("w") as stderr:
        page = until_done.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True))
        try:
            assert page.stdout is not None
            found = re.search(r"http://127.0.0.1:(\d+)", page.stdout.readline())
            assert found is not None
            yield Served(int(found[1]), request.param, page, until_done)
        finally:
            page.send_signal(signal.SIGCONT)
            page.terminate()
    assert "Traceback" not in errors.read_text()


@pytest.mark.night
@pytest.mark.parametrize("addresses", [1, 60], ids=["of one address", "of sixty addresses"])
@pytest.mark.parametrize(
    "begun", [NO_BODY, b"GET /login HTTP/1.1\r\nHo", b""], ids=["no body", "half a line", "nothing"]
)
def test_requests_that_never_end_do_not_shut_the_page(served: Served, begun: bytes, addresses: int) -> None:
    with ExitStack() as held:
        for number in range(200):
            stranger = held.enter_context(closing(served.stranger(f"127.0.1.{1 + number % addresses}")))
            stranger.sendall(begun)
            if number % 10 == 0:
                assert served.ask("/metrics").status == 200, f"after {number} strangers"
        for path in ("/", "/api/overview", "/metrics", "/static/main.js"):
            assert served.ask(path).status == 200, path


def test_answers_that_are_never_read_do_not_shut_the_page(served: Served) -> None:
    path = b"/login" if served.token else b"/static/vendor/uplot/uPlot.esm.js"
    asked = b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with ExitStack() as held:
        for number in range(200):
            stranger = held.enter_context(closing(served.stranger(f"127.0.1.{1 + number % 60}", kept=4096)))
            with suppress(ConnectionError):  # another stranger has its place
                stranger.sendall(asked * 200)
            if number % 10 == 0:
                assert served.ask("/metrics").status == 200, f"after {number} strangers"
        assert served.ask("/").status == 200


@pytest.mark.parametrize("addresses", [1, 500], ids=["of the owner's address", "of five hundred addresses"])
def test_a_burst_of_connections_does_not_shut_out_the_owner(served: Served, addresses: int) -> None:
    """The owner's connection is a stranger's until its request is read: here a whole burst is before and behind it."""
    here = "127.0.1.1"  # the owner's address, and the first one of the strangers
    for burst in range(3):
        with ExitStack() as held:
            served.process.send_signal(signal.SIGSTOP)
            for number in range(90):  # a kernel keeps 128, unless told otherwise
                place = (burst * 90 + number) % addresses
                held.enter_context(closing(served.stranger(f"127.0.{1 + place // 250}.{1 + place % 250}")))
                if number == 40:
                    owner = served.asking("/metrics", address=here)
            served.process.send_signal(signal.SIGCONT)
            assert owner.getresponse().status == 200, burst


def test_another_web_page_takes_no_place_of_those_who_watch(served: Served) -> None:
    taken = [
        served.ask("/events", owner=False, **headers)
        for headers in ({"Sec_Fetch_Site": "cross-site"}, {"Origin": "https://evil.example"})
        for _ in range(20)
    ]
    assert {answer.status for answer in taken} <= {401, 403}
    watched = served.ask("/events")
    assert watched.status == 200
    watched.readline()
    assert "pi-01" in watched.readline().decode()


def test_no_torn_number_or_huge_header_ends_the_page(served: Served) -> None:
    for path in ("/api/slow?since=nan", "/api/slow?since=inf&until=-inf", "/api/slow?since=1e999"):
        assert served.ask(path).status == 200, path
    assert served.ask("/events", Last_Event_ID="9" * 5000).status == 200
    assert served.ask("/", Cookie="edgefl_page=" + "x" * 30_000).status == 200
    assert served.ask("/", Cookie="x" * 200_000).status == 400
    assert json.loads(served.ask("/api/overview").read())["devices"][0]["name"] == "pi-01"
