"""What python.md and README.md show is run as it stands, from a folder of one's own."""

from pathlib import Path
from typing import Any

import pytest
from guides import ROOT, blocks

GUIDE, README = ROOT / "docs" / "python.md", ROOT / "README.md"


def test_from_a_model_and_data_to_a_figure_takes_ten_lines() -> None:
    (shown,) = [block for block in blocks(README, "python") if "edgefl.simulate" in block]
    assert shown == blocks(GUIDE, "python")[0]
    assert len([line for line in shown.splitlines() if line.strip()]) <= 10


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(GUIDE, "python"):
        exec(block, names)
    assert names["history"].done.stopped == "good enough"
    assert names["history"].accuracy > 0.8
    for figure in ("accuracy.png", "comparison.png"):
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("page", ["first_steps", "own_algorithm", "three_agents"])
def test_the_guide_names_every_notebook(page: str) -> None:
    assert (ROOT / "docs" / "notebooks" / f"{page}.ipynb").is_file()
    assert f"notebooks/{page}.ipynb" in GUIDE.read_text()
