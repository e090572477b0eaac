"""A page to ask: a real server on a free port of loopback, and whoever asks it a browser's questions."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from browsing import Browse, windows_of
from visitors import Serve, Visitor

from edgefl.base.events import Fact
from edgefl.job.config.page import Page
from edgefl.watch.overview.overview import Overview
from edgefl.watch.page.feed import Feed
from edgefl.watch.page.history import PastRuns
from edgefl.watch.page.server import PageServer


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Makes a page of facts that were told already; closed when the test ends."""
    with ExitStack() as until_done:

        def make(*facts: Fact, page: Page | None = None, runs: Path | None = None) -> Visitor:
            overview = Overview()
            for fact in facts:
                overview.tell(fact)
            server = PageServer(page or Page(port=0), Feed(overview), PastRuns(runs or tmp_path, "here"))
            visitor = Visitor(server)
            until_done.callback(visitor.close)
            return visitor

        yield make


@pytest.fixture
def browse(chromium: Any) -> Iterator[Browse]:
    """Opens a page in a fresh profile; every test ends with no error and no breach of the content policy in any."""
    with windows_of(chromium) as browse:
        yield browse
