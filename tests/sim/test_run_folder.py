"""A simulation that is killed goes on in its folder, and ends with the same model as one that nothing disturbed."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator.durable import checkpoint
from edgefl.base.events import Done, Fact, Round, timeless
from edgefl.cli.app import app
from edgefl.job.config.reader import load, parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.sim.drivers import play
from edgefl.sim.run_folder import play_kept
from edgefl.system.disk import FolderDisk

TABLE: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 6, "seed": 4},
    "task": {
        "data": "synthetic",
        "model": "softmax",
        "backend": "torch",
        "public": 0.1,
        "partition": {"kind": "iid", "devices": 5},
    },
    "rounds": {"cohort": 2},
}
CASES = {
    "a plain mean": {"algorithm": {"name": "fedavg", "batches": 2}},
    "states on devices and at the server": {"algorithm": {"name": "scaffold", "batches": 2}},
    "free rounds": {"algorithm": {"name": "upcycled", "batches": 2}},
    "the model before": {"algorithm": {"name": "gradma", "batches": 2}},
    "what a codec left out": {"algorithm": {"name": "fedavg"}, "wire": {"up": {"codec": "topk", "share": 0.1}}},
    "another selection": {"algorithm": {"name": "fedavg"}, "selection": {"name": "fresh"}},
    "devices that judge": {"algorithm": {"name": "fedavg"}, "evaluation": {"on": "devices", "least": 1}},
    "features that are normalised": {"algorithm": {"name": "fedavg"}, "task": {"normalise": "fleet"}},
    "an emulated fleet": {"algorithm": {"name": "fedavg"}, "fleet": {"profiles": {"pi4": 5}}},
    "rounds that wait for nobody": {"algorithm": {"name": "fedavg"}, "rounds": {"cohort": None, "mode": "buffered"}},
}


class KilledError(Exception):
    pass


def a_run(more: dict[str, Any]) -> RunFile:
    table = {key: {**TABLE.get(key, {}), **more.get(key, {})} for key in TABLE | more}
    table["rounds"] = {key: value for key, value in table["rounds"].items() if value is not None}
    return parse(RunFile, table, "run.toml")


@pytest.fixture(scope="module")
def prepared():
    """Data and network once for all runs that share them."""
    from edgefl.lab.comparison.preparing import Preparation

    return Preparation()


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_killed_goes_on_to_the_same_model_and_the_same_facts(case: str, prepared: Any, tmp_path: Path):
    run = a_run(CASES[case])
    undisturbed, told = list[Fact](), list[Fact]()
    end = play(run, None, undisturbed.append, prepare=prepared)

    def until_the_fourth(fact: Fact) -> None:
        told.append(fact)
        if isinstance(fact, Round) and fact.round == 4:
            raise KilledError

    with pytest.raises(KilledError):
        play_kept(run, None, until_the_fourth, folder=tmp_path, seconds=0, prepare=prepared)
    again = list[Fact]()
    resumed = play_kept(run, None, again.append, folder=tmp_path, seconds=0, prepare=prepared)
    assert resumed.sha256() == end.sha256()
    first = 5 if case == "an emulated fleet" else 4  # which is played again, and says no round twice
    assert [fact.round for fact in again if isinstance(fact, Round)] == list(range(first, 7))
    ends = [timeless(fact) for fact in (*undisturbed, *again) if isinstance(fact, Done)]
    assert ends[0] == ends[1]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines if line["event"] == "round"] == list(range(1, 7)), "each once"


def test_a_run_that_has_ended_and_another_run_are_begun_anew(prepared: Any, tmp_path: Path):
    rounds = list[int]()

    def count(fact: Fact) -> None:
        if isinstance(fact, Round):
            rounds.append(fact.round)

    run = a_run({"run": {"rounds": 2}})
    other = a_run({"run": {"rounds": 2}, "algorithm": {"name": "fedavg", "lr": 0.5}})
    for one in (run, run, other):
        play_kept(one, None, count, folder=tmp_path, prepare=prepared)
    assert rounds == [1, 2] * 3
    job, _ = prepared(other, None)
    saved = checkpoint.latest(FolderDisk(tmp_path), job)
    assert saved is not None
    assert saved.run_state.sha256() == play(other, None, lambda _: None, prepare=prepared).sha256()


def test_a_run_begins_with_the_model_of_another_that_was_simulated(prepared: Any, tmp_path: Path):
    first = a_run({"run": {"rounds": 2, "folder": str(tmp_path)}})
    end = play_kept(first, None, lambda _: None, folder=tmp_path / "first", prepare=prepared)
    second = a_run({"run": {"rounds": 2, "folder": str(tmp_path), "from": "first"}})
    job, _ = prepared(second, None)
    assert jobs.begin(job).sha256() == end.sha256()


def test_a_damaged_memory_of_the_loop_is_not_gone_on_from(prepared: Any, tmp_path: Path):
    run = a_run({})

    def until_the_second(fact: Fact) -> None:
        if isinstance(fact, Round) and fact.round == 2:
            raise KilledError

    with pytest.raises(KilledError):
        play_kept(run, None, until_the_second, folder=tmp_path, seconds=0, prepare=prepared)
    for file in tmp_path.glob("loop-*"):
        file.write_bytes(b"torn")
    end = play_kept(run, None, lambda _: None, folder=tmp_path, prepare=prepared)
    assert end.sha256() == play(run, None, lambda _: None, prepare=prepared).sha256()


RUN = """
[run]
name = "tiny"
rounds = 5
folder = "runs"
[task]
data = "synthetic"
model = "softmax"
backend = "torch"
partition = { kind = "iid", devices = 4 }
[export.tensorboard]
"""


def test_the_command_keeps_what_run_folder_asks_for_and_tells_the_loggers(tmp_path: Path, monkeypatch):
    pytest.importorskip("tensorboard", reason="an exporter that writes files")
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(RUN)
    done = CliRunner().invoke(app, ["simulate", "run.toml"])
    assert done.exit_code == 0, done.output
    folder = tmp_path / "runs" / "tiny-simulated"
    assert (folder / "checkpoint-000005.safetensors").exists()
    assert list((folder / "tensorboard").rglob("events.out.*"))


KILLED = """
import os, signal, sys
from pathlib import Path
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.sim.run_folder import play_kept

def tell(fact):
    if type(fact).__name__ == "Asked" and fact.round == 4:
        os.kill(os.getpid(), signal.SIGKILL)

play_kept(load(RunFile, Path(sys.argv[1])), None, tell, folder=Path(sys.argv[2]), seconds=0)
"""


def test_a_process_that_is_killed_in_the_middle_of_a_round_goes_on(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text(RUN.replace("[export.tensorboard]", ""))
    killed = subprocess.run([sys.executable, "-c", KILLED, file, tmp_path / "kept"], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    run, rounds = load(RunFile, file), list[int]()
    end = play_kept(run, None, lambda fact: rounds.append(getattr(fact, "round", 0)), folder=tmp_path / "kept")
    assert 1 not in rounds
    assert end.sha256() == play(run, None, lambda _: None).sha256()


def test_a_command_leaves_the_devices_own_models_beside_the_shared_one(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text(
        '[run]\nname = "own"\nrounds = 2\n[task]\ndata = "synthetic"\nmodel = "softmax"\nbackend = "torch"\n'
        'partition = { kind = "iid", devices = 3 }\n[algorithm]\nname = "ditto"\n[evaluation]\non = "devices"\n'
    )
    done = CliRunner().invoke(app, ["simulate", str(file), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    own = sorted(path.name for path in (tmp_path / "out" / "own").iterdir())
    assert own == [f"device-0{i}.safetensors" for i in range(3)]
