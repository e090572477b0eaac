"""The commands of the tools: as the guides type them, with a mistake in them, and in another folder."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from guides import PAGES, ROOT, blocks, commands

from tools.processes import python

SHORTER = {"--seeds 2000": "--seeds 12", "--seeds 200": "--seeds 10"}
ENDS_WITH = {"python -m tools.chaos --plant no-last-will --seeds 200": 1}  # it is found
TYPED = [
    shlex.join(command)
    for page in PAGES
    for block in blocks(page, "sh")
    for command in commands(block)
    if command[0] == "python"
]


def run(command: list[str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("line", TYPED)
def test_the_guides_type_what_runs(line: str) -> None:
    shorter = line
    for long, short in SHORTER.items():
        shorter = shorter.replace(long, short)
    done = run([sys.executable, *shlex.split(shorter)[1:]])
    assert done.returncode == ENDS_WITH.get(line, 0), done.stderr
    assert "violations" in done.stdout


def test_a_mistake_gets_one_line() -> None:
    done = run([sys.executable, "-m", "tools.chaos", "--plant", "no-last-wil"])
    assert done.returncode == 2
    assert done.stderr.startswith("edgefl: --plant no-last-wil: not known; ")
    assert done.stderr.count("\n") == 1


def test_a_process_of_a_tool_finds_it_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("raise SystemExit('a file of the user')")
    done = run(python("tools.chaos", "--seed", "3"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("0 violations\n")
