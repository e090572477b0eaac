"""The guide's own algorithm, installed as a package outside this repository, works by its name."""

import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[1] / "docs" / "algorithms.md"
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
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "edgefl", "simulate", "run.toml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "done: 2 rounds" in done.stdout
