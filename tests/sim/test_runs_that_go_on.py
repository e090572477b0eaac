"""Whatever moment a simulation is killed at, and however often: model, records and history are those of one that was
never stopped. Of every kind of run: rounds that wait for all, rounds that wait for nobody, and the virtual clock."""

import json
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefl.base.events import Fact, Resumed, Round, as_json, from_json
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.lab.comparison.preparing import Preparation
from edgefl.sim.answer_journal import ANSWERS, AnswerJournal
from edgefl.sim.drivers import play
from edgefl.sim.engines import InProcessEngine
from edgefl.sim.run_folder import RunFolder, play_kept

TASK = {"data": "synthetic", "model": "softmax", "backend": "torch", "partition": {"kind": "iid", "devices": 6}}
HARD = {"profiles": {"pi4": 4, "jetson-nano": 2}, "dropout": 0.2, "availability": {"on": 400, "off": 90}}
NOBODY = {"mode": "buffered", "concurrency": 4, "buffer": 2, "staleness": 3}
TOP = {"up": {"codec": "topk", "share": 0.1}}  # devices keep what they did not send
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"algorithm": {"name": "scaffold", "batches": 2}, "rounds": {"cohort": 3}},
    "judged by devices": {"algorithm": {"name": "fedavg"}, "evaluation": {"on": "devices", "least": 1}},
    "buffered": {"algorithm": {"name": "fedavgm", "batches": 2}, "rounds": NOBODY, "wire": TOP},
    "buffered, by loss": {"algorithm": {"name": "fedavg"}, "rounds": NOBODY, "selection": {"name": "power_of_choice"}},
    "emulated": {"algorithm": {"name": "scaffold", "batches": 2}, "fleet": HARD, "rounds": {"cohort": 4, "quorum": 2}},
    "emulated, buffered": {"algorithm": {"name": "fedavg"}, "fleet": HARD, "rounds": NOBODY},
}
OURS_ALONE = ("seconds", "cpu_seconds", "at")  # what reads this machine's clock; the virtual one must agree


def a_run(kind: str) -> RunFile:
    return parse(RunFile, {"run": {"name": "tiny", "rounds": 5, "seed": 4}, "task": TASK, **KINDS[kind]}, "run.toml")


class KilledError(BaseException):
    pass


@pytest.fixture(autouse=True)
def every_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast it was trained."""
    monkeypatch.setattr("edgefl.sim.answer_journal.WORTH", float("inf"))


@pytest.fixture(scope="module")
def prepared() -> Preparation:
    """Data and network once for all runs that share them."""
    return Preparation()


@pytest.fixture(scope="module")
def undisturbed(prepared: Preparation) -> Any:
    """Every kind of run as it is when nothing happens to it: its model, and all that it tells."""
    known: dict[str, tuple[str, list[Fact]]] = {}

    def of(kind: str) -> tuple[str, list[Fact]]:
        if kind not in known:
            facts: list[Fact] = []
            known[kind] = play(a_run(kind), None, facts.append, prepare=prepared).sha256(), facts
        return known[kind]

    return of


def story(facts: list[Fact]) -> list[dict[str, Any]]:
    """What a comparison and a history consist of, without the clock of this machine."""
    told = (as_json(from_json(json.loads(json.dumps(as_json(fact))))) for fact in facts if is_told(fact))
    return [{key: value for key, value in one.items() if key not in OURS_ALONE} for one in told]


def is_told(fact: Fact) -> bool:
    return type(fact).__name__ in {"Evaluating", "Described", "Round", "Evaluated", "Done"}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(lives=st.lists(st.integers(1, 60), min_size=1, max_size=3), seconds=st.sampled_from([0.0, 0.02, 1e9]))
def test_whenever_it_is_killed_the_run_ends_as_if_nothing_had_been(
    kind: str, lives: list[int], seconds: float, prepared: Preparation, undisturbed: Any
):
    run, (model, facts) = a_run(kind), undisturbed(kind)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnswerJournal, "close", lambda _: None)  # who is killed writes nothing more
        for life in lives:
            last = count(1)

            def tell(_: Fact, last: Any = last, life: int = life) -> None:
                if next(last) == life:
                    raise KilledError

            try:
                play_kept(run, None, tell, folder=Path(folder), seconds=seconds, prepare=prepared)
            except KilledError:
                continue
            break  # it has ended before
        else:
            told: list[Fact] = []
            end = play_kept(run, None, told.append, folder=Path(folder), prepare=prepared, again=told.append)
            assert end.sha256() == model
            assert story(told) == story(facts)
        lines = [from_json(json.loads(line)) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        assert story(lines) == [one for one in story(facts) if one["event"] != "evaluating"]


@pytest.mark.parametrize("kind", ["emulated", "emulated, buffered"])
def test_an_emulated_device_trains_nothing_twice(kind: str, prepared: Preparation, tmp_path: Path, monkeypatch):
    trained: list[tuple[str, int]] = []
    train = InProcessEngine.train

    def counted(self, model_ref, orders):
        trained.extend((order.device, order.task.round) for order in orders)
        return train(self, model_ref, orders)

    monkeypatch.setattr(InProcessEngine, "train", counted)
    play(a_run(kind), None, lambda _: None, prepare=prepared)
    whole = trained.copy()
    trained.clear()

    def until_the_third(fact: Fact) -> None:
        if isinstance(fact, Round) and fact.round == 3:
            raise KilledError

    with pytest.raises(KilledError):
        play_kept(a_run(kind), None, until_the_third, folder=tmp_path, seconds=0, prepare=prepared)
    before = len(trained)
    told: list[Fact] = []
    play_kept(a_run(kind), None, told.append, folder=tmp_path, prepare=prepared)
    assert before > 0
    assert sorted(trained) == sorted(whole)
    assert isinstance(told[0], Resumed), "the terminal has shown what was before"
    assert told[0].round == 4
    assert not (tmp_path / ANSWERS).exists(), "nobody needs it any more"


def test_answers_that_are_damaged_or_do_not_fit_on_the_disk_are_trained_again(
    prepared: Preparation, undisturbed: Any, tmp_path: Path, monkeypatch
):
    def until_the_third(fact: Fact) -> None:
        if isinstance(fact, Round) and fact.round == 3:
            raise KilledError

    for spoil in (lambda raw: raw[:-9], lambda raw: b"torn", lambda raw: raw[:5000] + b"x" + raw[5001:]):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with pytest.raises(KilledError):
            play_kept(a_run("emulated"), None, until_the_third, folder=folder, seconds=0, prepare=prepared)
        (folder / ANSWERS).write_bytes(spoil((folder / ANSWERS).read_bytes()))
        end = play_kept(a_run("emulated"), None, lambda _: None, folder=folder, prepare=prepared)
        assert end.sha256() == undisturbed("emulated")[0]
    monkeypatch.setattr("edgefl.sim.answer_journal.MOST", 1)
    with pytest.raises(KilledError):
        play_kept(a_run("emulated"), None, until_the_third, folder=tmp_path / "full", seconds=0, prepare=prepared)
    end = play_kept(a_run("emulated"), None, lambda _: None, folder=tmp_path / "full", prepare=prepared)
    assert end.sha256() == undisturbed("emulated")[0]


def test_a_run_that_has_changed_begins_anew_and_one_line_says_why(prepared: Preparation, tmp_path: Path, caplog):
    def at_once(fact: Fact) -> None:
        if isinstance(fact, Round):
            raise KilledError

    run = a_run("plain")
    other = run.model_copy(update={"algorithm": {**run.algorithm, "lr": 0.25}})
    with pytest.raises(KilledError):
        play_kept(run, None, at_once, folder=tmp_path, seconds=0, prepare=prepared)
    rounds: list[Fact] = []
    play_kept(other, None, rounds.append, folder=tmp_path, prepare=prepared)
    assert [fact.round for fact in rounds if isinstance(fact, Round)] == [1, 2, 3, 4, 5]
    (line,) = (record.getMessage() for record in caplog.records if record.name.endswith("run_folder"))
    assert "algorithm.lr = 0.25 (was " in line
    caplog.clear()
    play_kept(run, None, lambda _: None, folder=tmp_path, prepare=prepared)  # of a run that has ended nothing is lost
    assert not caplog.records


KILLED = """
import os, signal, sys
from pathlib import Path
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.sim import answer_journal
from edgefl.sim.run_folder import play_kept

answer_journal.WORTH = float("inf")

def tell(fact):
    if type(fact).__name__ == "Answered" and fact.round == 3:
        os.kill(os.getpid(), signal.SIGKILL)

play_kept(load(RunFile, Path(sys.argv[1])), None, tell, folder=Path(sys.argv[2]), seconds=0)
"""


@pytest.mark.parametrize("kind", ["buffered", "emulated", "emulated, buffered"])
def test_a_process_that_is_killed_over_its_answers_goes_on(kind: str, tmp_path: Path, undisturbed: Any, prepared: Any):
    from edgefl.job.config.toml_text import table

    file = tmp_path / "run.toml"
    tables = {"run": {"name": "tiny", "rounds": 5, "seed": 4}, "task": TASK, **KINDS[kind]}
    file.write_text("\n".join(table(name, one) for name, one in tables.items()))
    killed = subprocess.run([sys.executable, "-c", KILLED, file, tmp_path / "kept"], check=False, timeout=200)
    assert killed.returncode == -signal.SIGKILL
    told: list[Fact] = []
    end = play_kept(a_run(kind), None, told.append, folder=tmp_path / "kept", prepare=prepared, again=told.append)
    model, facts = undisturbed(kind)
    assert any(isinstance(fact, Resumed) for fact in told)
    assert end.sha256() == model
    assert story(told) == story(facts)


def test_a_run_that_is_killed_over_its_last_checkpoint_plays_the_last_round_again(
    prepared: Preparation, undisturbed: Any, tmp_path: Path, monkeypatch
):
    def killed(*_: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        write = RunFolder._write
        patch.setattr(RunFolder, "_write", lambda kept, about: killed() if about["done"] else write(kept, about))
        with pytest.raises(KilledError):
            play_kept(a_run("plain"), None, lambda _: None, folder=tmp_path, seconds=0, prepare=prepared)
    rounds: list[Fact] = []
    end = play_kept(a_run("plain"), None, rounds.append, folder=tmp_path, prepare=prepared)
    assert [fact.round for fact in rounds if isinstance(fact, Round)] == [5]
    assert end.sha256() == undisturbed("plain")[0]
