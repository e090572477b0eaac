"""The door: an agent is started without the parser, and all that is not plain is left to it."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgefl.cli.app import app
from edgefl.cli.entry import Start, plain

PLAIN = [
    [],
    ["agent.toml"],
    ["--insecure", "agent.toml"],
    ["--once", "agent.toml"],
    ["agent.toml", "--log", "debug", "--log=warning"],
    ["--set", "agent.id=a", "agent.toml", "--set=data.source=npz:x=1.npz"],
    ["agent.toml", "--data-root", "there", "--once"],
    ["agent.toml", "--once", "--run", "mine"],
    ["agent.toml", "--data-root=there", "--set", "compute.threads = 2"],
]


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_plain_words_mean_what_the_parser_makes_of_them(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []

    def run(path, sets, root, *, once, only, insecure, level):
        heard.append(Start(path, tuple(sets), root, once, only, level, insecure))
        return 0, "done"

    monkeypatch.setattr("device_agent.start.run", run)
    result = CliRunner().invoke(app, ["agent", "start", *words])
    assert result.exit_code == 0, result.output
    assert heard == [plain(["agent", "start", *words])]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["agent"],
        ["coordinator", "start", "run.toml"],
        ["agent", "evaluate", "agent.toml", "model.onnx"],
        ["agent", "start", "--help"],
        ["agent", "start", "agent.toml", "--hlep"],
        ["agent", "start", "agent.toml", "other.toml"],
        ["agent", "start", "agent.toml", "--log"],
        ["agent", "start", "agent.toml", "--log", "--once"],
        ["agent", "start", "agent.toml", "--once=yes"],
        ["agent", "start", "--", "agent.toml"],
        ["agent", "start", ""],
    ],
    ids=" ".join,
)
def test_everything_else_is_the_parsers(words: list[str]) -> None:
    assert plain(words) is None


KEPT = """
import sys
from edgefl.cli import entry
try:
    entry.main()
finally:
    print(*sorted({name.partition(".")[0] for name in sys.modules} & {"typer", "click", "rich", "psutil", "torch"}))
"""


def test_an_agent_does_not_carry_the_parser_and_its_mistakes_still_get_one_line(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text('[agent]\nid = "pi"\nfoldr = "x"\n')
    done = subprocess.run(
        [sys.executable, "-c", KEPT, "agent", "start", "agent.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == "\n"
    assert done.stderr == "edgefl: agent.toml: unknown key 'agent.foldr'; did you mean 'folder'?\n"


def test_the_parser_answers_at_the_door_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgefl", "agent", "start", "--hlep"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--hlep" in done.stderr
    assert "Traceback" not in done.stderr


HEAVY = {
    "numpy",
    "torch",
    "onnx",
    "onnxruntime",
    "cryptography",
    "paho",
    "starlette",
    "uvicorn",
    "safetensors",
    "msgpack",
}
LOADED = f"""
import sys
from edgefl.cli import entry
try:
    entry.main()
finally:
    print(*sorted({{name.partition(".")[0] for name in sys.modules}} & {HEAVY}), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["status", "--help"], ["coordinator", "start", "--help"]])
def test_a_command_that_only_says_what_it_is_loads_nothing_large(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True)
    assert done.stderr == "\n"


PARSER = """
import sys
from edgefl.cli import entry
entry.main()
print(*sorted({"typer", "pydantic", "rich"} & set(sys.modules)), file=sys.stderr)
"""


def test_the_version_is_told_without_the_parser_and_in_its_words() -> None:
    def told(*words: str) -> tuple[str, str]:
        command = [sys.executable, "-c", PARSER, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    parsed = subprocess.run(
        [sys.executable, "-c", "from edgefl.cli.app import main; main()", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told("--version") == (parsed.stdout, "\n")


def test_help_loads_no_facts_of_a_run() -> None:
    code = "import sys; from edgefl.cli import app; print('edgefl.base.events' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
