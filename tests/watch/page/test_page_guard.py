"""Who may see the page, and what a browser may do with it."""

import asyncio
import os
import re
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest
from visitors import Serve

from edgefl.base.errors import ConfigError
from edgefl.job.config.page import Page, place
from edgefl.watch.page import guard, listening, rate, server, stream, token
from edgefl.watch.page.token import PageToken

FORM = {"Content_Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def word(tmp_path: Path) -> Path:
    return tmp_path / "page.token"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8600",
        "10.0.0.7",
        "",
        "127.0.0.1.evil.example",
        "[::2]:80",
        "[::1].evil.example",
        "[::1",
        "[::1]evil.example:80",
        "127.0.0.1:80:80",
        "127.0.0.1@evil.example",
        "localhost:x",
    ],
)
def test_a_stranger_s_name_that_leads_here_is_refused(serve: Serve, host: str) -> None:
    answer = serve().ask("/api/overview", Host=host)
    assert answer.status == 403
    assert b"run" not in answer.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8600", "[::1]:8600", "127.0.0.1:1"])
def test_this_machine_s_own_names_are_known(serve: Serve, host: str) -> None:
    assert serve().ask("/api/overview", Host=host).status == 200


def test_the_page_only_shows(serve: Serve) -> None:
    page = serve()
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        for path in ("/", "/api/overview", "/events", "/static/main.js"):
            assert page.ask(path, method).status == 405


@pytest.mark.parametrize("path", ["/", "/api/overview", "/static/main.js", "/nowhere", "/api/device/nobody", "/login"])
def test_no_answer_lets_a_browser_run_anything_but_our_scripts(serve: Serve, path: str) -> None:
    headers = serve().ask(path).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Access-Control-Allow-Origin"] is None
    assert headers["Server"] is None


def test_no_file_of_ours_needs_what_the_policy_forbids() -> None:
    folder = Path(guard.__file__).parent / "static"
    for path in folder.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<style|style=|\son\w+=|javascript:|<script(?![^>]*src=)", text), path
        assert not re.search(r"(src|href)=\"(?!/static/|#|/\")", text), path
    for path in folder.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|https?://", text
        )


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/%2e%2e/%2e%2e/errors.py"]
)
def test_nothing_of_the_disk_can_be_asked_for(serve: Serve, path: str) -> None:
    assert serve().ask(path).status == 404


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2fhere", ".hidden"])
def test_a_run_is_one_that_is_listed(serve: Serve, tmp_path: Path, name: str) -> None:
    (tmp_path / "runs" / ".hidden").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "runs" / ".hidden"):
        (folder / "metrics.jsonl").write_text('{"event": "round", "round": 1}\n')
    assert serve(runs=tmp_path / "runs").ask(f"/api/runs/{name}").status == 404


# ── the token ────────────────────────────────────────────────────────────────────────────────────────────────


def test_off_loopback_a_token_is_made_and_asked_for(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    os.umask(os.umask(0o022))
    page = serve(page=Page(host="0.0.0.0", port=0))
    file = tmp_path / "edgefl" / "page.token"
    assert page.server.token_file == file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text().strip()) >= 40
    assert page.ask("/api/overview").status == 401
    assert page.ask("/", Host="server.local").getheader("Location") == "/login"
    bearer = {"Authorization": f"Bearer {file.read_text().strip()}", "Host": "server.local"}
    assert page.ask("/api/overview", **bearer).status == 200
    again = serve(page=Page(host="0.0.0.0", port=0))
    assert again.ask("/api/overview", **bearer).status == 200, "one token for all pages of this operator"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic {word}"},
        {"Cookie": "edgefl_page="},
        {"Cookie": "edgefl_page={word}"},  # the cookie is not the word itself
        {"Cookie": "edgefl_page=ö; x"},
        {"Cookie": "=;=;=", "Authorization": "Bearer ü"},
    ],
)
def test_whoever_does_not_show_the_token_sees_nothing(serve: Serve, word: Path, headers: dict[str, str]) -> None:
    page = serve(page=Page(port=0, token=word))
    shown = {
        name: value.format(word=word.read_text().strip()).encode().decode("latin-1") for name, value in headers.items()
    }
    for path in ("/api/overview", "/events", "/static/main.js", "/static/page.css", "/api/runs"):
        assert page.ask(path, **shown).status == 401


def test_the_form_gives_a_cookie_that_scripts_and_strangers_do_not_get(serve: Serve, word: Path) -> None:
    page = serve(page=Page(port=0, token=word))
    typed = urlencode({"token": word.read_text()})
    answer = page.ask("/login", "POST", typed, **FORM)
    assert (answer.status, answer.getheader("Location")) == (303, "/")
    cookie = answer.getheader("Set-Cookie") or ""
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert word.read_text().strip() not in cookie
    pair = cookie.partition(";")[0]
    assert page.ask("/api/overview", Cookie=f"other=1; {pair}").status == 200
    assert page.ask("/", Cookie=pair).status == 200


@pytest.mark.parametrize("typed", ["token=wrong", "", "token=%ff%ff", "x" * 20_000, "&" * 50])
def test_a_wrong_word_gives_no_cookie(serve: Serve, word: Path, typed: str) -> None:
    answer = serve(page=Page(port=0, token=word)).ask("/login", "POST", typed, **FORM)
    assert answer.getheader("Set-Cookie") is None
    assert b"That is not the token" in answer.read()


def test_a_token_that_others_can_read_is_none(word: Path) -> None:
    word.write_text("a" * 40)
    word.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        token.opened(word)


@pytest.mark.parametrize("text", [b"short", b"", b"\xff" * 40, b"a" * 5000])
def test_a_file_that_is_no_token_is_refused(word: Path, text: bytes) -> None:
    word.write_bytes(text)
    word.chmod(0o600)
    with pytest.raises(ConfigError, match="delete it"):
        token.opened(word)


def test_a_token_is_compared_without_its_end_of_line() -> None:
    assert PageToken("abc").is_word(" abc\n")
    assert not PageToken("abc").is_word("abcd")


# ── the place ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_port_that_is_taken_is_passed_over(serve: Serve) -> None:
    first = serve().server
    second = serve(page=Page(port=first.port)).server
    assert first.port < second.port < first.port + listening.TRIES
    assert (first.as_asked, second.as_asked) == (True, False)


def test_a_place_that_cannot_be_is_the_operator_s_mistake() -> None:
    with pytest.raises(ConfigError, match="no such host"):
        listening.listening("no such host", 8600)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8700", {"port": "8700"}),
        ("0.0.0.0", {"host": "0.0.0.0"}),
        ("server.local:81", {"host": "server.local", "port": "81"}),
        ("[::1]:82", {"host": "::1", "port": "82"}),
        ("[::1]", {"host": "::1"}),
    ],
)
def test_a_place_is_a_port_a_host_or_both(text: str, found: dict[str, str]) -> None:
    assert place(text) == found


@pytest.mark.parametrize("text", ["", ":", "host:port", "host:"])
def test_another_place_is_refused(text: str) -> None:
    if text == "host:":
        assert place(text) == {"host": "host"}
        return
    with pytest.raises(ConfigError, match="write a port"):
        place(text)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HT",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\ntoken",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /metr",
    ],
    ids=["nothing", "half a line", "half a body", "no body", "half a second request"],
)
def test_a_request_that_does_not_come_to_its_end_is_let_go_of(
    serve: Serve, word: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.3)
    page = serve(page=Page(port=0, token=word))
    with socket.create_connection(("127.0.0.1", page.server.port), timeout=30) as slow:
        slow.sendall(begun)
        with suppress(ConnectionResetError):
            while slow.recv(1 << 16):
                pass


def test_a_request_that_came_whole_may_be_answered_for_as_long_as_it_takes(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE", 60.0)  # for the request: a slow machine needs some of it
    monkeypatch.setattr(stream, "HEARTBEAT", 0.1)
    page = serve()
    answer = page.ask("/events")
    (connection,) = page.server._server.server_state.connections
    assert connection._arriving is None, "with its last byte the time for the request is over"  # type: ignore[union-attr]
    while b"still here" not in (line := answer.readline()):
        assert line, "it was let go of"


def unread(port: int) -> socket.socket:
    """Ask for more than the kernel's buffers hold, and read nothing."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(30)
    line.connect(("127.0.0.1", port))
    line.sendall(b"GET /static/vendor/uplot/uPlot.esm.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100)
    return line


def test_who_asks_and_does_not_read_is_let_go_of(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.3)
    page = serve()
    with unread(page.server.port):
        assert page.ask("/api/overview").read()
        page.connections.pop().close()
        deadline = time.monotonic() + 60
        while page.server._server.server_state.connections:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_who_reads_slowly_gets_the_whole_answer(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look = server.TimedConnection._look_at_reader
    monkeypatch.setattr(
        server.TimedConnection, "_look_at_reader", lambda self, left: looks.append(left) or look(self, left)
    )
    monkeypatch.setattr(server, "PATIENCE", 0.05)
    monkeypatch.setattr(server, "LEAST", 0)  # however little was taken, it is enough
    with unread(serve().server.port) as line:
        deadline = time.monotonic() + 60
        while len(looks) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 100:
            piece = line.recv(1 << 20)
            assert piece, "it was let go of"
            answers += piece


def test_no_more_connections_than_are_good_for_the_run(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MOST", 3)
    page = serve()
    held = [socket.create_connection(("127.0.0.1", page.server.port), timeout=30) for _ in range(8)]
    for one in held[:5]:
        assert one.recv(1) == b"", "the oldest give way"
    for one in held[5:]:
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert one.recv(12) == b"HTTP/1.1 200"
    for one in held:
        one.close()


def test_the_owner_gets_in_where_all_places_are_taken_by_admitted_ones(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MOST", 3)
    page = serve()
    assert [page.ask("/events").status for _ in range(5)] == [200] * 5


# ── the rate ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_address_has_a_burst_and_then_so_many_a_second() -> None:
    bucket = rate.Rate()
    assert [bucket.take("a", 0.0) for _ in range(rate.BURST)] == [0.0] * rate.BURST
    assert 0.0 < bucket.take("a", 0.0) <= 1 / rate.PER_SECOND
    assert bucket.take("b", 0.0) == 0.0
    assert bucket.take("a", 0.2) == 0.0
    for _ in range(10_000):
        assert bucket.take("a", 0.2) <= rate.DEBT + 1 / rate.PER_SECOND
    assert bucket.take("a", 0.2 + rate.DEBT + 0.2) == 0.0, "a flood leaves no debt behind"
    for number in range(2 * rate.ADDRESSES):
        bucket.take(str(number), 0.2)
    assert len(bucket._full_at) == rate.ADDRESSES


@pytest.mark.parametrize("here", [False, True], ids=["from elsewhere", "from this machine"])
def test_an_address_that_comes_too_often_is_sent_away_at_once(here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "PER_SECOND", 1e-3)
    monkeypatch.setattr(rate, "BURST", 3)
    monkeypatch.setattr(listening, "is_loopback", lambda _: here)
    place, _ = listening.listening("127.0.0.1", 0)
    lines = [socket.create_connection(place.getsockname(), timeout=30) for _ in range(5)]
    taken = []
    with suppress(BlockingIOError):
        while True:
            taken.append(place.accept())
    assert len(taken) == (5 if here else 3)
    if not here:
        place.admit(taken[0][1])  # one that belongs here is behind the same address
        lines.append(socket.create_connection(place.getsockname(), timeout=30))
        place.accept()[0].close()
    for one in lines:
        one.close()
    place.close_all()


def test_only_strangers_wait_for_their_answers(word: Path) -> None:
    known, admitted, delayed = token.opened(word), list[object](), list[object]()

    class Places:
        def admit(self, peer: object) -> None:
            admitted.append(peer)

        def delay(self, peer: object) -> float:
            delayed.append(peer)
            return 0.0

    async def app(*_: object) -> None:
        pass

    async def send(_: object) -> None:
        pass

    door = guard.PageGuard(app, known, Places())
    bearer = (b"authorization", f"Bearer {word.read_text().strip()}".encode())
    for number, (path, headers) in enumerate([("/", []), ("/login", []), ("/metrics", [bearer]), ("/login", [bearer])]):
        scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "client": ("10.0.0.1", number)}
        with ThreadPoolExecutor(1) as pool:  # a browser of another test has a loop in our thread
            pool.submit(lambda given=scope: asyncio.run(door(given, app, send))).result()  # type: ignore[arg-type, misc]
    assert ([peer[1] for peer in delayed], [peer[1] for peer in admitted]) == ([0, 1], [2, 3])  # type: ignore[index]


# ── the places ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stranger_takes_the_place_of_the_oldest_of_the_same_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "PER_ADDRESS", 2)
    there = [("10.0.0.1", 1), ("10.0.0.2", 1), ("10.0.0.1", 2)]
    assert listening.gives_way(there, ("10.0.0.1", 3)) == ("10.0.0.1", 1)
    assert listening.gives_way(there, ("10.0.0.2", 2)) is None


def test_where_all_places_are_taken_the_largest_crowd_gives_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "STRANGERS", 4)
    there = [("10.0.0.9", 1), ("10.0.0.1", 1), ("10.0.0.1", 2), ("10.0.0.2", 1)]
    assert listening.gives_way(there, ("10.0.0.3", 1)) == ("10.0.0.1", 1)
    there = [("10.0.0.9", 1), ("10.0.0.9", 2), ("192.0.2.1", 1), ("192.0.2.2", 1), ("192.0.2.3", 1)]
    assert listening.gives_way(there, ("10.0.0.8", 1)) == ("192.0.2.1", 1), "one connection each, of one network"


def test_a_network_of_ipv6_is_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "PER_ADDRESS", 1)
    assert listening.gives_way([("2001:db8::1", 1)], ("2001:db8::ffff:2", 1)) == ("2001:db8::1", 1)
    assert listening.gives_way([("2001:db8::1", 1)], ("2001:db8:1::1", 1)) is None
    assert listening.gives_way([("::ffff:10.0.0.1", 1)], ("10.0.0.1", 2)) == ("::ffff:10.0.0.1", 1)


def test_a_connection_that_was_admitted_keeps_its_place(
    serve: Serve, word: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "PER_ADDRESS", 1)
    page = serve(page=Page(port=0, token=word))
    line = HTTPConnection("127.0.0.1", page.server.port, timeout=30)
    page.connections.append(line)
    bearer = {"Authorization": f"Bearer {word.read_text().strip()}"}
    for _ in range(2):
        line.request("GET", "/api/overview", headers=bearer)
        answer = line.getresponse()
        answer.read()
        assert answer.status == 200
        own = line.sock.getsockname()
        assert page.ask("/login").status == page.ask("/login").status == 200
        assert line.sock.getsockname() == own, "the same connection"


# ── other web pages ──────────────────────────────────────────────────────────────────────────────────────────

FOLLOWED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this machine
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://["},
    ],
)
def test_another_web_page_gets_nothing(serve: Serve, headers: dict[str, str]) -> None:
    page = serve()
    for path in ("/", "/api/overview", "/events", "/metrics", "/static/main.js"):
        assert page.ask(path, **headers).status == 403


def test_a_link_to_the_page_may_be_followed_and_nothing_else(serve: Serve, word: Path) -> None:
    assert serve().ask("/", **FOLLOWED).status == 200
    assert serve().ask("/api/overview", **FOLLOWED).status == 403
    page = serve(page=Page(port=0, token=word))
    assert page.ask("/", **FOLLOWED).getheader("Location") == "/login"
    assert page.ask("/login", **FOLLOWED).status == 200
    assert page.ask("/login", "POST", "token=x", **FORM, **FOLLOWED).status == 403


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}])
def test_the_page_itself_and_what_is_typed_are_answered(serve: Serve, headers: dict[str, str]) -> None:
    assert serve().ask("/api/overview", **headers).status == 200


def test_the_page_s_own_origin_is_known(serve: Serve) -> None:
    page = serve()
    assert page.ask("/api/overview", Origin=f"http://127.0.0.1:{page.server.port}").status == 200
