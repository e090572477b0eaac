"""What stands before every request to the page: who may ask, for what, and what a browser may do with the answer.

* Off loopback, and wherever a token file is named: only who knows the token. On loopback anybody on this machine, but
  under a name of this machine only: a stranger's name that leads here (DNS rebinding) is refused.
* The page only shows. Everything but GET is refused, apart from the form that takes the token.
* A browser runs our own scripts and nothing else: no text, whoever wrote it, can become code.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgefl.page.token import Token
from edgefl.protocol.address import is_loopback

STRANGE = "This page is for this machine alone, under its own name: http://127.0.0.1 and the port.\n"
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
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Around the whole application. Without a token the page is for this machine alone."""

    def __init__(self, app: ASGIApp, token: Token | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing else is spoken here
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self.refusal(scope) or self.app
        await answer(scope, receive, send_guarded)

    def refusal(self, scope: Scope) -> ASGIApp | None:
        """What a request gets that may not be answered; None if it may."""
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        if method != "GET" and not (method == "POST" and path == LOGIN):
            return PlainTextResponse("The page only shows: GET.\n", 405, {"Allow": "GET"})
        if self.token is None:
            return None if is_loopback(_host(headers.get("host", ""))) else PlainTextResponse(STRANGE, 403)
        if path in OPEN or self.token.admits(headers):
            return None
        if path == "/":
            return RedirectResponse(LOGIN, 303)
        return PlainTextResponse(
            "A token is needed: Authorization: Bearer TOKEN, or the form at /login.\n",
            401,
            {"WWW-Authenticate": 'Bearer realm="edgefl"'},
        )


def _host(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
