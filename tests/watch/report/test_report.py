"""A report is one file: true, complete, and harmless whatever a device says."""

import json
import re
import shutil
import subprocess
from base64 import b64encode
from contextlib import closing
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator.durable.journal import Journal
from edgefl.base import events
from edgefl.base.errors import ConfigError
from edgefl.base.events import Done, Round
from edgefl.cli.app import app
from edgefl.job.config import origin
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.learn.privacy import output_epsilon
from edgefl.ops import reporting
from edgefl.system.disk import FolderDisk
from edgefl.watch.metrics_file import MetricsFile
from edgefl.watch.report.page import STYLE

NASTY = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[2J"
DAY = 1794873600.0  # Tuesday, 2026-11-17
CLASSES = ("walk", "<b>run</b>")
FILE = """
[run]
name = "sensors"
rounds = 3
[task]
data = "digits"
model = "mlp"
[algorithm]
name = "fedprox"
[rounds]
cohort = 2
[broker]
url = "mqtt://bob:geheim@b:1883"
"""
PRIVATE = '[privacy]\nmechanism = "output"\nclip = 1.0\nsigma = 5.0\n'


def story(rounds: int = 3) -> list[events.Fact]:
    facts: list[events.Fact] = [
        events.Evaluating("digits", 100, 0, None, 0, 2, CLASSES, at=DAY),
        events.Joined("pi-1", 10, NASTY, "0.1.0", "onnx", at=DAY),
        events.Joined("pi-2", 20, at=DAY),
    ]
    for number in range(1, rounds + 1):
        at = DAY + 86400.0 * (number - 1) + 100.0
        answer = {"steps": 4, "seconds_per_step": 0.1}
        facts.append(events.Asked(number, number, ("pi-1", "pi-2"), 9, at=at))
        facts.append(events.Answered("pi-1", number, 500, **answer, took=1.5, at=at + 1.5))
        if number == 2:
            facts.append(events.Declined("pi-2", 2, NASTY, at=at + 2))
        else:
            took = 30.0 if number == 1 else 1.6
            facts.append(events.Answered("pi-2", number, 500, **answer, took=took, at=at + took))
        facts.append(events.Closed(number, ("pi-1",), ("pi-2",) if number == 2 else (), at=at + 40))
        facts.append(report_of(number, at + 41))
    return facts


def report_of(number: int, at: float) -> Round:
    return Round(
        number,
        scores={
            "accuracy": 0.25 * number,
            "balanced_accuracy": 0.2 * number,
            "loss": float("nan") if number == 2 else 1.0 / number,
        },
        forgetting=0.01 * number,
        per_class=(0.1 * number, None),
        devices=2,
        bytes_up=1000 * number,
        bytes_down=2000,
        seconds=40.5,
        waiting_seconds=0.5,
        at=at,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "UTC")
    return write(tmp_path, story())


def write(tmp_path: Path, facts: list[events.Fact], more: str = "", *, noted: bool = True) -> Path:
    folder, file = tmp_path / "runs" / "sensors", tmp_path / "run.toml"
    folder.mkdir(parents=True)
    file.write_text(FILE + more)
    disk = FolderDisk(folder)
    run = load(RunFile, file)
    with closing(Journal(disk)) as book:
        book.set(run=run.model_dump_json(), run_id="1f2e")
        if noted:
            book.set(software=json.dumps({"edgefl": "0.1.0"}), origins=origin.as_json(origin.entries(RunFile, file)))
        book.note(*facts)
    metrics = MetricsFile(disk)
    for fact in facts:
        metrics(fact)
    return folder


def report(folder: Path) -> str:
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert result.exit_code == 0, result.exception
    assert result.output.strip().endswith("sensors/report.html")
    return (folder / reporting.NAME).read_text()


class Reader(HTMLParser):
    """What a browser would make of it: elements that are closed in order, their attributes, all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def words(folder: Path) -> str:
    return " ".join(Reader(report(folder)).words)


def test_nothing_a_device_says_becomes_part_of_the_page(folder: Path) -> None:
    html = report(folder)
    reader = Reader(html)
    assert not reader.tags & {"script", "img", "iframe", "object", "link", "b", "a", "form"}
    assert not {name for name in reader.attributes if name.startswith("on") or name in {"style", "src", "href"}}
    assert "<script>alert(1)</script>" in "".join(reader.words), "it is shown as what it is"
    assert "\x1b" not in html
    assert "geheim" not in html, "a password"


def test_its_policy_allows_its_own_style_and_nothing_else(folder: Path) -> None:
    html = report(folder)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
    assert policy
    assert policy[1] == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert html.count("<style>") == 1
    assert f"<style>{STYLE}</style>" in html


def test_every_figure_is_that_of_the_metrics(folder: Path) -> None:
    text = words(folder)
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert f"{row['scores']['accuracy']:.1%} {row['scores']['balanced_accuracy']:.1%}" in text
        assert f"{row['seconds']:.2f} {row['waiting_seconds']:.2f}" in text


def test_it_says_who_was_slow_on_tuesday(folder: Path) -> None:
    text = words(folder)
    assert "Late, missing, twice as slow as those asked with it, or waited for by several rounds: pi-2." in text
    assert "Tuesday 2026-11-17 no device" in text, "30 s is 1.9 times the median of two"
    assert "Wednesday 2026-11-18 pi-2 (1 missed)" in text


def test_it_says_who_set_what_and_how_to_play_it_again(folder: Path) -> None:
    text = words(folder)
    assert re.search(r'name = "fedprox" +# run.toml:9', text)
    assert re.search(r"lr = [0-9.]+ +# default", text)
    assert "edgefl coordinator start run.toml --set run.name=sensors-again" in text
    assert f"edgefl replay {folder}" in text
    assert "edgefl simulate" not in text, "its data are nobody's but the devices'"


def test_a_run_of_an_earlier_version_and_one_that_has_not_begun_have_a_report_too(tmp_path: Path) -> None:
    text = words(write(tmp_path / "a", story(), noted=False))
    assert re.search(r'name = "sensors" +# the run file', text)
    assert "geheim" not in text
    text = words(write(tmp_path / "b", []))
    assert "interrupted after 0 of 3 rounds; 0 devices." in text
    assert "The model was not evaluated." in text


def test_what_was_spent_follows_from_the_answers_that_arrived(tmp_path: Path) -> None:
    epsilon = output_epsilon(3, 1.0, 5.0, 1e-3)
    told = f"the 3 answers of pi-1, the most of all: epsilon {epsilon:.4g} at delta 0.001."
    assert told in words(write(tmp_path / "a", story(), PRIVATE))
    bill = {"updates": 3.0, "epsilon": 1.5, "delta": 0.1, "as_published": 0.5}
    facts = [*story(), Done("sensors", "fedprox", 3, privacy=bill, at=DAY + 1e6)]
    assert "epsilon 1.5 at delta 0.1" in words(write(tmp_path / "b", facts, PRIVATE))


def test_where_there_is_no_run_that_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(result.exception, ConfigError)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_shows_it_and_has_nothing_to_complain_of(folder: Path, tmp_path: Path) -> None:
    report(folder)
    whole, broken = folder / reporting.NAME, folder / "broken.html"
    broken.write_text(whole.read_text().replace("<style>", "<style> "))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    for file, complains in ((whole, False), (broken, True)):  # a violated policy is told at the console
        done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=120, check=False)
        assert "Play it again" in done.stdout
        assert ("CONSOLE" in done.stderr) is complains, done.stderr


def test_the_table_of_the_fleet_fits_the_page(folder: Path, chromium: Any) -> None:
    report(folder)
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    page.goto((folder / reporting.NAME).as_uri())
    fleet = """[...document.querySelectorAll('h2')].find(each => each.textContent === 'The fleet')"""
    cut = f"""() => {{ const wide = []; for (let each = {fleet}.nextElementSibling; each.matches('.wide');
        each = each.nextElementSibling) wide.push(each.scrollWidth - each.clientWidth); return wide; }}"""
    assert page.evaluate(cut) == [0, 0]
    page.close()
