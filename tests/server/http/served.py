"""A server's API over real HTTP on loopback, around a server on a virtual disk."""

import json
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from http.client import HTTPConnection
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.audit import AuditLog
from edgefl.job.config.page import Page
from edgefl.server.http.queue_feed import QueueFeed
from edgefl.server.http.web import Web
from edgefl.server.people import People
from edgefl.system.clock import SystemClock
from edgefl.watch.overview.overview import Overview
from edgefl.watch.page.feed import Feed
from tools.chaos_server.machine import VirtualServer

RUN = '[run]\nname = "{name}"\n[broker]\nfleet = "{fleet}"\n[rounds]\ncohort = 2\n{more}'
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Around:
    """What the API needs of a server."""

    def __init__(self, folder):
        self.machine, self.clock, self.folder = VirtualServer(), SystemClock(), folder
        server_tell = self.machine.server.around.tell
        self.machine.server.fleets = dict.fromkeys(("north", "south"), self.machine.server.fleets["default"])
        self.feeds = {name: Feed(Overview()) for name in ("north", "south")}
        self.queue = QueueFeed(self)
        server = self.machine.server
        server.around = replace(server.around, tell=lambda *told: (server_tell(*told), self.queue.changed()))
        self.audit, self.people = AuditLog.opened(folder), People(folder)
        self._turn = threading.Lock()

    def ask(self, call):
        reply: Future = Future()
        with self._turn:
            self.machine.server.handle(_ask(call, reply))
        return reply.result(10)

    def log_of(self, run):
        return self.folder / f"{run}.log"


def _ask(call, reply):
    from edgefl.server.shell.service import ServerCall

    return ServerCall(call, reply)


class Client:
    """A person with a token."""

    def __init__(self, url, token):
        self.url, self.token = url, token
        self._open = []

    def ask(self, path, method="GET", **headers):
        """An answer with its headers, which may go on; redirections are not followed."""
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname, address.port, timeout=30)
        self._open.append(connection)
        known = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection.request(method, path, headers={**known, **headers})
        answer = connection.getresponse()
        self._open.append(answer)
        return answer

    def close(self):
        """Close what was asked and goes on."""
        for one in self._open:
            one.close()

    def __call__(self, method, path, body=None, **headers):
        """The status of the answer, and what it says."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        known = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        }
        request = Request(self.url + path, data, {**known, **headers}, method=method)
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.status, _read(answer)
        except HTTPError as error:
            with error:
                return error.code, _read(error)


def _read(answer):
    raw = answer.read()
    return json.loads(raw) if "json" in answer.headers.get("Content-Type", "") and raw else raw


@contextmanager
def served(folder):
    """The server, and a client for each role."""
    for name in ("north", "south"):
        FleetAdministration.new(name, ["127.0.0.1"], 8883, datetime.now(timezone.utc))
    around = Around(folder)
    tokens = {role: around.people.add(role, role, NOW) for role in ("viewer", "operator", "admin")}
    tokens["northern"] = around.people.add("northern", "operator", NOW, ("north",))
    web = Web(around, Page(port=0))
    clients = {name: Client(web.url, token) for name, token in {**tokens, "nobody": ""}.items()}
    try:
        yield around, clients
    finally:
        for client in clients.values():
            client.close()
        web.close()


def new_run(name="a", fleet="north", request="r", more="", **about):
    return {"run_file": RUN.format(name=name, fleet=fleet, more=more), "request": request, **about}
