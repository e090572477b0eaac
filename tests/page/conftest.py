"""A page to ask: a real server on a free port of loopback, and whoever asks it a browser's questions."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from browsing import Browse, Window
from visitors import Serve, Visitor

from edgefl.config.page import Page
from edgefl.events import Fact
from edgefl.overview.overview import Overview
from edgefl.page.feed import Feed
from edgefl.page.history import History
from edgefl.page.server import Server


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Makes a page of facts that were told already; closed when the test ends."""
    with ExitStack() as until_done:

        def make(*facts: Fact, page: Page | None = None, runs: Path | None = None) -> Visitor:
            overview = Overview()
            for fact in facts:
                overview.tell(fact)
            server = Server(page or Page(port=0), Feed(overview), History(runs or tmp_path, "here"))
            visitor = Visitor(server)
            until_done.callback(visitor.close)
            return visitor

        yield make


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A real browser without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed (apt install chromium)")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium: Any) -> Iterator[Browse]:
    """Opens a page in a fresh profile; every test ends with no error and no breach of the content policy in any."""
    with ExitStack() as until_done:
        windows: list[Window] = []

        def opened(url: str, width: int = 1280, scheme: str = "light") -> Window:
            context = chromium.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
            until_done.callback(context.close)
            windows.append(Window(context.new_page()))
            windows[-1].open(url)
            return windows[-1]

        yield opened
        for window in windows:
            assert window.errors == []
            assert window.breaches() == []
