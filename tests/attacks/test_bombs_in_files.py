"""Files from elsewhere that stand for gigabytes, or for work without end, given to the commands that people use.

Each command runs as a process that has little memory (tests/bombs.py): a bomb that goes off ends it.
"""

from collections.abc import Callable
from pathlib import Path

import bombs
import pytest


def doctors_word(tmp_path: Path, source: str, more: str = "") -> str:
    """What `edgefl doctor` says of the data that an agent file names, and nothing else that is wrong."""
    agent = (
        f"[agent]\nid = 'pi-1'\nbroker = 'mqtt://127.0.0.1:1'\nfolder = 'state'\n[data]\nsource = '{source}'\n{more}"
    )
    (tmp_path / "agent.toml").write_text(agent)
    done = bombs.run("-m", "edgefl", "doctor", "agent.toml", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(("ok       data", "wrong    data")))
    assert "looked at" in done.stdout.splitlines()[-1], "it came to its end"
    return line


def test_an_archive_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path: Path) -> None:
    bombs.npz_that_claims(tmp_path / "claims.npz")
    assert "claims.npz': takes more than" in doctors_word(tmp_path, "npz:claims.npz")
    bombs.npz(tmp_path / "real.npz")
    line = doctors_word(tmp_path, "npz:real.npz", "most_mb = 500\n")
    assert "real.npz': takes more than 500 MB of memory: give fewer samples, or raise data.most_mb" in line


@pytest.mark.parametrize("make", [bombs.view_without_end, bombs.view_of_large_cells])
def test_a_view_is_no_table(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "log.db")
    assert "has the views v: say what to read: data.query" in doctors_word(tmp_path, "sqlite:log.db")


def test_a_view_without_end_that_is_asked_for_has_one(tmp_path: Path) -> None:
    bombs.view_without_end(tmp_path / "log.db")
    line = doctors_word(tmp_path, "sqlite:log.db", "query = 'SELECT * FROM v'\n")
    assert "the query takes too long: more than 300 million steps" in line


@bombs.NEEDS_3_11
def test_cells_of_900_mb_are_not_made(tmp_path: Path) -> None:
    bombs.view_of_large_cells(tmp_path / "log.db")
    line = doctors_word(tmp_path, "sqlite:log.db", "query = 'SELECT * FROM v'\n")
    assert "string or blob too big" in line


def test_a_model_whose_tensors_share_storage_takes_what_it_has_on_the_disk(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="writes the file")
    bombs.shared_storage(tmp_path / "a.pt")
    run = "[run]\nname = 'a'\nfrom = 'a.pt'\n[task]\nmodel = 'softmax'\ndata = 'digits'\n"
    run += "[task.partition]\nkind = 'iid'\ndevices = 2\n[rounds]\ncohort = 2\n"
    (tmp_path / "run.toml").write_text(run)
    done = bombs.run("-m", "edgefl", "simulate", "run.toml", folder=tmp_path)
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if "run.from" in line)
    assert "a.pt: lacks" in line, "it was read, and is another model"
    assert "Traceback" not in done.stderr
