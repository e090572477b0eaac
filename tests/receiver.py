"""Somebody who is called, on loopback: answers as the test says, and keeps what came."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from typing import Any


class Receiver:
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, str], bytes]] = []  # path, headers, body
        self.answers: list[int] = []  # of the next calls; 200 from then on
        self.location = ""
        self.slow = Event()
        self.slow.set()
        self._came = Condition()
        self.url = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        with self._came:
            self.calls.append((path, headers, body))
            self._came.notify_all()
            return self.answers.pop(0) if self.answers else 200

    def wait(self, count: int) -> None:
        with self._came:
            assert self._came.wait_for(lambda: len(self.calls) >= count, 30), f"{len(self.calls)} calls, not {count}"

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.calls]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(self.path, dict(self.headers), body)
            receiver.slow.wait(30)
            try:
                self.send_response(status)
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass  # the caller has lost its patience

        def do_GET(self) -> None:
            receiver.take(self.path, dict(self.headers), b"{}")
            self.send_error(500)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield receiver
    finally:
        receiver.slow.set()
        server.shutdown()
        server.server_close()
        thread.join()
