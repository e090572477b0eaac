"""Names and texts from outside: no name becomes a path, and no text is obeyed by a terminal, a log or a table."""

import io
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, prepared, run_file
from listening import DEVICE, agent_that_heard, sealed
from puppet import Puppet
from rich.console import Console

from coordinator.durable import journal, run_history
from coordinator.shell.threaded import Threaded
from device_agent.decide import session
from device_agent.shell.service import Agent
from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.system.disk import FolderDisk
from edgefl.system.logs import FORMAT, LineFormatter
from edgefl.watch import fact_lines
from edgefl.watch.view import LineView, LiveView, json_line, plain_line
from edgefl.wire import chunks, topics
from edgefl.wire.frames import pack
from edgefl.wire.messages import Assignment, DeclinedMessage, Presence, frame
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from tools.in_memory_broker import InMemoryBroker

NASTY = "[/x] [bold red]\n2026-11-16 12:00:00,000 INFO coordinator: forged\r\x1b[2J\u202e{0}"
RUN = run_file({"name": "fedavg"}, task={"partition": {"kind": "iid", "devices": 4}}, rounds={"cohort": 4, "quorum": 3})

TASK = Assignment(job="fleet", run_id="r", round=1, attempt=0, model="m" * 16).model_dump()
PATHS = [
    {"job": ".", "run_id": "/../../pwned"},
    {"run_id": "../pwned"},
    {"model": "../../pwned"},
    {"previous": "a/b"},
    {"graphs": "#"},
    {"run_id": "r\n"},
]


def told(folder: Path, topic_job: str, task: dict[str, Any]) -> Agent:
    """A real agent, after it was given this task on the topic of that job, and ended."""
    data = pack(task)
    message = sealed(next(chunks.split(data, chunks.digest(data))), job=topic_job, run=task["run_id"])
    return agent_that_heard(RUN, folder, [(topics.down("default", topic_job, DEVICE), message)])


@pytest.mark.parametrize("lie", PATHS, ids="+".join)
def test_an_agent_makes_no_path_and_no_topic_of_a_name(lie: dict[str, str], tmp_path: Path) -> None:
    agent = told(tmp_path / "agents", lie.get("job", "fleet"), {**TASK, **lie})
    assert agent.refusals == {"wire.malformed": 1}
    assert not session.known(agent.session)
    assert [path.name for path in tmp_path.iterdir()] == ["agents"]


def test_a_job_speaks_only_on_its_own_topic(tmp_path: Path) -> None:
    assert told(tmp_path, "other", TASK).refusals == {"wire.malformed": 1}
    assert told(tmp_path, "fleet", TASK).refusals == {}


class Watched:
    """A run with three honest agents and a device whose every text is nasty, in front of all views and a log."""

    def __init__(self, folder: Path) -> None:
        self.broker = InMemoryBroker()
        self.fleet = Fleet(RUN, folder / "agents", self.broker.client)
        del self.fleet.data["device-03"]
        self.console = Console(file=io.StringIO(), width=200, force_terminal=False)
        self.live = LiveView(self.console)
        self.views = self.live, LineView(plain_line), LineView(json_line)
        self.folder = folder / "runs"
        self.coordinator = Threaded(
            RUN, self.broker.client("coordinator"), lambda: prepared(RUN)[0], folder=self.folder, tell=self.tell
        )

    def tell(self, event: Fact) -> None:
        for view in self.views:
            view.tell(event)
        self.console.print(self.live.draw())

    def play(self) -> None:
        def act(puppet: Puppet, task: Assignment) -> None:
            plain = DeclinedMessage(job=task.job, round=task.round, reason="")
            puppet.say(frame(plain.model_copy(update={"reason": NASTY})))

        nasty = Presence(online=True, installation="x", birth=1).model_copy(
            update={"host": NASTY, "version": NASTY, "back_end": NASTY, "samples": 10}
        )
        puppet = Puppet("device-03", self.broker.client("device-03"), act, job="fleet")
        puppet._presence = lambda online: puppet.presence(nasty.model_copy(update={"online": online}))  # type: ignore[method-assign]
        puppet.start()
        twin = Presence(online=True, installation="twin", birth=1).model_copy(update={"host": NASTY})
        stranger = self.broker.client("stranger")
        stranger.start(lambda _: None)
        stranger.publish(topics.presence("default", "device-03"), puppet._presence(online=True))
        self.fleet.start_all()
        thread = threading.Thread(target=self.coordinator.run, daemon=True)
        thread.start()
        for name in ("device-03", "[red]\nforged"):
            presence = Speaker(Signer.new(), "default", 1).seal(
                "presence", twin.model_dump_json().encode(), device=name
            )
            stranger.publish(topics.presence("default", name), presence)
        thread.join(120)
        assert not thread.is_alive()


def test_nothing_a_device_says_is_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter(FORMAT))
    logging.getLogger().addHandler(handler)
    logging.getLogger("coordinator").setLevel(logging.INFO)
    try:
        watched = Watched(tmp_path)
        watched.play()
    finally:
        logging.getLogger("coordinator").setLevel(logging.NOTSET)
        logging.getLogger().removeHandler(handler)
    shown = watched.console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "device-03 declined round 1: [/x] [bold red]\\n2026-11-16" in shown
    assert "declined: [/x] [bold red]\\n2026" in shown, "the table of devices"
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("{")]
    assert any(line.startswith("declined: device-03: [/x]") for line in lines)
    replayed = list(run_history.lines(FolderDisk(watched.folder)))
    logged = written.getvalue()
    assert "reason=[/x] [bold red]\\n2026" in logged
    for text in (shown, *lines, *replayed, logged):
        assert "\x1b" not in text
        assert "\r" not in text
        assert "\u202e" not in text
    for line in (*shown.splitlines(), *lines, *replayed, *logged.splitlines()):
        assert not line.startswith("2026-11-16 12:00:00,000"), "a forged line"


def test_json_says_it_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    LineView(json_line).tell(events.Declined("pi", 1, NASTY))
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["reason"] == NASTY


def test_a_traceback_does_not_forge_lines() -> None:
    try:
        raise ValueError(NASTY)
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "went wrong: %s", (error,), (ValueError, error, None))
    first, *rest = LineFormatter(FORMAT).format(record).splitlines()
    assert first.endswith("\\u202e{0}")
    assert rest
    assert all(line.startswith("  ") for line in rest)


def test_what_a_journal_quotes_is_no_template() -> None:
    assert "pi declined round 1: {0} {x}" in fact_lines.line(events.Declined("pi", 1, "{0} {x}"))


def test_letters_that_a_terminal_has_not_do_not_end_a_command(tmp_path: Path) -> None:
    book = journal.Journal(FolderDisk(tmp_path))
    book.note(events.Declined("pi", 1, "\N{SNOWMAN}"))
    book.close()
    command = [sys.executable, "-m", "edgefl", "replay", str(tmp_path / journal.NAME)]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2603" in done.stdout
