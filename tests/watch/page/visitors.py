"""Whoever asks a page plain HTTP."""

import json
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse

from edgefl.watch.page.server import PageServer


class Visitor:
    """Somebody who asks a page, one connection for each question."""

    def __init__(self, server: PageServer) -> None:
        self.server, self.feed = server, server.feed
        self.connections: list[HTTPConnection] = []

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        self.connections.append(connection)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers=named)
        return connection.getresponse()

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.server.close()

    def json(self, path: str) -> dict[str, object]:
        answer = self.ask(path)
        assert answer.status == 200, answer.read()
        return dict(json.loads(answer.read()))


class Stream:
    """Server-sent events, as they come."""

    def __init__(self, answer: HTTPResponse) -> None:
        assert answer.status == 200, answer.read()
        self.answer, self.mark = answer, ""

    def next(self, event: str = "message") -> dict[str, object]:
        """The data of the next event of this name."""
        name, data = "message", ""
        while line := self.answer.readline().decode():
            key, _, value = line.rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                data = value
            elif key == "id":
                self.mark = value
            elif not line.strip() and data:
                if name == event:
                    return dict(json.loads(data))
                name, data = "message", ""
        raise AssertionError("the stream has ended")


Serve = Callable[..., Visitor]
