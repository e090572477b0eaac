"""What python.md and README.md show is run as it stands, from a folder of one's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from guides import ROOT, blocks

GUIDE, README = ROOT / "docs" / "python.md", ROOT / "README.md"


def play(code: str, folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_from_a_model_and_data_to_a_figure_takes_ten_lines() -> None:
    (shown,) = [block for block in blocks(README, "python") if "edgefl.simulate" in block]
    assert shown == blocks(GUIDE, "python")[0]
    assert len([line for line in shown.splitlines() if line.strip()]) <= 10


def test_the_guide_runs(tmp_path: Path) -> None:
    code = "\n".join(blocks(GUIDE, "python"))
    check = "assert history.done.stopped == 'good enough' and history.accuracy > 0.8, history.records()[-1]"
    play(f"{code}\n{check}\n", tmp_path)
    for figure in ("accuracy.png", "comparison.png"):
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("page", ["first_steps", "own_algorithm", "three_agents"])
def test_the_guide_names_every_notebook(page: str) -> None:
    assert (ROOT / "docs" / "notebooks" / f"{page}.ipynb").is_file()
    assert f"notebooks/{page}.ipynb" in GUIDE.read_text()
