"""Where `edgefl status` looks: into a run's folder, or at the page of a coordinator, here or on another machine."""

import ssl
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from pydantic import TypeAdapter, ValidationError

from coordinator.durable import journal, run_history
from coordinator.durable.segments import SEGMENTS
from edgefl.base.errors import ConfigError, EdgeflError, RunError
from edgefl.ops.coordination import coordination
from edgefl.system.disk import FolderDisk
from edgefl.system.json_text import parse_json
from edgefl.watch.metrics_file import METRICS
from edgefl.watch.overview.answer_times import AnswerTime, Pace
from edgefl.watch.overview.overview import Overview
from edgefl.watch.overview.rows import DeviceRow, Snapshot
from edgefl.watch.overview.snapshot import cleaned, read
from edgefl.wire.address import is_loopback

LIMIT = 64 << 20  # bytes of an answer
PATIENCE = 10.0  # seconds for one
TURNS = 500  # answers in the story of one device

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeviceStory:
    """One device: its row, what happened to it lately, and its last answers."""

    device: DeviceRow
    story: list[tuple[float, str]]
    turns: list[AnswerTime]


class RunSource(Protocol):
    """Where a run can be read: its folder, or the address of its page."""

    def snapshot(self) -> Snapshot: ...

    def slow(self, since: float | None, until: float | None) -> list[Pace]:
        """How fast each device was, the slowest first."""
        ...

    def device(self, name: str) -> DeviceStory: ...


class FolderSource:
    """A run's folder; when it has changed, what is new is read."""

    def __init__(self, disk: FolderDisk) -> None:
        self.disk = disk
        self._stamp: list[tuple[str, int | None]] = []
        self._overview, self._follower = Overview(), run_history.Follower(disk)

    def snapshot(self) -> Snapshot:
        return self._now().snapshot()

    def slow(self, since: float | None, until: float | None) -> list[Pace]:
        return self._now().slow(since, until)

    def device(self, name: str) -> DeviceStory:
        overview = self._now()
        row = overview.devices.get(name)
        if row is None:
            raise ConfigError(_stranger(name, overview))
        return DeviceStory(row, overview.story(name), overview.turns.of(name, TURNS))

    def _now(self) -> Overview:
        names = [*self.disk.names(SEGMENTS), journal.NAME, METRICS]
        stamp = [(name, self.disk.size(name)) for name in names]
        if stamp != self._stamp:
            facts, anew = self._follower.look()
            self._overview, self._stamp = Overview() if anew else self._overview, stamp
            for fact in facts:
                self._overview.tell(fact)
        for fact in coordination(self._overview.run, self._overview.at, self.disk.folder):
            self._overview.tell(fact)
        return self._overview


class PageSource:
    """What the page of a coordinator tells to programs."""

    def __init__(self, url: str, token_file: Path | None = None, authority: Path | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url}: say http://host:port, where `edgefl coordinator start` shows its page")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._headers = {"Accept": "application/json"}
        if token_file is not None:
            self._headers["Authorization"] = f"Bearer {_token(token_file)}"
        proxies = ProxyHandler({}) if is_loopback(parts.hostname) else ProxyHandler()
        self._open = build_opener(proxies, _NoRedirect(), HTTPSHandler(context=_trusting(authority))).open

    def snapshot(self) -> Snapshot:
        return read(self._get("/api/overview"), self.url)

    def slow(self, since: float | None, until: float | None) -> list[Pace]:
        asked = {name: value for name, value in (("since", since), ("until", until)) if value is not None}
        told = self._json(f"/api/slow?{urlencode(asked)}")
        return self._checked(TypeAdapter(list[Pace]), told.get("devices"))

    def device(self, name: str) -> DeviceStory:
        return self._checked(TypeAdapter(DeviceStory), self._json(f"/api/device/{quote(name, safe='')}"))

    def _json(self, path: str) -> dict[str, Any]:
        try:
            told = cleaned(parse_json(self._get(path)))
        except ValueError:
            raise RunError(f"{self.url}: answers no JSON to {path}; is it a page of edgefl?") from None
        return told if isinstance(told, dict) else {}

    def _checked(self, reader: TypeAdapter[T], value: Any) -> T:  # Any: whatever JSON can say
        try:
            return reader.validate_python(value)
        except ValidationError as error:
            raise RunError(
                f"{self.url}: answers something else than a page of edgefl ({error.errors()[0]['msg']})"
            ) from None

    def _get(self, path: str) -> bytes:
        request = Request(self.url + path, headers=self._headers)  # noqa: S310 - http and https only, see above
        try:
            with self._open(request, timeout=PATIENCE) as answer:
                data: bytes = answer.read(LIMIT + 1)
        except HTTPError as error:
            raise self._refused(error, path) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise ConfigError(
                    f"{self.url}: its certificate is not trusted ({reason.verify_message}): --ca FILE names the"
                    " authority that made it; of a fleet, authority.crt"
                ) from None
            raise RunError(f"{self.url}: cannot be reached ({reason}); does its coordinator run?") from None
        if len(data) > LIMIT:
            raise RunError(f"{self.url}: answers more than {LIMIT >> 20} MiB, so it is no page of edgefl")
        return data

    def _refused(self, error: HTTPError, path: str) -> EdgeflError:
        if error.code in (401, 403):
            return ConfigError(f"{self.url}: lets no reader in without its token: --token-file FILE")
        if error.code == 404 and path.startswith("/api/device/"):
            return ConfigError(f"{self.url}: its run knows no such device")
        return RunError(f"{self.url}: answers {error.code} to {path}; is it a page of edgefl?")


class _NoRedirect(HTTPRedirectHandler):
    """Follow no redirection: a token goes to its own server alone."""

    def redirect_request(self, *_: Any) -> None:  # Any: what urllib hands in
        return None


def _trusting(authority: Path | None) -> ssl.SSLContext:
    """Return which authorities to trust: those of the web, or this one."""
    try:
        return ssl.create_default_context(cafile=None if authority is None else str(authority.expanduser()))
    except OSError as error:
        raise ConfigError(f"{authority}: cannot be read as a certificate ({error.strerror or error})") from None


def _token(file: Path) -> str:
    try:
        word = file.expanduser().read_bytes()[:4097].decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read as a token ({error})") from None
    if not word or len(word) > 4096 or not word.isprintable() or not word.isascii():
        raise ConfigError(f"{file}: holds no token; the coordinator's machine has it")
    return word


def _stranger(name: str, overview: Overview) -> str:
    names = ", ".join(sorted(overview.devices)[:10])
    return f"the run knows no device '{name}' (it knows {names or 'none'})"
