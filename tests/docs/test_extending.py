"""The guides' own examples work: installed as a package outside this repository, and named by their place."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "algorithms.md"
EVERYTHING = GUIDE.with_name("extending.md").read_text()
BLOCKS: list[str] = re.findall(r"```toml\n(.*?)```", EVERYTHING, re.DOTALL)
RUN = """
[run]
name = "outside"
rounds = 2
[task]
data = "synthetic"
model = "softmax"
partition = { kind = "iid", devices = 2 }
[algorithm]
name = "signfed"
step = 0.02
"""


def test_the_guides_algorithm_runs_from_an_entry_point(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (named,) = re.findall(
        r'```toml\n\[project.entry-points."edgefl.algorithms"\]\n(.*?)```', GUIDE.read_text(), re.DOTALL
    )
    (tmp_path / "signfed.py").write_text(code)
    about = tmp_path / "signfed-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: signfed\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[edgefl.algorithms]\n" + named.replace('"', ""))
    (tmp_path / "run.toml").write_text(RUN)
    assert "done: 2 rounds" in edgefl(tmp_path, "simulate", "run.toml", PYTHONPATH=str(tmp_path))


def edgefl(folder: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "edgefl", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- one of everything ---------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run file of the page, beside its module."""
    code = re.findall(r"```python\n(.*?)```", EVERYTHING, re.DOTALL)[0]
    text = next(block for block in BLOCKS if block.startswith("[run]"))
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "run.toml").write_text(text)
    return tmp_path


def test_each_kind_works_by_its_place_and_by_its_word_and_gives_the_same_model(run: Path) -> None:
    by_place = last(edgefl(run, "simulate", "run.toml", "--json"))
    assert (by_place["event"], by_place["rounds"]) == ("done", 3)
    named = next(block for block in BLOCKS if block.startswith("[project.entry-points"))
    about = run / "installed" / "mine-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    points = re.sub(r'\[project\.entry-points\."(.*?)"\]', r"[\1]", named).replace('"', "")
    (about / "entry_points.txt").write_text(points)
    (run / "mine.py").rename(run / "installed" / "mine.py")
    words = {"mine:Careful": "careful", "mine:Largest": "largest", "mine:Signs": "signs"}
    text = (run / "run.toml").read_text()
    for place, word in {**words, "mine:gentle": "gentle", "mine:corners": "corners"}.items():
        text = text.replace(place, word)
    (run / "run.toml").write_text(text + '\n[[aggregation]]\nname = "mean"\n[[aggregation]]\nname = "halve"\n')
    by_word = last(edgefl(run, "simulate", "run.toml", "--json", PYTHONPATH=str(run / "installed")))
    assert by_word["model_sha256"] == by_place["model_sha256"]


def test_an_algorithm_is_compared_by_its_place(run: Path) -> None:
    table = edgefl(run, "compare", "run.toml", "--algorithms", "fedavg,mine:Careful")
    assert "mine:Careful" in table
    assert "failed" not in table


def last(told: str) -> dict[str, Any]:
    done: dict[str, Any] = json.loads(told.splitlines()[-1])
    return done
