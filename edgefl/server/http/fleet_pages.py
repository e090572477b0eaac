"""What answers the page of a fleet, and the pages of its runs. Every answer is for people whose fleet it is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from edgefl.base.errors import StoreError
from edgefl.base.version import __version__
from edgefl.server.decide.alerts import AlertState
from edgefl.server.decide.runs import ServerState
from edgefl.server.http import alert_metrics, metrics
from edgefl.server.http.fleet_stream import FleetStream
from edgefl.server.http.guard import PRINCIPAL
from edgefl.server.http.queue_feed import QueueFeed
from edgefl.server.http.run_pages import RunPages, TooMany
from edgefl.server.people import People, Principal
from edgefl.server.shell.service import Server
from edgefl.watch.exporters.prometheus import CONTENT_TYPE
from edgefl.watch.page import files
from edgefl.watch.page.feed import Feed
from edgefl.watch.page.stream import dumps

T = TypeVar("T")

FOLDER = Path(__file__).parent / "static"


class PageSurroundings(Protocol):
    """What the pages need of the server around them."""

    @property
    def feeds(self) -> Mapping[str, Feed]: ...

    @property
    def queue(self) -> QueueFeed: ...

    @property
    def people(self) -> People: ...

    def ask(self, call: Callable[[Server], T]) -> T: ...


def add_to(app: FastAPI, around: PageSurroundings, runs: RunPages) -> None:
    """Let the application answer for the pages as well."""
    pages = _Pages(around, runs)
    for path, answer in {
        "/": pages.index,
        "/static/server/{path:path}": pages.static,
        "/me": pages.me,
        "/fleets/{fleet}/events": pages.events,
        "/fleets/{fleet}/queue": pages.queue,
        "/fleets/{fleet}/device/{name:path}": pages.device,
        "/metrics": pages.metrics,
    }.items():
        app.add_route(path, answer, methods=["GET"], include_in_schema=False)
    app.router.routes.append(Mount("/runs/{name}", app=pages.run))


class _Pages:
    def __init__(self, around: PageSurroundings, runs: RunPages) -> None:
        self.around, self.runs = around, runs

    async def index(self, request: Request) -> Response:
        return files.answer("fleet.html", request, FOLDER)

    async def static(self, request: Request) -> Response:
        return files.answer(request.path_params["path"], request, FOLDER)

    async def me(self, request: Request) -> Response:
        """Who asks, and what they may: the page shows no button that would be refused."""
        principal = _principal(request)
        fleets = [name for name in sorted(self.around.feeds) if principal.sees(name)]
        return _json({"name": principal.name, "role": principal.role, "fleets": fleets, "version": __version__})

    async def events(self, request: Request) -> Response:
        fleet, feed = self._fleet(request)
        if feed is None:
            return _no_fleet(fleet)
        peer = request.client.host if request.client else None

        def may_see() -> bool:
            principal = self.around.people.of_request(request.headers, peer)
            return principal is not None and principal.sees(fleet)

        return FleetStream(fleet, feed, self.around.queue, may_see).answer(request)

    async def queue(self, request: Request) -> Response:
        fleet, feed = self._fleet(request)
        if feed is None:
            return _no_fleet(fleet)
        return Response(await run_in_threadpool(self.around.queue.text, fleet), media_type="application/json")

    async def device(self, request: Request) -> Response:
        fleet, feed = self._fleet(request)
        if feed is None:
            return _no_fleet(fleet)
        story = feed.device(request.path_params["name"])
        return PlainTextResponse("There is no such device.\n", 404) if story is None else _json(story)

    async def metrics(self, request: Request) -> Response:
        principal = _principal(request)
        feeds = {name: feed for name, feed in self.around.feeds.items() if principal.sees(name)}
        return Response(await run_in_threadpool(self._series, feeds), media_type=CONTENT_TYPE)

    def _series(self, feeds: Mapping[str, Feed]) -> str:
        """Return the series of these fleets, those of alerts included."""
        state, alerts = self.around.ask(lambda server: (server.state, _alerts(server)))
        told = alert_metrics.text(alerts[0], tuple(feeds), alerts[1]) if alerts else ""
        return metrics.text(feeds, state) + told

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The page of one run, and what it asks for."""
        request = Request(scope)
        name, principal = scope["path_params"]["name"], _principal(request)
        state = await run_in_threadpool(self._state)
        run = state.runs.get(name)
        if run is None or not principal.sees(run.submission.fleet):
            await PlainTextResponse(f"There is no run '{name}' here.\n", 404)(scope, receive, send)
            return
        fleet = run.submission.fleet

        def names() -> set[str]:
            return {one.name for one in self._state().runs.values() if one.submission.fleet == fleet}

        try:
            page = await self.runs.page(Path(run.submission.folder) / name, names)
        except (TooMany, StoreError) as error:
            refusal = PlainTextResponse(f"{error}\n", 503, {"Retry-After": "10"})
            await refusal(scope, receive, send)
            return
        if page is not None:
            await page(scope, receive, send)
        elif scope["path"].endswith(f"/runs/{name}/"):  # nothing to show of it but where it stands in the queue
            await RedirectResponse(f"/#{fleet}/runs/{name}", 303)(scope, receive, send)
        else:
            await PlainTextResponse("Nothing is written of this run.\n", 404)(scope, receive, send)

    def _state(self) -> ServerState:
        return self.around.ask(lambda server: server.state)

    def _fleet(self, request: Request) -> tuple[str, Feed | None]:
        """Return the fleet that is asked for; no feed if there is none, or it is not theirs to see."""
        name = request.path_params["fleet"]
        return name, self.around.feeds.get(name) if _principal(request).sees(name) else None


def _alerts(server: Server) -> tuple[AlertState, frozenset[str]] | None:
    """Return the alerts of a server, and the kinds that its operator does not want."""
    return None if server.alerts is None else (server.alerts.state, server.alerts.equipment.rules.off)


def _principal(request: Request) -> Principal:
    principal: Principal = request.scope[PRINCIPAL]  # the guard refuses every other request
    return principal


def _no_fleet(name: str) -> Response:
    return PlainTextResponse(f"There is no fleet '{name}' here.\n", 404)


def _json(value: object) -> Response:
    return Response(dumps(value), media_type="application/json")
