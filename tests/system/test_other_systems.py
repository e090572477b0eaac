"""What works on Windows and macOS, tried on Linux: modules of the project get no more than those systems have.

`tests/other_systems/sitecustomize.py` takes it away, in child processes too. Such a machine itself was not there.
"""

import ast
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from certificates import LASTING, Authority

from coordinator.durable.journal import Journal
from edgefl.base import events
from edgefl.base.events import Round
from edgefl.cli.app import POSIX_ONLY, app
from edgefl.cli.simulate import simulate
from edgefl.job.config.page import Page
from edgefl.system.disk import FolderDisk
from edgefl.watch.metrics_file import MetricsFile
from edgefl.watch.overview.overview import Overview

ROOT = Path(__file__).parents[2]
LESS = ROOT / "tests" / "other_systems"
LACKING = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
SYSTEMS = ("win32", "darwin")
MODULES = ("pwd", "fcntl", "resource", "grp", "termios")
RUN = """
[run]
name = "tiny"
rounds = 2
[task]
data = "digits"
model = "softmax"
partition = { kind = "iid", devices = 4 }
[algorithm]
name = "fedavg"
batches = 2
[rounds]
cohort = 2
"""
COORDINATED = {
    "run": {"name": "sensors", "rounds": 1},
    "broker": {"url": "mqtt://b:1883"},
    "algorithm": {"name": "fedgc"},
    "rounds": {"deadline": 60.0},
}
STORY = [
    events.Joined("pi-1", 10, "host", "0.1.0", at=1794873600.0),
    events.Asked(1, 1, ("pi-1",), 9, at=1794873601.0),
    events.Answered("pi-1", 1, 500, took=2.0, at=1794873603.0),
    events.Closed(1, ("pi-1",), at=1794873604.0),
    Round(1, scores={"accuracy": 0.5, "balanced_accuracy": 0.5, "loss": 1.0}, devices=1, seconds=3.0, at=1794873605.0),
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("run.toml").write_text(RUN, encoding="utf-8")


def less(system: str, *command: str) -> "subprocess.CompletedProcess[str]":
    """A Python command in which the project's modules find only what that system has."""
    environment = {**os.environ, "PYTHONPATH": str(LESS), "EDGEFL_SYSTEM": system}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=240, check=False
    )


def typed(system: str, *words: str) -> str:
    """What a command printed, which must end well."""
    ended = less(system, "-c", "from edgefl.cli.entry import main; main()", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("module", MODULES)
def test_what_is_taken_away_is_away(module: str) -> None:
    script = f"exec(compile('import {module}', 'x', 'exec'), {{'__name__': 'edgefl.x'}})"
    ended = less("win32", "-c", script)
    assert f"ModuleNotFoundError: No module named '{module}'" in ended.stderr
    assert less("darwin", "-c", script).returncode == 0


@pytest.mark.parametrize("system", SYSTEMS)
def test_locks_and_files_are_as_on_linux(system: str) -> None:
    files = ("system/test_disk.py", "system/test_scratch.py", "system/test_locks.py", "system/test_store.py")
    ended = less(system, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(str(LESS.parent / name) for name in files))
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_says_its_version(system: str) -> None:
    assert typed(system, "--version").startswith("edgefl ")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_simulation_has_the_same_model_as_on_linux(system: str, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(Path("run.toml"))
    model = capsys.readouterr().out.split()[-1]
    assert len(model) == 16
    assert typed(system, "simulate", "run.toml", "--out", "out").split()[-1] == model
    assert Path("out/metrics.jsonl").is_file()


def write_data() -> None:
    """The same 80 samples as a file of each kind, and pictures."""
    x, y = np.random.default_rng(7).normal(size=(80, 3)), np.arange(80) % 2
    np.savez("d.npz", x=x.astype(np.float32), y=y)
    rows = [(*map(float, features), int(label)) for features, label in zip(x, y, strict=True)]
    Path("d.csv").write_text("a,b,c,label\n" + "".join(",".join(map(str, row)) + "\n" for row in rows), "utf-8")
    with closing(sqlite3.connect("d.sqlite")) as made, made:
        made.execute("create table t (a, b, c, label)")
        made.executemany("insert into t values (?, ?, ?, ?)", rows)
    Path("mine.py").write_text("import numpy as np\n\n\ndef read():\n    return np.eye(9), np.arange(9) % 2\n", "utf-8")


@pytest.mark.parametrize("source", ["npz:d.npz", "csv:d.csv", "sqlite:d.sqlite", "mine:read"])
def test_data_of_each_kind_can_be_used(source: str) -> None:
    write_data()
    assert "accuracy" in typed("win32", "simulate", "run.toml", "--set", f"task.data={source}")


def test_parquet_files_can_be_used() -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow (edgefl[parquet])")
    columns = {"a": np.arange(80.0) % 7, "b": np.arange(80.0) % 5, "label": np.arange(80) % 2}
    import_module("pyarrow.parquet").write_table(arrow.table(columns), "d.parquet")
    assert "accuracy" in typed("win32", "simulate", "run.toml", "--set", "task.data=parquet:d.parquet")


def test_pictures_can_be_used() -> None:
    pictures = pytest.importorskip("PIL.Image", reason="needs Pillow (edgefl[images])")
    for number in range(20):
        path = Path("pictures", "ab"[number % 2], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        pictures.new("L", (4, 4), 10 * number).save(path)
    assert "accuracy" in typed("win32", "simulate", "run.toml", "--set", "task.data=images:pictures")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_comparison_plays_two_runs_at_a_time(system: str) -> None:
    algorithms = "fedavg,fedprox:mu=0.1"
    said = typed(system, "compare", "run.toml", "--algorithms", algorithms, "--workers", "2", "--out", "compared")
    assert "| fedprox:mu=0.1 |" in said
    assert Path("compared/index.html").is_file()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_folder_from_a_server_has_a_report_and_a_status(system: str, tmp_path: Path) -> None:
    folder = tmp_path / "sensors"
    folder.mkdir()
    disk = FolderDisk(folder)
    with closing(Journal(disk)) as book:
        book.set(run=json.dumps(COORDINATED), run_id="1f2e", done="yes")
        book.note(*STORY)
    metrics = MetricsFile(disk)
    for fact in STORY:
        metrics(fact)
    assert typed(system, "report", str(folder), "--out", "report.html")
    assert "pi-1" in Path("report.html").read_text(encoding="utf-8")
    assert "sensors" in typed(system, "status", str(folder))


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_coordinator_elsewhere_says_how_its_run_is(system: str, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from edgefl.watch.page.feed import Feed
    from edgefl.watch.page.history import PastRuns
    from edgefl.watch.page.server import PageServer

    authority = Authority.new(tmp_path / "authority", dates=LASTING)
    proof = authority.issue("server", LASTING)
    known = Overview()
    known.tell(events.Started("sensors", "1f2e", rounds=3, at=1794873600.0))
    page = Page(port=0, certificate=proof.certificate, key=proof.key)
    server = PageServer(page, Feed(known), PastRuns(tmp_path, "sensors"))
    try:
        assert "sensors" in typed(system, "status", server.url, "--ca", str(authority.path), "--once")
    finally:
        server.close()


@pytest.mark.parametrize(
    "words",
    [
        ("agent", "start", "agent.toml"),
        ("broker", "start"),
        ("coordinator", "start", "x"),
        ("doctor", "run.toml"),
        ("fleet", "list"),
    ],
)
def test_what_windows_cannot_do_is_refused_in_one_line(words: tuple[str, ...]) -> None:
    ended = less("win32", "-c", "from edgefl.cli.entry import main; main()", *words)
    (line,) = ended.stderr.splitlines()
    assert f"edgefl: `edgefl {words[0]}` does not work on Windows: run it on Linux, or in WSL" in line
    assert ended.returncode == 2


def test_what_works_on_windows_imports_no_module_that_windows_lacks() -> None:
    """Modules that are imported in a function count too: no run of the commands above may have come by."""
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for package in ("edgefl", "coordinator", "device_agent", "gateway")
        for path in (ROOT / package).rglob("*.py")
    }
    commands = {path.stem for path in (ROOT / "edgefl" / "cli").glob("*.py")} & registered() - POSIX_ONLY
    assert {"simulate", "compare", "report", "status", "replay"} <= commands
    reached, wanted = set[str](), [f"edgefl.cli.{command}" for command in commands]
    while wanted:
        if (name := wanted.pop()) in trees and name not in reached:
            reached.add(name)
            wanted += imported(trees[name])
    assert "edgefl.learn.data.parquet_rows" in reached
    lacking = {name: {word for word in imported_first(trees[name]) if word in LACKING} for name in reached}
    assert {name: words for name, words in lacking.items() if words} == {}


def registered() -> set[str]:
    """The commands, and the names of groups of commands."""
    single = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    return single | {group.name for group in app.registered_groups if group.name}


def imported_first(tree: ast.Module) -> Iterator[str]:
    """What a module imports when it is imported itself."""
    tops = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return (word.partition(".")[0] for word in imported(ast.Module(tops, [])))


def imported(tree: ast.AST) -> Iterator[str]:
    """What a module imports anywhere, but where it has asked whether this is Linux, or Windows."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("LINUX", "sys.platform == 'win32'"):
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{name.name}" for name in node.names))
        yield from imported(node)


def test_an_agent_on_macos_says_that_nothing_confines_its_graphs() -> None:
    file = '[agent]\nid = "a"\nbroker = "mqtt://127.0.0.1:1"\nfolder = "devices"\n[data]\nsource = "digits"\n'
    Path("agent.toml").write_text(file, encoding="utf-8")
    ended = less("darwin", "-c", "from edgefl.cli.entry import main; main()", "agent", "start", "agent.toml")
    assert ended.stderr.splitlines()[-1].startswith("edgefl: compute.box needs Linux")
    assert ended.returncode == 2
