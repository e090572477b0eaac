"""The page beside a run: served where it can be, and no run waits for it."""

from pathlib import Path
from urllib.request import urlopen

import pytest

from coordinator.durable.journal import Journal
from coordinator.shell import page
from coordinator.shell.page import certified, served
from edgefl.base import events
from edgefl.fleet.folder import FleetFolder
from edgefl.job.config.page import Page
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.system.disk import FolderDisk
from edgefl.watch.view import plain_line


def run_file(folder: Path, **section: object) -> RunFile:
    table = {"run": {"folder": str(folder)}, "rounds": {"cohort": 1}, "page": {"port": 0, **section}}
    return parse(RunFile, table, "test", environment={})


def test_a_run_tells_the_page_and_says_where_it_is(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    with served(run_file(tmp_path), Journal(FolderDisk(tmp_path / "run")), tmp_path / "run") as watched:
        assert watched.shown is not None
        assert plain_line(watched.shown) == f"watch it at {watched.shown.url}"
        watched.tell(events.Joined("pi-01"))
        with urlopen(f"{watched.shown.url}/api/overview") as answer:
            assert b'"pi-01"' in answer.read()
    with pytest.raises(OSError, match="refused"):
        urlopen(f"{watched.shown.url}/api/overview")


def test_nobody_serves_what_is_not_wanted(tmp_path: Path) -> None:
    with served(run_file(tmp_path, serve=False), Journal(FolderDisk(tmp_path / "run")), tmp_path / "run") as watched:
        assert watched.shown is None
        watched.tell(events.Joined("pi-01"))


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"host": "no.such.host.invalid"}, "no.such.host.invalid"),
        ({"certificate": "/no/such.crt", "key": "/no/such.key"}, "/no/such.crt"),
        ({"token": "/proc/none/token"}, "/proc/none/token"),
    ],
)
def test_a_page_that_cannot_be_served_is_one_line_and_the_run_goes_on(
    tmp_path: Path, section: dict[str, object], words: str
) -> None:
    pytest.importorskip("starlette")
    with served(run_file(tmp_path, **section), Journal(FolderDisk(tmp_path / "run")), tmp_path / "run") as watched:
        assert watched.shown is not None
        line = plain_line(watched.shown)
        assert line.startswith("no page is served: ")
        assert words in line
        assert "\n" not in line
        watched.tell(events.Joined("pi-01"))


def test_a_bug_of_ours_in_the_page_does_not_keep_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(page, "certified", broken)
    with served(run_file(tmp_path), Journal(FolderDisk(tmp_path / "run")), tmp_path / "run") as watched:
        assert watched.shown is not None
        assert watched.shown.url == ""


def test_where_its_packages_are_not_installed_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "NEEDED", ("no_such_package",))
    with served(run_file(tmp_path), Journal(FolderDisk(tmp_path / "run")), tmp_path / "run") as watched:
        assert watched.shown is not None
        assert "pip install 'edgefl[coordinator]'" in watched.shown.note


def test_off_loopback_it_has_the_fleet_s_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    fleet = FleetFolder("default")
    fleet.broker.mkdir(parents=True)
    for name in ("broker.crt", "broker.key"):
        (fleet.broker / name).touch()
    monkeypatch.setattr(page, "fleet_of", lambda _: fleet)
    outside = run_file(tmp_path, host="0.0.0.0")
    assert certified(outside).certificate == fleet.broker / "broker.crt"
    assert certified(run_file(tmp_path)).certificate is None
    own = Page(host="0.0.0.0", certificate=Path("own.crt"), key=Path("own.key"))
    assert certified(outside.model_copy(update={"page": own})) == own
