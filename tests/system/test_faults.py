"""Faults on demand come at the write they were asked for, and nowhere else."""

import os
import signal
import subprocess
import sys

import pytest

from edgefl.system.faults import FAULT, FULL_WRITES

WRITES = """
from edgefl.system.faults import before_write
for i in range(1, 8):
    try:
        before_write()
    except OSError as error:
        print(f"full {i} {error.errno}", flush=True)
    else:
        print(f"wrote {i}", flush=True)
"""


def played(fault: str | None) -> tuple[int, list[str]]:
    environment = {key: value for key, value in os.environ.items() if key != FAULT}
    environment |= {} if fault is None else {FAULT: fault}
    done = subprocess.run(
        [sys.executable, "-c", WRITES], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout.splitlines()


def test_without_the_variable_nothing_happens():
    assert played(None) == (0, [f"wrote {i}" for i in range(1, 8)])


def test_a_kill_comes_right_before_its_write():
    assert played("kill:4") == (-signal.SIGKILL, ["wrote 1", "wrote 2", "wrote 3"])


@pytest.mark.parametrize("index", [1, 3])
def test_a_full_disk_lasts_three_writes(index):
    code, lines = played(f"full:{index}")
    full = [int(line.split()[1]) for line in lines if line.startswith("full")]
    assert code == 0
    assert full == list(range(index, index + FULL_WRITES))
