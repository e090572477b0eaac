"""Random draws of `make test` are the same in every run, in whatever order its tests run; at night they are not."""

import os
import subprocess
import sys
from pathlib import Path

import draws
import pytest

HERE = Path(__file__).parent
DRAWN = """
import importlib, sys
import draws
draws.set_up()
for module in sys.argv[1:]:
    importlib.import_module(module)
from hypothesis import given
from hypothesis import strategies as st
seen = []
@given(st.integers(), st.floats(), st.text())
def draw(number, real, word):
    seen.append((number, real, word))
draw()
print(seen)
"""


ON_CI = pytest.mark.parametrize("ci", ["", "true"])  # Hypothesis has defaults of its own where CI is set


def environment(ci: str, night: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    inherited["PYTHONPATH"] = f"{HERE}{os.pathsep}{HERE.parent}"
    return inherited | {"EDGEFL_NIGHT": night} | ({"CI": ci} if ci else {})


def drawn(folder: Path, *modules: str, ci: str, night: str = "") -> str:
    """Return what a process draws that has imported these modules before."""
    script = folder / "drawn.py"  # the seed is that of a function's source, which has to be in a file
    script.write_text(DRAWN)
    command = [sys.executable, str(script), *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(ci, night), cwd=folder)
    return done.stdout


@ON_CI
def test_the_same_is_drawn_whatever_was_imported_before(tmp_path: Path, ci: str) -> None:
    modules = ("edgefl.base.errors", "edgefl.learn.robustness", "edgefl.job.config.schema")
    assert drawn(tmp_path, ci=ci) == drawn(tmp_path, *modules, ci=ci)


@ON_CI
def test_at_night_something_else_is_drawn_each_time(tmp_path: Path, ci: str) -> None:
    assert drawn(tmp_path, ci=ci, night="1") != drawn(tmp_path, ci=ci, night="1")


def test_seeds_are_the_first_ones_and_others_every_night(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEFL_NIGHT", raising=False)
    assert list(draws.seeds(3)) == [0, 1, 2]
    nights = []
    for night in ("2026-11-19", "2026-11-20", "2026-11-19"):
        monkeypatch.setenv("EDGEFL_NIGHT", night)
        nights.append(draws.seeds(draws.A_NIGHT))
    assert nights[0] == nights[2]
    assert nights[0].stop == nights[1].start


@ON_CI
def test_what_fails_at_night_is_printed_and_kept(tmp_path: Path, ci: str) -> None:
    (tmp_path / "conftest.py").write_text("import draws\ndraws.set_up()\n")
    failing = "from hypothesis import given, strategies as st\n@given(st.integers())\ndef test_it(n): assert n < 1000\n"
    (tmp_path / "test_failing.py").write_text(failing)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    night = environment(ci, "1")
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=night, cwd=tmp_path)
    assert told.returncode == 1
    assert "n=1000" in told.stdout
    assert "@reproduce_failure" in told.stdout
    assert list((tmp_path / ".hypothesis" / "examples").rglob("*"))
