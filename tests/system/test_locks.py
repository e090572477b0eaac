"""A folder has one owner."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgefl.base.errors import ConfigError
from edgefl.system.locks import own

HOLD = """
import sys
from pathlib import Path
from edgefl.system.locks import own
with own(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_a_second_owner_is_told_who_has_it(tmp_path: Path):
    with own(tmp_path), pytest.raises(ConfigError, match=rf"in use by process {os.getpid()}"), own(tmp_path):
        pass


def test_it_is_free_again_afterwards(tmp_path: Path):
    with own(tmp_path):
        pass
    with own(tmp_path):
        pass


def test_a_killed_owner_owns_nothing(tmp_path: Path):
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == b"mine\n"
    with pytest.raises(ConfigError, match=f"process {other.pid}"), own(tmp_path):
        pass
    other.kill()
    other.wait(30)
    with own(tmp_path):
        pass
    other.stdout.close()
    other.stdin.close()
