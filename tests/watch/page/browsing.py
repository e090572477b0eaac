"""A window of a real browser, and what a test may ask of it."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

LISTEN = """
window.breaches = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.breaches.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
PATIENCE = 200_000  # milliseconds: an event comes when it comes


class Window:
    """One page in one profile. What goes wrong in it is kept for the end of the test."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.errors.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.add_init_script(LISTEN)

    def open(self, url: str) -> None:
        self.page.goto(url)

    def drawn(self) -> "Window":
        """When the first figures are there."""
        self.page.wait_for_selector("body[data-version]")
        return self

    def go(self, view: str) -> None:
        """To another view, as by its tab; back to the same one draws it anew."""
        self.page.evaluate("view => { location.hash = view; }", view)
        self.page.wait_for_selector(f'[data-section="{view}"]:not([hidden])')

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())

    def wait_for(self, selector: str) -> None:
        self.page.wait_for_selector(selector)

    def wait_for_text(self, selector: str, words: str | re.Pattern[str]) -> None:
        self.page.locator(selector).filter(has_text=words).first.wait_for()

    def value(self, selector: str) -> float:
        """The whole number behind a figure that is shown in short."""
        return float(self.page.locator(selector).first.get_attribute("data-value"))

    def run(self, code: str, argument: object = None) -> Any:
        return self.page.evaluate(code, argument)

    def breaches(self) -> list[str]:
        return list(self.page.evaluate("window.breaches ?? []"))

    def too_wide(self) -> list[str]:
        """What reaches beyond the window."""
        return list(
            self.page.evaluate(
                """() => document.documentElement.scrollWidth <= innerWidth ? [] :
                [...document.querySelectorAll("body *")]
                .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
                .map((one) => `${one.tagName}.${one.className}#${one.id}`)"""
            )
        )

    def rows(self, table: str) -> dict[int, dict[str, str]]:
        """Every row of a long table, by its place: it is scrolled from end to end, as somebody would."""
        return {
            int(place): cells
            for place, cells in self.page.evaluate(
                """async (table) => {
                  const body = document.querySelector(`${table} .body`);
                  const heads = [...document.querySelectorAll(`${table} [role=columnheader] button`)];
                  const titles = heads.map((one) => one.textContent);
                  const known = new Map();
                  for (let top = 0; ; top += 200) {
                    body.scrollTop = top;
                    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                    for (const row of body.querySelectorAll("[role=row]:not([hidden])")) {
                      const words = (cell) => cell.dataset.value ?? cell.innerText;
                      const cells = [...row.children].map((cell, i) => [titles[i], words(cell)]);
                      known.set(row.getAttribute("aria-rowindex"), Object.fromEntries(cells));
                    }
                    if (top > body.scrollHeight) return [...known];
                  }
                }""",
                table,
            )
        }


Browse = Callable[..., Window]


@contextmanager
def windows_of(chromium: Any) -> Iterator[Browse]:
    """Open pages, each in a fresh profile; at the end no error and no breach of the content policy is in any."""
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
