"""`edgefl status`: from a folder or a page, for people or for programs."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from certificates import LASTING, Authority
from typer.testing import CliRunner

from coordinator.decide.rounds import Rounds, Rules
from coordinator.durable import run_history
from coordinator.durable.journal import Journal
from coordinator.shell import known_runs
from edgefl.base import events
from edgefl.base.errors import ConfigError, EdgeflError
from edgefl.base.events import Round
from edgefl.cli.app import app
from edgefl.ops.run_lookup import RunLookup
from edgefl.ops.sources import PageSource
from edgefl.ops.status import runs_table
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own, owner
from edgefl.watch.metrics_file import MetricsFile
from edgefl.watch.overview.overview import Overview
from edgefl.watch.overview.snapshot import plain
from edgefl.watch.overview.troubles import NOT_IN_RUN

RUN = {
    "run": {"name": "sensors", "rounds": 3},
    "broker": {"url": "mqtt://b:1883"},
    "algorithm": {"name": "fedgc"},
    "rounds": {"deadline": 60.0},
}
TUESDAY = 1794873600.0  # 2026-11-17
STORY = [
    events.Joined("pi-1", 10, "host", "0.1.0", at=TUESDAY),
    events.Joined("pi-2", 20, "host", "0.1.0", at=TUESDAY),
    events.Asked(1, 1, ("pi-1", "pi-2"), 9, at=TUESDAY + 1),
    events.Answered("pi-1", 1, 500, took=2.0, seconds_per_step=0.1, at=TUESDAY + 3),
    events.Answered("pi-2", 1, 500, took=42.0, seconds_per_step=2.1, at=TUESDAY + 43),
    events.Closed(1, ("pi-1", "pi-2"), at=TUESDAY + 43),
    Round(1, scores={"accuracy": 0.5, "balanced_accuracy": 0.5, "loss": 1.0}, devices=2, seconds=43.0, at=TUESDAY + 44),
    events.Asked(2, 2, ("pi-1", "pi-2"), 9, at=TUESDAY + 45),
    events.Declined("pi-2", 2, "too warm: 91 °C", at=TUESDAY + 46),
]
OPEN = Rounds(
    Rules(3, 1, 2, 1, 60.0),
    "open",
    round=2,
    asked=("pi-1", "pi-2"),
    declined=frozenset({"pi-2"}),
    present=frozenset({"pi-1"}),
)


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def folder(tmp_path: Path, state: None) -> Path:
    path = tmp_path / "runs" / "sensors"
    path.mkdir(parents=True)
    disk = FolderDisk(path)
    with closing(Journal(disk)) as book:
        book.set(run=json.dumps(RUN), run_id="1f2e")
        book.write([], OPEN, facts=STORY)
    metrics = MetricsFile(disk)
    for fact in STORY:
        metrics(fact)
    return path


def said(*words: object) -> str:
    result = CliRunner().invoke(app, ["status", *map(str, words)])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.stdout


def test_a_run_is_found_by_itself_its_name_its_folder_or_its_file(folder, tmp_path):
    known_runs.announce(folder)
    file = tmp_path / "run.toml"
    file.write_text(
        f'[run]\nname = "sensors"\nfolder = "{folder.parent}"\nrounds = 3\n[task]\ndata = "digits"\n'
        'model = "cnn"\n[algorithm]\nname = "fedavg"\n[rounds]\ncohort = 2\n'
    )
    for words in ([], ["sensors"], [folder], [file], [folder / "journal.log"]):
        text = said(*words)
        assert "interrupted, 1 of 3 rounds" in text
        assert "no coordinator is at work on it" in text
        assert "round 2: 0 of 2 answered, 1 declined (pi-2); waiting for pi-1" in text
        assert "pi-2 declined round 2: too warm: 91 °C" in text
        assert "devices there" not in text, "nobody knows"
        assert "2026-11-17 00:00:00 UTC" in text
    (row,) = (json.loads(line) for line in said("--json").splitlines())
    assert (row["status"], row["process"], row["folder"]) == ("interrupted", None, str(folder))
    assert row["run"]["state"] == "interrupted"
    assert {(one["state"], one["live"]) for one in row["devices"]} == {("offline", False)}
    assert row["rounds"][0]["loss"] == 1.0


def test_a_run_that_somebody_is_at_work_on_is_told_apart(folder):
    with own(known_runs.lock_of(folder)):
        row = json.loads(said("--json", folder))
        assert (row["status"], row["process"]) == ("running", os.getpid())
        assert "no coordinator" not in said(folder)
    assert (known_runs.lock_of(folder) / "lock").read_text(), "its number is still there"
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        (known_runs.lock_of(folder) / "lock").write_text(str(sleeper.pid))
        assert owner(known_runs.lock_of(folder)) == sleeper.pid
        os.utime(known_runs.lock_of(folder) / "lock", (1.0, 1.0))
        assert owner(known_runs.lock_of(folder)) is None, "the process has only got the number of a former one"
    finally:
        sleeper.kill()
        sleeper.wait()
    assert owner(folder) is None


def test_devices_that_the_run_is_not_for_are_not_missing(folder):
    refused = events.Refused("pi-9", "device.not_in_run", f"{NOT_IN_RUN}: others are", barred=True, at=TUESDAY + 47)
    with closing(Journal(FolderDisk(folder))) as book:
        book.note(refused)
    with own(known_runs.lock_of(folder)):
        text = said(folder)
        assert "devices there" not in text
        assert "not in this run ([devices] of its run file): pi-9" in text
        known_runs.announce(folder)
        assert "2 of 2 here" in said()


def test_devices_are_shown_by_their_labels_and_properties(folder):
    told = [
        events.Labelled({"pi-1": {"site": "north"}, "pi-3": {"site": "north"}}, at=TUESDAY + 47),
        events.Joined("pi-1", 10, "host", "0.1.0", "onnx", arch="aarch64", memory_mb=905, at=TUESDAY + 47),
        events.Excluded("pi-2", "it has no 'site'", at=TUESDAY + 48),
    ]
    with closing(Journal(FolderDisk(folder))) as book:
        book.note(*told)
    with own(known_runs.lock_of(folder)):
        text = said(folder)
        assert "not asked (rounds.where does not mean them): pi-2" in text
        assert "not asked: it has no 'site'" in text

    def named(where: str) -> list[str]:
        return [row["name"] for row in json.loads(said(folder, "--json", "--where", where))["devices"]]

    assert named("site == 'north'") == ["pi-1", "pi-3"]
    assert named("site == 'north' and memory_mb >= 900 and backend == 'onnx' and arch == 'aarch64'") == ["pi-1"]
    assert named("samples == 20") == ["pi-2"]
    assert "pi-2" not in said(folder, "--where", "site == 'north'").partition("took")[2].partition("pi-1")[2][:80]
    about = said(folder, "--device", "pi-1")
    assert "host, onnx, 0.1.0, aarch64, 905 MiB, site=north" in about
    wrong = CliRunner().invoke(app, ["status", str(folder), "--where", "sit == 'north'"])
    assert isinstance(wrong.exception, ConfigError)
    assert str(wrong.exception).startswith("--where: no device has a label 'sit'; did you mean 'site'?")


def test_a_device_that_is_asked_again_is_no_longer_left_out(folder):
    told = [events.Excluded("pi-2", "site is 'a'", at=TUESDAY + 48), events.Included("pi-2", at=TUESDAY + 49)]
    with closing(Journal(FolderDisk(folder))) as book:
        book.note(*told)
    text = said(folder, "--device", "pi-2")
    assert "is not asked, rounds.where does not mean it: site is 'a'" in text
    assert "is asked from now on: rounds.where means it" in text
    with own(known_runs.lock_of(folder)):
        assert "not asked (rounds.where" not in said(folder)


def test_who_was_slow_on_tuesday(folder):
    text = said(folder, "--slow", "--on", "2026-11-17")
    lines = [line.split() for line in text.splitlines()]
    assert lines[2][:9] == ["pi-2", "1", "0", "0", "42.0", "s", "42.0", "s", "1"]
    assert "no device was asked" in said(folder, "--slow", "--on", "2026-11-16")
    assert "no device was asked" in said(folder, "--slow", "--since", "2026-11-17T00:01", "--until", "2026-11-18")
    first, second = (json.loads(line) for line in said(folder, "--slow", "--json").splitlines())
    assert (first["device"], second["device"]) == ("pi-2", "pi-1")
    assert (first["median_took"], first["times_cohort"]) == (42.0, 42.0 / 22.0)


def test_one_devices_story(folder):
    text = said(folder, "--device", "pi-2")
    assert "pi-2  offline: no coordinator is running" in text
    assert "2026-11-17 00:00:46 UTC  declined round 2: too warm: 91 °C" in text
    assert json.loads(said(folder, "--device", "pi-2", "--json"))["turns"][0]["took"] == 42.0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "no run is known on this machine: name a run's folder, or the address of its page"),
        (["nix"], "nix: no folder of a run, and no run of this name (none is known here)"),
        (["FOLDER", "--device", "pi-9"], "the run knows no device 'pi-9' (it knows pi-1, pi-2)"),
        (["FOLDER", "--on", "tuesday"], "--on, --since and --until say when a device was --slow: say that too"),
        (["FOLDER", "--slow", "--on", "today", "--since", "3h"], "--on is a whole day: say either that, or --since"),
        (["FOLDER", "--slow", "--on", "soon"], "--on soon: say today"),
        (["ftp://b"], "ftp://b: no folder of a run"),
        (["http://127.0.0.1:1", "--token-file", "/nowhere"], "/nowhere: cannot be read as a token"),
    ],
)
def test_mistakes_are_one_line(folder, words, line):
    result = CliRunner().invoke(app, ["status", *(str(folder) if word == "FOLDER" else word for word in words)])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(line)


def test_two_runs_of_one_name_are_told_apart_by_their_folders(folder, tmp_path):
    other = tmp_path / "elsewhere" / "sensors"
    other.parent.mkdir()
    other.mkdir()
    with closing(Journal(FolderDisk(other))) as book:
        book.note(STORY[0])
    known_runs.announce(folder)
    known_runs.announce(other)
    assert [run.folder for run in known_runs.known()] == [other, folder]
    with pytest.raises(ConfigError, match="there are 2 runs 'sensors': name one by its folder"):
        known_runs.find("sensors")
    (other / "journal.log").unlink()
    assert known_runs.find("sensors").folder == folder


def test_runs_that_are_known_are_bounded_and_a_spoilt_entry_is_nobodys_loss(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(known_runs, "KEPT", 3)
    for number in range(5):
        known_runs.announce(tmp_path / f"other-{number}")
    known_runs.announce(folder)
    files = list((tmp_path / "state" / "edgefl" / "runs").glob("*.json"))
    assert len(files) == 3
    for file in files:
        if "sensors" not in file.read_text():
            file.write_text("{")
    assert [run.name for run in known_runs.known()] == ["sensors"]


def test_a_run_that_cannot_be_read_does_not_hide_the_others(folder, tmp_path, caplog):
    spoilt = tmp_path / "runs" / "spoilt"
    spoilt.mkdir()
    (spoilt / "journal.log").write_bytes(b"nothing of ours, and longer than a head" * 9)
    known_runs.announce(folder)
    known_runs.announce(spoilt)
    assert [json.loads(line)["run"]["name"] for line in said("--json").splitlines()] == ["sensors"]
    assert "damaged" in caplog.text


# ── a page ───────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def serving(answer: bytes, code: int = 200, token: str = "") -> Iterator[str]:
    """Somebody who answers every request so; with a token, only to who shows it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = not token or self.headers["Authorization"] == f"Bearer {token}"
            self.send_response(code if allowed else 401)
            if code == 302:
                self.send_header("Location", "http://127.0.0.1:9/")
            self.end_headers()
            self.wfile.write(answer if allowed else b"no")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def overview() -> bytes:
    known = Overview()
    for fact in (events.Started("sensors", "1f2e", rounds=3, at=TUESDAY), *STORY):
        known.tell(fact)
    return json.dumps(plain(known.snapshot())).encode()


def test_the_page_of_a_coordinator_answers_all_that_is_asked(folder, tmp_path):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from edgefl.job.config.page import Page
    from edgefl.watch.page.feed import Feed
    from edgefl.watch.page.history import PastRuns
    from edgefl.watch.page.server import PageServer

    known, token = Overview(), tmp_path / "token"  # which the page makes
    for fact in (events.Started("sensors", "1f2e", rounds=3, at=TUESDAY), *STORY):
        known.tell(fact)
    server = PageServer(Page(port=0, token=token), Feed(known), PastRuns(folder.parent, "sensors"))
    try:
        source = PageSource(server.url, token)
        assert plain(source.snapshot()) == plain(known.snapshot())
        assert source.slow(TUESDAY, None) == known.slow(TUESDAY, None)
        story = source.device("pi-2")
        assert (story.device, story.story) == (known.devices["pi-2"], known.story("pi-2"))
        assert story.turns == known.turns.of("pi-2", 500)
        with pytest.raises(ConfigError, match="its run knows no such device"):
            source.device("pi-9")
        with pytest.raises(ConfigError, match="lets no reader in without its token"):
            PageSource(server.url).snapshot()
    finally:
        server.close()


def test_a_page_with_a_certificate_is_believed_if_its_authority_is_named(folder, tmp_path):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from edgefl.job.config.page import Page
    from edgefl.watch.page.feed import Feed
    from edgefl.watch.page.history import PastRuns
    from edgefl.watch.page.server import PageServer

    authority = Authority.new(tmp_path / "authority", dates=LASTING)
    proof = authority.issue("server", LASTING)
    known = Overview()
    known.tell(events.Started("sensors", "1f2e", rounds=3, at=TUESDAY))
    server = PageServer(
        Page(port=0, certificate=proof.certificate, key=proof.key), Feed(known), PastRuns(folder.parent, "sensors")
    )
    try:
        assert server.url.startswith("https://")
        assert PageSource(server.url, None, authority.path).snapshot().run.name == "sensors"
        with pytest.raises(ConfigError, match=r"its certificate is not trusted .*: --ca FILE names the authority"):
            PageSource(server.url).snapshot()
        with pytest.raises(ConfigError, match="cannot be read as a certificate"):
            PageSource(server.url, None, tmp_path / "nowhere.crt")
    finally:
        server.close()


def test_another_machine_asks_the_page_and_shows_its_token(folder, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-long-enough-word\n")
    with serving(overview(), token="a-long-enough-word") as url:
        row = json.loads(said(url, "--token-file", token, "--json"))
        assert (row["status"], row["folder"], row["where"]) == ("running", None, url)
        with pytest.raises(ConfigError, match="lets no reader in without its token: --token-file"):
            PageSource(url).snapshot()


def test_on_this_machine_the_page_is_found_and_when_it_is_gone_the_folder(folder):
    with own(known_runs.lock_of(folder)):
        with serving(overview()) as url:
            known_runs.announce(folder, page=url)
            assert json.loads(said("sensors", "--json"))["where"] == url
        assert json.loads(said("sensors", "--json"))["where"] == str(folder)


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b"<html>", b"[" * 100_000, b'{"format": "edgefl overview"}'])
def test_whatever_a_stranger_answers_is_one_line(folder, answer):
    with serving(answer) as url:
        with pytest.raises(EdgeflError, match="this is no overview"):
            PageSource(url).snapshot()
        with pytest.raises(EdgeflError, match="page of edgefl"):
            PageSource(url).slow(None, None)


def test_a_token_is_not_carried_to_another_address(folder, tmp_path):
    with serving(b"", code=302) as url, pytest.raises(EdgeflError, match="answers 302"):
        PageSource(url).snapshot()


def test_text_of_a_page_moves_no_cursor(folder):
    nasty = overview().replace(b"too warm", b"\\u001b[2Jwarm")
    with serving(nasty) as url:
        assert "\x1b" not in said(url)
        assert "\\x1b[2Jwarm" in said(url)


def test_why_an_unfinished_run_waits_is_known_from_its_folder(folder):
    assert run_history.overview(run_history.run_disk(folder)).run.waiting.startswith(
        "round 2: 0 of 2 answered, 1 declined (pi-2)"
    )


def test_what_is_not_a_terminal_gets_whole_reasons(folder):
    why = "too warm: the processor has 91 °C, and this device may work up to 80 °C" + 10 * ", and so on"
    with closing(Journal(FolderDisk(folder))) as book:
        book.note(events.Declined("pi-2", 2, why, at=TUESDAY + 47))
    command = [sys.executable, "-c", "from edgefl.cli.app import main; main()", "status", str(folder)]
    with own(known_runs.lock_of(folder)):
        piped = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"})
    (row,) = (line for line in piped.stdout.splitlines() if line.startswith("pi-2 "))
    assert why in row


@pytest.mark.parametrize(("restarts", "words"), [(1, "restarted once;"), (2, "restarted 2 times;")])
def test_restarts_are_counted_in_words(folder, restarts, words):
    with closing(Journal(FolderDisk(folder))) as book:
        book.note(*(events.Resumed(2, at=TUESDAY + 50 + number) for number in range(restarts)))
    assert words in said(folder)


def test_the_table_of_runs_has_the_figure_that_a_model_is_judged_by_however_small_it_is():
    overview = Overview()
    overview.tell(events.Started("sensors", "1f2e", rounds=3, at=1.0))
    overview.tell(Round(1, scores={"f1": 0.05, "loss": 1.0}, at=2.0))
    table = runs_table([RunLookup("runs/sensors", PageSource("http://127.0.0.1:1"), overview.snapshot())], 3.0)
    assert [str(cell) for cell in table.columns[3].cells] == ["F1 5.0%"]
