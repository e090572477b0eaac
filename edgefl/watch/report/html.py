"""The few pieces of HTML that a report is made of. Everything that goes in as text comes out escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from edgefl.base.printable import printable


def text(value: object) -> str:
    """Whatever it is, as text that no browser takes for more."""
    return escape(printable(str(value)), quote=True)


def element(tag: str, *inside: str, css: str = "") -> str:
    """An element around HTML that was made here."""
    kind = f' class="{css}"' if css else ""
    return f"<{tag}{kind}>{''.join(inside)}</{tag}>"


def paragraph(words: str, css: str = "") -> str:
    return element("p", text(words), css=css)


def table(
    titles: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[int] = (0,), words: Sequence[int] = ()
) -> str:
    """A table: numbers stand to the right, the columns in `left` to the left, those of `words` in several lines."""
    sides = ["w" if i in words else "l" if i in left else "" for i in range(len(titles))]
    head = "".join(element("th", text(title), css=side) for title, side in zip(titles, sides, strict=True))
    body = "".join(
        element("tr", *(element("td", text(cell), css=side) for cell, side in zip(row, sides, strict=True)))
        for row in rows
    )
    return element("div", element("table", element("thead", element("tr", head)), element("tbody", body)), css="wide")


def folded(title: str, inside: str) -> str:
    """Something that is shown when it is asked for."""
    return element("details", element("summary", text(title)), inside)


def listing(lines: Iterable[tuple[str, str]]) -> str:
    """Lines as they stand in a file or on a terminal, each with its class."""
    return element("pre", "\n".join(element("span", text(line), css=css) if css else text(line) for line, css in lines))


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Figures that are seen first: what, and how much."""
    each = (element("div", element("dt", text(what)), element("dd", text(value))) for what, value in pairs)
    return element("dl", *each, css="tiles")
