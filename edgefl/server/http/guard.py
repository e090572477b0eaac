"""What stands before every request to a server: who asks, and whether another web page made a browser ask.

All but the form for the token is for people only (people.py): on loopback too, because requests here change things.
"""

import asyncio
from collections.abc import Callable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgefl.server.people import Principal
from edgefl.watch.page.guard import FOREIGN, HEADERS, LOGIN, OPEN, Places, is_foreign

PRINCIPAL = "edgefl.principal"  # in the scope of a request
LARGEST = 2 << 20  # bytes of a request: a run file has 1 MiB at most
NEEDED = "A token is needed: Authorization: Bearer TOKEN, or the form at /login.\n"


class PeopleGuard:
    """Around the whole application; `of_request` says who sends a request with these headers from this address."""

    def __init__(
        self,
        app: ASGIApp,
        of_request: Callable[[Mapping[str, str], str | None], Principal | None],
        places: Places,
    ) -> None:
        self.app, self.of_request, self.places = app, of_request, places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing else is spoken here
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers, peer = Headers(scope=scope), scope.get("client")
        principal = self.of_request(headers, peer[0] if peer else None)
        if peer and principal is not None:
            self.places.admit(tuple(peer))
        elif peer:
            await asyncio.sleep(self.places.delay(tuple(peer)))
        scope[PRINCIPAL] = principal
        await (_refusal(scope, headers, principal) or self.app)(scope, receive, send_guarded)


def is_run_page(path: str) -> bool:
    """Return whether this is the address of a run's page, which a person may have typed or kept."""
    return path.startswith("/runs/") and path.endswith("/")


def _refusal(scope: Scope, headers: Headers, principal: Principal | None) -> ASGIApp | None:
    """What a request gets that may not be answered; None if it may."""
    method, path = scope["method"], scope["path"]
    if is_foreign(method, path, headers):
        return PlainTextResponse(FOREIGN, 403)
    length = headers.get("content-length", "0")
    bounded = "transfer-encoding" not in headers and length.isdigit() and int(length) <= LARGEST
    if method not in {"GET", "HEAD"} and path != LOGIN and not bounded:
        return PlainTextResponse(f"A request has at most {LARGEST >> 20} MiB, and says its length.\n", 413)
    if principal is not None or path in OPEN:
        return None
    if path == "/" or is_run_page(path):
        return RedirectResponse(LOGIN, 303)
    return PlainTextResponse(NEEDED, 401, {"WWW-Authenticate": 'Bearer realm="edgefl"'})
