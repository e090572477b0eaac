"""The server's place on the network.

/api/v1/...              the API: api.py, described by /openapi.json
/                        the page of a fleet; /static/... files of the pages
/fleets/NAME/...         what the page asks of a fleet: fleet_pages.py
/runs/NAME/              the page of one run, from its folder: run_pages.py
/metrics                 fleets and queue, for Prometheus: metrics.py
/login                   the form that takes a token
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from edgefl.fleet.audit import AuditLog
from edgefl.fleet.folder import FleetFolder
from edgefl.job.config.page import Page
from edgefl.server.folder import Here
from edgefl.server.http import api, fleet_pages
from edgefl.server.http.guard import PeopleGuard
from edgefl.server.http.queue_feed import QueueFeed
from edgefl.server.http.run_pages import RunPages
from edgefl.server.people import COOKIE, People
from edgefl.server.shell.service import Server
from edgefl.system.clock import Clock
from edgefl.watch.page import files
from edgefl.watch.page.app import form_word
from edgefl.watch.page.feed import Feed
from edgefl.watch.page.guard import LOGIN, Places
from edgefl.watch.page.server import HttpServer
from edgefl.watch.page.token import AGE

T = TypeVar("T")


class Surrounding(Protocol):
    """The server around it, as far as HTTP needs it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def folder(self) -> Path: ...

    @property
    def feeds(self) -> Mapping[str, Feed]: ...

    @property
    def queue(self) -> QueueFeed: ...

    @property
    def audit(self) -> AuditLog: ...

    @property
    def people(self) -> People: ...

    def ask(self, call: Callable[[Server], T]) -> T: ...

    def log_of(self, run: str) -> Path: ...


class Web(HttpServer):
    """Serves from its making until it is closed."""

    def __init__(self, around: Surrounding, page: Page) -> None:
        self.around, self.runs = around, RunPages()
        fleet = FleetFolder(next(iter(around.feeds)))
        self.authority = fleet.authority[0]
        name = fleet.read_settings().hosts[0]  # as it stands in the certificate
        super().__init__(_certified(page, fleet), self._application, name)

    def here(self, fleets: tuple[str, ...]) -> Here:
        """How commands on this machine reach it."""
        authority = self.authority if self.page.certificate else None
        return Here(url=self.url, fleets=fleets, token_file=self.around.people.admin_file, authority=authority)

    def close(self) -> None:
        for feed in self.around.feeds.values():
            feed.close()
        self.runs.close()
        super().close()

    def _application(self, places: Places) -> PeopleGuard:
        app: FastAPI = api.application(self.around)
        app.add_route(LOGIN, self._form, methods=["GET"], include_in_schema=False)
        app.add_route(LOGIN, self._login, methods=["POST"], include_in_schema=False)
        fleet_pages.add_to(app, self.around, self.runs)
        app.add_route("/static/{path:path}", self._static, methods=["GET"], include_in_schema=False)
        return PeopleGuard(app, self.around.people.of_request, places)

    async def _form(self, request: Request) -> Response:
        return files.answer("login.html", request)

    async def _static(self, request: Request) -> Response:
        return files.answer(request.path_params["path"], request)

    async def _login(self, request: Request) -> Response:
        word = await form_word(request)
        if word is None or self.around.people.by_word(word) is None:
            return files.answer("wrong.html", request)
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        cookie = self.around.people.cookie(word)
        answer.set_cookie(COOKIE, cookie, max_age=AGE, httponly=True, samesite="strict", secure=secure)
        return answer


def _certified(page: Page, fleet: FleetFolder) -> Page:
    """The page's settings; off loopback with the fleet's own certificate, unless the file names another one."""
    certificate, key = fleet.broker / "broker.crt", fleet.broker / "broker.key"
    if page.local or page.certificate or not (certificate.exists() and key.exists()):
        return page
    return page.model_copy(update={"certificate": certificate, "key": key})
