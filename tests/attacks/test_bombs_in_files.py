"""Files from elsewhere that stand for gigabytes, or for work without end, given to the commands that people use.

Each command runs as a process that has little memory (tests/bombs.py): a bomb that goes off ends it.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bombs
import pytest

from edgefl.system import store


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


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a small run."""
    folder = tmp_path_factory.mktemp("trained")
    run = "[run]\nname = 'a'\nrounds = 1\n[task]\nmodel = 'mlp'\ndata = 'digits'\n"
    (folder / "run.toml").write_text(run + "[task.partition]\nkind = 'iid'\ndevices = 2\n[rounds]\ncohort = 2\n")
    command = [sys.executable, "-m", "edgefl", "simulate", "run.toml", "--out", "theirs"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (checkpoint,) = (folder / "theirs").glob("checkpoint-*.safetensors")
    return checkpoint


def forged(trained: Path, folder: Path, **about: Any) -> str:
    """The same checkpoint, whose metadata say something else."""
    tensors, known = store.load(trained)
    sections = about.pop("run", {})
    run = {**known["run"], **{name: {**known["run"][name], **table} for name, table in sections.items()}}
    (folder / "a.safetensors").write_bytes(store.sealed(tensors, {**known, **about, "run": run}))
    return "a.safetensors"


@pytest.mark.night
def test_a_checkpoint_does_not_choose_which_file_is_read_and_how_much_of_it(trained: Path, tmp_path: Path) -> None:
    bombs.npz(tmp_path / "bomb.npz")
    file = forged(trained, tmp_path, run={"task": {"data": "npz:bomb.npz"}, "data": {"most_mb": 100_000}})
    done = bombs.run("-m", "edgefl", "export", file, "out.onnx", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not measured: its data 'npz:bomb.npz' are files, which a checkpoint does not choose" in done.stdout


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"sample": [60_000_000]}, "a sample of 60000000 numbers"),
        ({"sample": [4_000_000]}, "holds other tensors than task.model = 'mlp' makes here"),
        ({"sample": [10**30]}, "a sample of 1" + "0" * 30),
        ({"classes": 60_000_000}, "holds other tensors"),
        ({"classes": 10**30}, "an output of 1" + "0" * 30),
    ],
    ids=str,
)
def test_a_checkpoint_claims_no_sizes_that_its_tensors_do_not_have(
    about: dict[str, Any], why: str, trained: Path, tmp_path: Path
) -> None:
    file = forged(trained, tmp_path, **about)
    done = bombs.run("-m", "edgefl", "export", file, "out.onnx", folder=tmp_path)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("edgefl: "))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert why in line


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
