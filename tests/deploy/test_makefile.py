"""What a target of the Makefile installs: a user gets no tools of a developer, a developer everything."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
USERS, DEVELOPERS = "-e '.[coordinator,broker]'", "-e '.[dev]'"
TOOLS = {"pytest", "hypothesis", "mypy", "ruff", "playwright", "nbclient", "ipykernel", "pandas", "datasets"}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that make looks at, written an hour ago, and no virtual environment."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
        stamp(tmp_path / name, -3600)
    return tmp_path


def stamp(file: Path, seconds: float) -> None:
    """Let the file be as old as one that was written so many seconds after the test run's clock began."""
    file.parent.mkdir(exist_ok=True)
    file.touch()
    os.utime(file, (1.7e9 + seconds, 1.7e9 + seconds))


def commands(clone: Path, target: str) -> list[str]:
    """Return what the target would run, in order; nothing is run."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def installs(clone: Path, target: str) -> list[str]:
    """What the target would install, in order."""
    lines = [line for line in commands(clone, target) if "-m pip install" in line]
    assert all("-c constraints.txt" in line for line in lines)
    return [line[line.index("-e ") :] for line in lines]


@pytest.mark.parametrize("target", ["install", "demo"])
def test_a_user_gets_no_tools_of_a_developer(clone: Path, target: str):
    assert installs(clone, target) == [USERS]


@pytest.mark.parametrize("target", ["test", "check", "dst", "chaos"])
def test_in_a_fresh_clone_one_command_installs_what_a_developer_needs(clone: Path, target: str):
    assert installs(clone, target) == [USERS, DEVELOPERS]


def test_the_tools_come_where_a_user_has_installed_before(clone: Path):
    stamp(clone / ".venv" / ".user", 0)
    assert installs(clone, "demo") == []
    assert installs(clone, "test") == [DEVELOPERS]


def test_nothing_is_installed_twice(clone: Path):
    stamp(clone / ".venv" / ".user", 0)
    stamp(clone / ".venv" / ".ready", 1)
    assert [installs(clone, target) for target in ("install", "demo", "test", "check")] == [[], [], [], []]


def test_what_the_project_asks_for_anew_is_installed_for_both(clone: Path):
    stamp(clone / ".venv" / ".user", 0)
    stamp(clone / ".venv" / ".ready", 1)
    stamp(clone / "pyproject.toml", 2)
    assert installs(clone, "demo") == [USERS]
    assert installs(clone, "test") == [USERS, DEVELOPERS]


def test_an_update_that_a_user_took_reaches_the_developers_tools_too(clone: Path):
    stamp(clone / ".venv" / ".ready", 1)
    stamp(clone / "pyproject.toml", 2)
    stamp(clone / ".venv" / ".user", 3)
    assert installs(clone, "test") == [DEVELOPERS]


def test_tests_of_the_night_run_at_night_alone(clone: Path):
    for target, left_out in (("test", True), ("nightly", False)):
        (tests, *_) = [line for line in commands(clone, target) if "pytest -q -n auto" in line]
        assert ("-m 'not night'" in tests) is left_out


def test_browsers_and_notebooks_are_of_the_night():
    slow = ["tests/watch/page/test_page_browser.py", "tests/lab/api/test_notebooks.py"]
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *slow]
    night, day = (
        subprocess.run([*collect, "-m", mark], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for mark in ("night", "not night")
    )
    for test in ("test_a_notebook_runs_and_shows_its_figure", "test_what_is_shown_is_what_was_told"):
        assert test in night
        assert test not in day
    assert "test_there_are_three_without_anything_of_a_machine_in_them" in day


def names(requirements: list[str]) -> set[str]:
    return {Requirement(line).name for line in requirements}


def test_the_tools_are_in_the_developers_list_alone():
    users = names([*PROJECT["dependencies"], *EXTRAS["coordinator"], *EXTRAS["broker"]])
    assert names(EXTRAS["dev"]) >= TOOLS
    assert not users & (TOOLS | {"torchvision"})


def test_a_developer_has_what_a_user_has():
    own = next(Requirement(line) for line in EXTRAS["dev"] if Requirement(line).name == "edgefl")
    assert own.extras >= {"coordinator", "broker"}
