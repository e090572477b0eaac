"""A temporary folder of a process that is killed is cleared away by the next one; one whose owner lives is not."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefl.system.scratch import LOCK, Scratch

OWNER = """
import sys
from edgefl.system.scratch import Scratch
print(Scratch("of-a-test-").path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_it_is_ours_alone_and_gone_with_its_block() -> None:
    with Scratch("of-a-test-") as scratch:
        assert scratch.path.stat().st_mode & 0o077 == 0
        (scratch.path / "key").write_text("secret")
    assert not scratch.path.exists()


def test_the_folder_of_one_who_was_killed_goes_and_that_of_one_who_lives_stays(owner: subprocess.Popen[str]) -> None:
    assert owner.stdout is not None
    left = Path(owner.stdout.readline().strip())
    (left / "key").write_text("secret")
    with Scratch("of-a-test-"):
        assert (left / "key").exists(), "its owner lives"
    owner.kill()
    owner.wait()
    with Scratch("of-another-kind-"):
        assert (left / "key").exists(), "it is none of its business"
    with Scratch("of-a-test-"):
        assert not left.exists()


def test_nothing_but_such_folders_is_touched(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK).touch()
    (temporary / "of-a-test-link").symlink_to(elsewhere)
    (temporary / "of-a-test-file").touch()
    (temporary / "of-a-test-without-lock").mkdir()
    with Scratch("of-a-test-") as scratch:
        left = {path.name for path in temporary.iterdir()} - {scratch.path.name}
    assert left == {"elsewhere", "of-a-test-link", "of-a-test-file", "of-a-test-without-lock"}
    assert (elsewhere / LOCK).exists()
