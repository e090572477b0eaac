"""What can be asked of the page, and what answers.

/                    the page; /static/... its files
/api/overview        all that is known of the run, as JSON
/events              the same at first, then what changes (server-sent events)
/api/device/NAME     the story of one device
/api/slow            how fast each device was, the slowest first; ?since=...&until=... in seconds since 1970
/api/runs            the runs before this one; /api/runs/NAME the rounds of one
/metrics             where the run stands, for Prometheus
/login               where a token is needed: the form that takes it
"""

from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from edgefl.watch.exporters import prometheus
from edgefl.watch.page import files, stream
from edgefl.watch.page.budget import CachedAnswers
from edgefl.watch.page.feed import Feed
from edgefl.watch.page.guard import LOGIN, PageGuard, Places
from edgefl.watch.page.token import AGE, COOKIE, PageToken

FORM = 8192  # bytes of the form with the token

Span: TypeAlias = tuple[float | None, float | None]


class Runs(Protocol):
    """Runs that have left their folders beside this one's: `history.py`."""

    def listed(self) -> list[dict[str, Any]]:
        """What is known of each, the newest first."""
        ...

    def rounds(self, name: str) -> list[dict[str, Any]] | None:
        """The rounds of one of them."""
        ...


class Answers:
    """What answers each request."""

    def __init__(self, feed: Feed, runs: Runs, token: PageToken | None) -> None:
        self.feed, self.runs, self.token = feed, runs, token
        self._slow = CachedAnswers[Span, dict[str, Any]](lambda span: feed.slow(*span))

    async def index(self, request: Request) -> Response:
        return files.answer("index.html", request)

    async def static(self, request: Request) -> Response:
        return files.answer(request.path_params["path"], request)

    async def overview(self, _: Request) -> Response:
        return _json(self.feed.changes())

    async def events(self, request: Request) -> Response:
        return stream.answer(self.feed, request)

    async def device(self, request: Request) -> Response:
        story = self.feed.device(request.path_params["name"])
        return PlainTextResponse("There is no such device.\n", 404) if story is None else _json(story)

    async def slow(self, request: Request) -> Response:
        try:
            since, until = (_moment(request, name) for name in ("since", "until"))
        except ValueError:
            return PlainTextResponse("since and until are seconds since 1970.\n", 400)
        answer = await self._slow.ask((since, until))
        if answer is None:
            return PlainTextResponse("Too many requests at once.\n", 503, {"Retry-After": "10"})
        return _json(answer)

    async def listed(self, _: Request) -> Response:
        return _json({"runs": await run_in_threadpool(self.runs.listed)})

    async def rounds(self, request: Request) -> Response:
        rows = await run_in_threadpool(self.runs.rounds, request.path_params["name"])
        return PlainTextResponse("There is no such run.\n", 404) if rows is None else _json({"rounds": rows})

    async def metrics(self, _: Request) -> Response:
        standing = self.feed.look(prometheus.standing_of)
        return Response(await run_in_threadpool(prometheus.text, standing), media_type=prometheus.CONTENT_TYPE)

    async def form(self, request: Request) -> Response:
        return files.answer("login.html", request)

    async def login(self, request: Request) -> Response:
        if self.token is None:
            return RedirectResponse("/", 303)
        word = await form_word(request)
        if word is None or not self.token.is_word(word):
            return files.answer("wrong.html", request)
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, self.token.cookie, max_age=AGE, httponly=True, samesite="strict", secure=secure)
        return answer


def build(feed: Feed, runs: Runs, token: PageToken | None, places: Places) -> PageGuard:
    """The whole application, behind its guard; `places` is told of each connection that may see the run."""
    answers = Answers(feed, runs, token)
    routes = [
        *run_routes(answers),
        Route("/static/{path:path}", answers.static),
        Route(LOGIN, answers.form, methods=["GET"]),
        Route(LOGIN, answers.login, methods=["POST"]),
    ]
    return PageGuard(Starlette(routes=routes), token, places)


def run_routes(answers: Answers) -> list[Route]:
    """Everything that is about one run: its page asks for these paths relative to its own."""
    return [
        Route("/", answers.index),
        Route("/api/overview", answers.overview),
        Route("/events", answers.events),
        Route("/api/device/{name:path}", answers.device),
        Route("/api/slow", answers.slow),
        Route("/api/runs", answers.listed),
        Route("/api/runs/{name}", answers.rounds),
        Route("/metrics", answers.metrics),
    ]


def _json(value: Any) -> Response:  # Any: whatever JSON can say
    return Response(stream.dumps(value), media_type="application/json")


def _moment(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    return float(text) if text else None


async def form_word(request: Request) -> str | None:
    """What was typed into the form, if it is one."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM:
                return None
        return parse_qs(body.decode("ascii"), max_num_fields=4).get("token", [""])[0]
    except (ClientDisconnect, ValueError):
        return None
