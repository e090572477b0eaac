"""A comparison keeps what it has finished, goes on after what interrupted it, and says what failed."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edgefl.base.errors import ConfigError, RunError, StoreError
from edgefl.base.events import Done, Round
from edgefl.cli.app import app
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.lab.comparison import comparison
from edgefl.lab.comparison.cache import NAME, ResultCache, digest
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.system import user_code

RUN = """
[run]
name = "tiny"
rounds = 3
[task]
data = "synthetic"
model = "softmax"
backend = "torch"
public = 0.1
partition = { kind = "iid", devices = 4 }
[algorithm]
name = "fedavg"
batches = 2
[rounds]
cohort = 2
"""


def a_run(**sections: Any) -> RunFile:
    table = {"task": {"data": "synthetic", "partition": {"kind": "iid", "devices": 4}}, **sections}
    return parse(RunFile, table, "test", environment={})


def finished(label: str = "a", seed: int = 0) -> PlayedRun:
    return PlayedRun(label, seed, (Round(1, scores={"accuracy": 0.5}),), Done("run", "fedavg", 1))


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_finished_run_is_found_by_the_next_comparison_and_not_by_a_fresh_one(tmp_path: Path):
    ResultCache(tmp_path, None).add(a_run(), finished())
    assert ResultCache(tmp_path, None).find(a_run()) == finished()
    assert ResultCache(tmp_path, None).find(a_run(run={"seed": 1})) is None
    assert ResultCache(tmp_path, None, fresh=True).find(a_run()) is None


def test_what_was_played_again_stands_for_what_was_there_before(tmp_path: Path):
    for label in ("old", "new"):
        ResultCache(tmp_path, None, fresh=True).add(a_run(), finished(label))
    assert ResultCache(tmp_path, None).find(a_run()) == finished("new")


@pytest.mark.parametrize("cut", range(1, 40, 6))
def test_a_line_that_a_power_cut_tore_is_forgotten_and_nothing_else(tmp_path: Path, cut: int):
    kept = ResultCache(tmp_path, None)
    kept.add(a_run(), finished())
    kept.add(a_run(run={"seed": 1}), finished(seed=1))
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:-cut])
    again = ResultCache(tmp_path, None)
    assert again.find(a_run()) == finished()
    assert again.find(a_run(run={"seed": 1})) is None
    again.add(a_run(run={"seed": 1}), finished(seed=1))
    assert ResultCache(tmp_path, None).find(a_run(run={"seed": 1})) == finished(seed=1)


def test_a_damaged_line_in_the_middle_is_passed_over(tmp_path: Path):
    kept = ResultCache(tmp_path, None)
    for seed in range(3):
        kept.add(a_run(run={"seed": seed}), finished(seed=seed))
    lines = (tmp_path / NAME).read_bytes().splitlines()
    lines[1] = b"{}"
    (tmp_path / NAME).write_bytes(b"\n".join(lines) + b"\n")
    again = ResultCache(tmp_path, None)
    assert [again.find(a_run(run={"seed": seed})) is not None for seed in range(3)] == [True, False, True]


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file.*choose another --out"):
        ResultCache(tmp_path / "file", None)


# ── what makes two runs the same ─────────────────────────────────────────────────────────────────────────────


def test_only_what_a_result_depends_on_is_in_the_digest(tmp_path: Path):
    same = digest(a_run())
    assert digest(a_run(run={"folder": "elsewhere"}, broker={"url": "mqtt://x"}, guards={"strikes": 9})) == same
    assert digest(a_run(guards={"weight_cap": "off"})) != same
    assert digest(a_run(), tmp_path) == same  # generated data are nowhere
    for change in ({"run": {"seed": 1}}, {"algorithm": {"name": "fedprox"}}, {"aggregation": ({"name": "mean"},)}):
        assert digest(a_run(**change)) != same


def test_another_folder_of_data_is_another_run(tmp_path: Path):
    mnist = a_run(task={"data": "mnist", "partition": {"kind": "iid", "devices": 4}})
    assert digest(mnist, tmp_path / "a") != digest(mnist, tmp_path / "b")


def test_code_and_data_of_ones_own_belong_to_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    module, table = tmp_path / "homemade_data_for_kept.py", tmp_path / "table.npz"
    for name, file in ((f"{module.stem}:load", module), (f"npz:{table}", table)):
        user_code.allow(name)
        mine = a_run(task={"data": name, "partition": {"kind": "iid", "devices": 4}})
        file.write_text("one")
        before = digest(mine)
        assert digest(mine) == before
        file.write_text("another")
        assert digest(mine) != before


def test_a_table_that_was_moved_is_the_same_table(tmp_path: Path):
    def on(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return digest(a_run(task={"data": f"csv:{tmp_path / name}", "partition": {"kind": "iid", "devices": 4}}))

    assert on("one.csv", "a,label\n1,0\n") == on("two.csv", "a,label\n1,0\n") != on("three.csv", "a,label\n1,1\n")


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────


def words(folder: Path, algorithms: str, *more: str) -> list[str]:
    (folder / "run.toml").write_text(RUN)
    return ["compare", str(folder / "run.toml"), "--algorithms", algorithms, "--out", str(folder / "out"), *more]


def compare(
    folder: Path, algorithms: str, *more: str
) -> Any:  # click.testing.Result, which typer brings under a name of its own
    return CliRunner().invoke(app, words(folder, algorithms, *more))


def test_the_command_writes_everything_and_the_same_command_again_plays_nothing(tmp_path: Path):
    done = compare(tmp_path, "fedavg,ft=fedavg+finetune", "--seeds", "2")
    assert done.exit_code == 0, done.stderr
    assert "| ft " in done.stdout
    out = tmp_path / "out"
    results = json.loads((out / "results.json").read_text())
    assert [(r["label"], r["seed"]) for r in results["runs"]] == [("fedavg", 0), ("fedavg", 1), ("ft", 0), ("ft", 1)]
    assert all(len(r["rounds"]) == 3 for r in results["runs"])
    assert (out / "index.html").exists()
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
        "[1/4] fedavg, seed 0",
        "[2/4] ft, seed 0",
        "[3/4] fedavg, seed 1",
        "[4/4] ft, seed 1",
    ]

    again = compare(
        tmp_path, "ft=fedavg+finetune,plain=fedavg", "--seeds", "3", "--json"
    )  # other labels, one more seed
    assert again.exit_code == 0, again.stderr
    assert [line.split(", ")[-1].startswith("known") for line in again.stderr.splitlines()[:6]] == [True] * 4 + [
        False
    ] * 2
    told = {(r["label"], r["seed"]): r["done"]["model_sha256"] for r in json.loads(again.stdout)["runs"]}
    before = {(r["label"], r["seed"]): r["done"]["model_sha256"] for r in results["runs"]}
    assert told["plain", 1] == before["fedavg", 1]
    assert told["ft", 0] == before["ft", 0]


def test_other_things_in_the_folder_stay_as_open_as_they_were(tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").touch()
    for path, mode in ((out, 0o755), (out / "notes.txt", 0o644)):
        path.chmod(mode)
    assert compare(tmp_path, "fedavg").exit_code == 0
    assert [path.stat().st_mode & 0o777 for path in (out, out / "notes.txt")] == [0o755, 0o644]
    assert (out / "index.html").stat().st_mode == (out / "accuracy.png").stat().st_mode, "to be shown around"


def test_data_and_network_are_made_once_for_each_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    comparison._preparation.cache_clear()
    seeds, real = list[int](), jobs.split

    def split(run: RunFile, root: Path | None = None) -> Any:
        seeds.append(run.run.seed)
        return real(run, root)

    monkeypatch.setattr(jobs, "split", split)
    assert compare(tmp_path, "fedavg,fedprox,ft=fedavg+finetune", "--seeds", "2").exit_code == 0
    assert seeds == [0, 1]


def test_a_run_that_fails_costs_the_exit_code_and_no_other_run(tmp_path: Path):
    done = compare(tmp_path, "wild=fedavg:evaluation.on=devices:evaluation.least=100000,fedavg")
    assert isinstance(done.exception, RunError)
    assert str(done.exception) == "1 of 2 runs failed; the same command tries them again"
    assert done.exit_code == 1
    assert "| fedavg" in done.stdout
    assert "failed" in next(line for line in done.stdout.splitlines() if "wild" in line)
    assert done.stderr.startswith("[1/2] wild, seed 0: failed: ")
    assert "wild, seed 0" in (tmp_path / "out" / "index.html").read_text()


def test_a_run_that_diverges_is_a_result_and_is_not_played_again(tmp_path: Path):
    first, again = (compare(tmp_path, "wild=fedavg:lr=1e38:weight_decay=100,fedavg") for _ in range(2))
    assert (first.exit_code, again.exit_code) == (0, 0), first.output
    assert "diverged" in first.stdout.splitlines()[0]
    assert "wild, seed 0: diverged: device " in first.stdout
    assert ", diverged in round 1, played in " in first.stderr
    assert ", diverged in round 1, known from before" in again.stderr


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("--algorithms", "fedavg,gradma:memories=1"), "gradma:memories=1: a memory of 1 devices is smaller"),
        (("--set", "task.public=0.0", "--algorithms", "fedavg,feddf"), "feddf: "),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_played(tmp_path: Path, change: tuple[str, ...], line: str):
    done = compare(tmp_path, "fedavg", "--seeds", "3", *change)  # the last of an option counts
    assert isinstance(done.exception, ConfigError)
    assert done.exception.exit_code == 2
    assert line in str(done.exception)
    assert not done.stdout
    assert not done.stderr
    assert not (tmp_path / "out" / NAME).exists()


def test_ctrl_c_leaves_what_is_done(tmp_path: Path):
    edgefl = [sys.executable, "-m", "edgefl", *words(tmp_path, "fedavg,long=fedavg:run.rounds=100000")]
    with subprocess.Popen(edgefl, stderr=subprocess.PIPE, text=True) as playing:
        assert playing.stderr
        assert playing.stderr.readline().startswith("[1/2] fedavg, seed 0: best")
        playing.send_signal(signal.SIGINT)
        rest = playing.stderr.read()
        assert playing.wait(60) == 130
    assert rest.strip() == (
        f"edgefl: interrupted; finished runs are kept in {tmp_path / 'out'}, the same command goes on"
    )
    lines = (tmp_path / "out" / NAME).read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["fedavg"]
