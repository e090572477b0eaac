"""Webhooks: alarms as signed JSON over HTTPS, tried again for a while, and never from the run's own thread.

A message is a POST with `X-Edgefl-Id` (the same for every attempt, also after a restart) and `X-Edgefl-Timestamp`.
With a secret it also has `X-Edgefl-Signature: sha256=HEX`, the HMAC-SHA256 of timestamp, a dot, and the body.
Redirections are not followed: a message goes only where the run file says.
"""

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from edgefl.base.errors import StoreError
from edgefl.base.events import Fact, Started
from edgefl.base.version import __version__
from edgefl.job.config.export import Webhook
from edgefl.system.json_text import parse_json
from edgefl.system.store import write_atomically
from edgefl.watch.exporters.alarms import HEARD, AlarmMessage, Alarms

log = logging.getLogger(__name__)

ATTEMPTS = 8  # of a message: over some two minutes
FIRST = 1.0  # seconds before the second; then twice as many each time
ROOM = 100  # messages that wait; then the oldest goes
KEPT = 200  # ids of messages that were delivered
LATER = (408, 425, 429)  # of the answers that say "your fault", those that say "not now"


class _NoRedirection(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """None: the answer is an error like any other."""


class Pending(NamedTuple):
    """A message on its way: how often it was tried, and when it is next."""

    message: AlarmMessage
    attempts: int
    at: float


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """What the receiver computes as well."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def post(url: str, body: bytes, headers: Mapping[str, str], *, secret: bytes | None, at: float, timeout: float) -> None:
    """POST this, signed where there is a secret; anything but 2xx is an HTTPError, redirections included."""
    signed = {"User-Agent": f"edgefl/{__version__}", "X-Edgefl-Timestamp": str(int(at)), **headers}
    if secret is not None:
        signed["X-Edgefl-Signature"] = signature(secret, signed["X-Edgefl-Timestamp"], body)
    request = Request(url, body, signed, method="POST")  # noqa: S310 - http and https only: config checked it
    with build_opener(_NoRedirection).open(request, timeout=timeout):
        pass  # its words do not matter


class WebhookCaller:
    """Calls one address; `delivered` is where it keeps in mind what has arrived there."""

    wants: ClassVar[tuple[type[Fact], ...]] = HEARD

    def __init__(
        self,
        started: Started,
        rules: Webhook,
        delivered: Path,
        *,
        clock: Callable[[], float] = time.time,
        first: float = FIRST,
    ) -> None:
        self.rules, self.url, self.secret = rules, rules.address(), rules.key()
        self.alarms, self.clock, self.first = Alarms(rules, started), clock, first
        self.pending: list[Pending] = []
        self.file, self.delivered = delivered, _ids(delivered)
        self.complained = False

    def __call__(self, fact: Fact) -> None:
        self._add(self.alarms.tell(fact))

    def deadline(self) -> float | None:
        """Return when a message has to be sent, or sent again."""
        due = [pending.at for pending in self.pending]
        alarm = self.alarms.deadline()
        return min([*due, *([alarm] if alarm else [])], default=None)

    def woken(self, now: float) -> None:
        self._add(self.alarms.woken(now))
        for pending in [one for one in self.pending if one.at <= now]:
            self.pending.remove(pending)
            self._try(pending)

    def close(self) -> None:
        """What is left is tried now, and those that fail once more."""
        for again in (False, True):
            if again and self.pending:
                time.sleep(self.first)
            left, self.pending = self.pending, []
            for pending in left:
                self._try(pending)

    def _add(self, messages: list[AlarmMessage]) -> None:
        new = [Pending(message, 0, 0.0) for message in messages if message.id not in self.delivered]
        self.pending = [*self.pending, *new][-ROOM:]

    def _try(self, pending: Pending) -> None:
        message, attempts = pending.message, pending.attempts + 1
        try:
            self._post(message)
        except HTTPError as error:
            hopeless = 300 <= error.code < 500 and error.code not in LATER
            why = f"it answered {error.code}"
            error.close()
        except (OSError, HTTPException, ValueError) as error:  # URLError, timeouts and TLS's are OSErrors
            hopeless, why = False, f"{type(error).__name__}: {getattr(error, 'reason', error)}"
        else:
            self._remember(message)
            return
        self._complain(why)
        if not hopeless and attempts < ATTEMPTS:
            self.pending.append(Pending(message, attempts, self.clock() + self.first * 2 ** (attempts - 1)))

    def _post(self, message: AlarmMessage) -> None:
        headers = {
            "Content-Type": "application/json",
            "X-Edgefl-Id": message.id,
            "X-Edgefl-Event": message.event,
        }
        post(self.url, message.body(), headers, secret=self.secret, at=self.clock(), timeout=self.rules.timeout)

    def _remember(self, message: AlarmMessage) -> None:
        self.delivered = [*self.delivered, message.id][-KEPT:]
        try:
            write_atomically(self.file, json.dumps(self.delivered).encode())
        except StoreError as error:
            log.warning("the list of sent notifications is not written why=%s", error)

    def _complain(self, why: str) -> None:
        if not self.complained:  # the address is not named: it may be a secret
            log.warning("a webhook could not be called; further failures are not logged why=%s", why)
        self.complained = True


def _ids(path: Path) -> list[str]:
    try:
        known = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return []
    return [id for id in known if isinstance(id, str)] if isinstance(known, list) else []
