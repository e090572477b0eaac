"""The page beside a run: one more reader of its facts, served from a thread of its own.

No run depends on it. What keeps it from being served (a package that is not there, a port that is taken) is
said in one line, and the run goes on.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coordinator.durable import run_history
from coordinator.durable.journal import Journal
from coordinator.shell import known_runs
from coordinator.shell.fleet_broker import fleet_of
from edgefl.base.errors import ConfigError, EdgeflError
from edgefl.base.events import Shown, Tell
from edgefl.job.config.page import Page
from edgefl.job.config.schema import RunFile
from edgefl.wire import exposure

if TYPE_CHECKING:
    from edgefl.watch.page.server import PageServer

log = logging.getLogger(__name__)

NEEDED = ("starlette", "uvicorn")


class Watched(NamedTuple):
    """Who wants to hear every fact, and where the page is, if one was wanted."""

    tell: Tell
    shown: Shown | None


@contextmanager
def served(run: RunFile, book: Journal, folder: Path) -> Iterator[Watched]:
    """Serve the page until the block has ended."""
    if not run.page.serve:
        yield Watched(_nobody, None)
        return
    try:
        server = _opened(run, book, folder)
    except EdgeflError as error:
        log.warning("no page why=%s", error)
        yield Watched(_nobody, Shown("", str(error)))
        return
    except Exception:  # a bug of ours in what is only looked at is no reason to keep a fleet waiting
        log.exception("no page")
        yield Watched(_nobody, Shown("", "an error in edgefl; the log has the details"))
        return
    if server.token and not server.page.certificate:
        exposure.warn(f"the page at {server.url} has no TLS: the network between can read its token (page.certificate)")
    fleet = fleet_of(run)
    known_runs.announce(folder, server.url, server.token_file, fleet.authority[0] if fleet else None)
    try:
        yield Watched(server.feed.tell, Shown(server.url, notes(server.page, server.port, server.token_file)))
    finally:
        server.close()


def _opened(run: RunFile, book: Journal, folder: Path) -> "PageServer":
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(f"{' and '.join(missing)} cannot be imported: pip install 'edgefl[coordinator]'")
    from edgefl.watch.page.feed import Feed  # noqa: PLC0415 - only where it can be served
    from edgefl.watch.page.history import PastRuns  # noqa: PLC0415
    from edgefl.watch.page.server import PageServer  # noqa: PLC0415

    overview = run_history.overview(book.disk, book)
    fleet = fleet_of(run)
    name = fleet.read_settings().hosts[0] if fleet else None  # as it stands in the certificate
    return PageServer(certified(run), Feed(overview), PastRuns(folder.parent, folder.name), name=name)


def certified(run: RunFile) -> Page:
    """The page's settings; off loopback with the fleet's own certificate, unless the file names another one."""
    page, fleet = run.page, fleet_of(run)
    if page.local or page.certificate or fleet is None:
        return page
    certificate, key = fleet.broker / "broker.crt", fleet.broker / "broker.key"
    if not (certificate.exists() and key.exists()):
        return page
    return page.model_copy(update={"certificate": certificate, "key": key})


def notes(page: Page, port: int, token: Path | None) -> str:
    """What else there is to know about where the page is."""
    moved = f"port {page.port} is taken" if page.port not in (0, port) else ""
    asked = f"its token is in {token}" if token else ""
    return ", ".join(filter(None, (moved, asked)))


def _nobody(_: object) -> None:
    """Do nothing: no page is served."""
