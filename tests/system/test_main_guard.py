"""A script that starts processes without saying where it is the main program is told so in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

CALLS = {
    "workers > 1": "edgefl.compare('softmax', 'synthetic', algorithms=['fedavg', 'fedprox'], workers=2, **how)",
    "compute.engine = 'processes'": "edgefl.simulate("
    "'softmax', 'synthetic', workers=2, settings={'compute.engine': 'processes'}, **how)",
}
SCRIPT = """
import edgefl

how = {{"fleet": 2, "rounds": 1, "backend": "torch", "progress": False}}
{guard}
    print({call})
"""


def run(path: Path, call: str, guard: str) -> "subprocess.CompletedProcess[str]":
    path.write_text(SCRIPT.format(call=call, guard=guard))
    return subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.parametrize("what", CALLS)
def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path, what: str):
    done = run(tmp_path / "script.py", CALLS[what], "if True:")
    assert done.returncode == 1
    assert f"ConfigError: {what} starts processes" in done.stderr
    assert 'below `if __name__ == "__main__":`' in done.stderr
    assert done.stderr.count("Traceback") == 1, "its processes say nothing"


@pytest.mark.night
@pytest.mark.parametrize("what", CALLS)
def test_with_a_guard_it_plays(tmp_path: Path, what: str):
    done = run(tmp_path / "script.py", CALLS[what], 'if __name__ == "__main__":')
    assert done.returncode == 0, done.stderr
    assert "fedavg" in done.stdout
