"""The docs as one whole: links and anchors lead somewhere, every page has its kind, and guides are short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from guides import GUIDES, ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
SCREEN = 40  # lines of a terminal
WIDE = 120  # characters that a line of the README has at most


def prose(page: Path) -> str:
    """The text of a page without its fenced blocks and without what stands between backticks."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "code", text)


def links(page: Path) -> list[str]:
    """Where the page leads to inside the repository."""
    targets = re.findall(r"\]\(([^()\s]+)\)", prose(page))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them, and those that are written out."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    words = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in words} | set(
        re.findall(r'<a id="([^"]+)">', text)
    )


def broken(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    return not file.exists() or (anchor != "" and anchor not in anchors(file))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert not [target for target in links(page) if broken(page, target)]


def test_a_link_that_leads_nowhere_would_be_seen() -> None:
    page = DOCS / "operating.md"
    assert broken(page, "guides/fly.md")
    assert broken(page, "guides/restore.md#fly")
    assert not broken(page, "guides/restore.md#back-up")


def test_pages_that_the_program_names_are_there() -> None:
    """Messages, templates and comments say `docs/...`."""
    folders = ("edgefl", "coordinator", "device_agent", "gateway", "scripts", "deploy", "tests")
    kinds = {".py", ".toml", ".sh", ".service", ".yaml"}
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    named = {name for path in files for name in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_guide_is_two_screens_and_says_first_what_its_reader_can_do_after_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 2 * SCREEN
    assert re.match(r"# .+\n\nAfter this page ", text)


def test_every_page_has_a_place_in_the_navigation() -> None:
    listed = re.findall(r"^ +- .*: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_index_of_the_guides_names_each_of_them() -> None:
    assert {f"guides/{page.name}" for page in GUIDES} <= set(links(DOCS / "operating.md"))


def test_each_term_of_the_glossary_stands_there_once() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\*", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(terms) > 50
    assert len(terms) == len(set(terms))


def test_the_first_screen_of_the_readme_says_what_for_whom_and_how_to_begin() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if len(line) > WIDE]
    first = "\n".join(lines[:SCREEN])
    for words in ("Federated learning", "It is for", "make install", "make demo"):
        assert words in first


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """`make docs` builds the same; what it needs belongs to the extra `dev`."""
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = re.compile(r'<(?:script|img)[^>]* src="https?:|<link[^>]* rel="stylesheet"[^>]* href="https?:')
    assert not [page for page in tmp_path.rglob("*.html") if loaded.search(page.read_text(encoding="utf-8"))]
