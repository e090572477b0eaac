"""What stands before every request to the page: who may ask, for what, and what a browser may do with the answer.

* Off loopback, and wherever a token file is named: only who knows the token. On loopback every user of this
  machine, but under a name of this machine only: a stranger's name that leads here (DNS rebinding) is refused.
* Not other web pages: a browser says which site a request comes from (Sec-Fetch-Site, Origin). To follow a link to the
  page is allowed, and nothing else from elsewhere.
* The page only shows. Everything but GET is refused, apart from the form that takes the token.
* A browser runs our own scripts and nothing else: no text, of any author, can become code.
"""

import asyncio
import re
from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgefl.watch.page.token import PageToken
from edgefl.wire.address import is_loopback

STRANGE = "This page is for this machine alone, under its own name: http://127.0.0.1 and the port.\n"
FOREIGN = "Another web page asked for this: open the page itself.\n"
LOGIN = "/login"
OPEN = {LOGIN, "/static/login.css", "/static/theme.js", "/static/icon.svg"}  # what the form itself needs
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@]+))(?::[0-9]{1,5})?")
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Places(Protocol):
    """Who has a place at the page, by the address and port of a connection: `listening.py`."""

    def admit(self, peer: tuple[str, int]) -> None:
        """Keep this connection."""
        ...

    def delay(self, peer: tuple[str, int]) -> float:
        """Return how many seconds the answer to a stranger waits."""
        ...


class PageGuard:
    """Around the whole application. Without a token the page is for this machine alone."""

    def __init__(self, app: ASGIApp, token: PageToken | None, places: Places) -> None:
        self.app, self.token, self.places = app, token, places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing else is spoken here
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self.refusal(scope)
        peer = scope.get("client")  # None of a connection that has just ended
        if peer and refusal is None and (self.token is None or self.token.admits(Headers(scope=scope))):
            self.places.admit(tuple(peer))
        elif peer:
            await asyncio.sleep(self.places.delay(tuple(peer)))
        await (refusal or self.app)(scope, receive, send_guarded)

    def refusal(self, scope: Scope) -> ASGIApp | None:
        """What a request gets that may not be answered; None if it may."""
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        if method != "GET" and not (method == "POST" and path == LOGIN):
            return PlainTextResponse("The page only shows: GET.\n", 405, {"Allow": "GET"})
        if self.token is None and not is_loopback(host_name(headers.get("host", ""))):
            return PlainTextResponse(STRANGE, 403)
        if is_foreign(method, path, headers):
            return PlainTextResponse(FOREIGN, 403)
        if self.token is None or path in OPEN or self.token.admits(headers):
            return None
        if path == "/":
            return RedirectResponse(LOGIN, 303)
        return PlainTextResponse(
            "A token is needed: Authorization: Bearer TOKEN, or the form at /login.\n",
            401,
            {"WWW-Authenticate": 'Bearer realm="edgefl"'},
        )


def is_foreign(method: str, path: str, headers: Headers) -> bool:
    """Return whether a browser asks for another site's page, other than by following a link to this one.

    Sec-Fetch-Site is the browser's own word and counts where it is sent. Elsewhere (plain http off loopback, browsers
    of before 2023) there is Origin, which is `null` for our own form: the page sends no referrer.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        follows = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        return site not in ("same-origin", "none") and not (follows and method == "GET" and path in ("/", LOGIN))
    if origin is None or (origin == "null" and method == "POST"):
        return False
    return _netloc(origin) != headers.get("host", "").lower()


def _netloc(origin: str) -> str | None:
    """Return host and port of an origin, as they stand in a Host header; None if it is none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def host_name(header: str) -> str:
    """Return the name in a Host header, without its port; nothing if the header is not one."""
    match = HOST.fullmatch(header)
    return (match[1] or match[2]) if match else ""
