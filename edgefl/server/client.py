"""A server as commands reach it: the one on this machine, or one that is named by its address.

edgefl run list                                       the server of this user on this machine
edgefl run list --server https://server.local:8600    another one; its token from EDGEFL_TOKEN, or --token FILE
"""

import json
import os
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from edgefl.base.errors import ConfigError, RunError
from edgefl.server import folder
from edgefl.wire.address import is_loopback

TOKEN = "EDGEFL_TOKEN"  # noqa: S105 - the name of a variable
PATIENCE = 40.0  # seconds for an answer
LARGEST = 32 << 20  # bytes of an answer


class _SameAddress(HTTPRedirectHandler):
    """A token is for one address."""

    def redirect_request(self, *_: Any) -> None:
        return None


class ServerClient:
    """One server."""

    def __init__(self, url: str, token: str, authority: Path | None = None) -> None:
        self.url, self._token = url.rstrip("/"), token
        context = ssl.create_default_context(cafile=str(authority) if authority else None)
        self._opener = build_opener(_SameAddress, HTTPSHandler(context=context))

    def get(self, path: str, **query: Any) -> Any:
        """What stands there."""
        asked = urlencode({key: value for key, value in query.items() if value is not None})
        return self._send("GET", f"{path}?{asked}" if asked else path, None)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._send("POST", path, body or {})

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._send("PUT", path, body)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = Request(f"{self.url}/api/v1{path}", data, headers, method=method)  # noqa: S310 - checked: http(s)
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                raw = answer.read(LARGEST + 1)
        except HTTPError as error:
            raise _refusal(error, self.url) from None
        except (OSError, HTTPException) as error:  # URLError, timeouts and TLS's are OSErrors
            why = getattr(error, "reason", None) or error
            raise RunError(
                f"the server at {self.url} does not answer ({why}): is `edgefl server start` running?"
            ) from None
        if len(raw) > LARGEST:
            raise RunError(f"the server at {self.url} sent more than {LARGEST >> 20} MiB")
        return json.loads(raw) if raw else None


def connect(server: str | None = None, token_file: Path | None = None) -> ServerClient:
    """The server of this address; without one, that of this user on this machine."""
    if server is None:
        here = folder.running()
        if here is None:
            raise ConfigError(
                "no server of this user runs on this machine: `edgefl server start`, or name one by --server https://..."
            )
        return ServerClient(here.url, _word(here.token_file), here.authority)
    address = urlsplit(server)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError(f"--server {server}: write its address, e.g. https://server.local:8600")
    if address.scheme == "http" and not is_loopback(address.hostname):
        raise ConfigError(f"--server {server}: over http others could read your token; use https")
    word = _word(token_file) if token_file else os.environ.get(TOKEN, "")
    if not word:
        raise ConfigError(f"--server needs your token: put it into the environment as {TOKEN}, or give --token FILE")
    authority = os.environ.get("EDGEFL_CA")
    return ServerClient(server, word, Path(authority) if authority else None)


def name_in_path(name: str) -> str:
    """A name as part of an address."""
    return quote(name, safe="")


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the token cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _refusal(error: HTTPError, url: str) -> ConfigError | RunError:
    """What the server says it cannot do, as one line."""
    with error:
        try:
            why = str(json.loads(error.read(LARGEST))["error"])
        except (OSError, ValueError, KeyError, TypeError):
            why = f"it answered {error.code}"
    if error.code >= 500:
        return RunError(f"the server at {url}: {why}")
    return ConfigError(why)
