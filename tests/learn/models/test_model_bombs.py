"""A file of a model that stands for very much is read in the memory it has on the disk, or refused in one line."""

from collections.abc import Callable
from pathlib import Path

import bombs
import pytest

READ = """
import sys
from pathlib import Path
from edgefl.base.errors import ConfigError, StoreError
from edgefl.job.run.first_model import read_model
try:
    print(f"{len(read_model(Path(sys.argv[1]))[0])} tensors")
except (ConfigError, StoreError, ValueError) as error:
    print(error)
"""


def said(path: Path) -> str:
    """The one line that is said of a file."""
    done = bombs.run("-c", READ, str(path))
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    return line


def test_tensors_that_share_their_numbers_share_them_here(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="writes the file")
    bombs.shared_storage(tmp_path / "a.pt")
    assert said(tmp_path / "a.pt") == "200 tensors"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (bombs.overlapping_parts, "its parts are larger than the file"),
        (bombs.nested_key, "it does not hold tensors by name"),
        (bombs.nested_name, "it does not hold tensors by name"),
        (bombs.empty_dictionaries, "its data.pkl is too large"),
        (bombs.many_dimensions, "a tensor in it has no proper shape"),
        (bombs.sparse, "it is larger than 4096 MB"),
    ],
)
def test_a_state_dict_may_be_a_bomb(make: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    if make is bombs.overlapping_parts:
        pytest.importorskip("torch", reason="writes the file")
    make(tmp_path / "a.pt")
    assert words in said(tmp_path / "a.pt")
