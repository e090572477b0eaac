"""A run of Python objects that is interrupted goes on in its folder, if they are the same: to the same history."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefl
from edgefl.base.events import Resumed, Round
from edgefl.sim.run_folder import RunFolder, play_on

torch = pytest.importorskip("torch")

TIMES = {"seconds", "cpu_seconds", "at"}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"algorithm": "scaffold:batches=2", "fleet": edgefl.Fleet(devices=5, cohort=3)},
    "buffered": {"fleet": 5, "settings": {"rounds.mode": "buffered", "rounds.buffer": 2}},
    "emulated": {"fleet": edgefl.Fleet(profiles={"pi4": 3, "jetson-nano": 2}, dropout=0.2)},
}


class KilledError(BaseException):
    pass


def a_network(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))


def some_data(seed: int = 0) -> tuple[Any, Any]:
    x = np.random.default_rng(seed).normal(size=(120, 4)).astype(np.float32)
    return x, (x.sum(axis=1) > 0).astype(np.int64)


def simulated(kind: str, **more: Any) -> edgefl.History:
    given = {
        "model": a_network(),
        "data": some_data(),
        "rounds": 5,
        "backend": "torch",
        "progress": False,
        **KINDS[kind],
    }
    return edgefl.simulate(**{**given, **more})


def records(history: edgefl.History) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key not in TIMES} for one in history.records()]


class Norms:
    """A callback with a memory: of the rounds it heard of, and of the model."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.resumed = 0

    def __call__(self, event: Any, run: Any) -> None:
        self.resumed += isinstance(event, Resumed)
        if isinstance(event, Round):
            self.rounds.append(event.round)
            run.log(heard=len(self.rounds), norm=np.float64(sum(np.abs(one).sum() for one in run.weights().values())))


def dies_in_round_three(event: Any) -> None:
    if isinstance(event, Round) and event.round == 3:
        raise KilledError


@pytest.fixture(autouse=True)
def every_moment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgefl.sim.answer_journal.WORTH", float("inf"))
    for function in (RunFolder.__init__, play_on):
        monkeypatch.setitem(function.__kwdefaults__, "seconds", 0.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_with_the_same_history_notes_and_model(kind: str, tmp_path: Path) -> None:
    whole = simulated(kind, callbacks=[Norms()])
    with pytest.raises(KilledError):
        simulated(kind, folder=tmp_path, callbacks=[Norms(), dies_in_round_three])
    norms = Norms()
    history = simulated(kind, folder=tmp_path, callbacks=[norms])
    assert norms.resumed == 1
    assert norms.rounds == [1, 2, 3, 4, 5], "each report once, as if nothing had been"
    assert records(history) == records(whole)
    assert [type(fact) for fact in history.facts] == [type(fact) for fact in whole.facts]
    assert history.facts[0].first == whole.facts[0].first  # type: ignore[attr-defined]
    for name, tensor in whole.weights.items():
        np.testing.assert_array_equal(history.weights[name], tensor)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": some_data(1)}, "data"),
        ({"model": a_network(1)}, "Sequential"),
        ({"rounds": 6}, "run.rounds = 6 (was 5)"),
    ],
)
def test_another_model_or_other_data_are_another_run(change: Any, named: str, tmp_path: Path, caplog: Any) -> None:
    with pytest.raises(KilledError):
        simulated("plain", folder=tmp_path, callbacks=[dies_in_round_three])
    norms = Norms()
    history = simulated("plain", folder=tmp_path, callbacks=[norms], **change)
    (line,) = (record.getMessage() for record in caplog.records if "begun anew" in record.getMessage())
    assert named in line
    assert norms.resumed == 0
    assert records(history) == records(simulated("plain", callbacks=[Norms()], **change))


def test_what_no_file_can_hold_is_lost_and_said_once(tmp_path: Path, caplog: Any) -> None:
    def notes(event: Any, run: Any) -> None:
        if isinstance(event, Round):
            run.log(there=event.round, thing=object())

    with pytest.raises(KilledError):
        simulated("plain", folder=tmp_path, callbacks=[notes, dies_in_round_three])
    assert [record.getMessage() for record in caplog.records if "'thing'" in record.getMessage()] == [
        "what a callback notes as 'thing' is lost with an interruption: a object"
    ]
    history = simulated("plain", folder=tmp_path)
    assert [one.get("there") for one in history.records()][:2] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_comparison_goes_on_in_the_middle_of_a_run(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    given: dict[str, Any] = {"model": a_network(), "data": some_data(), "rounds": 5, "backend": "torch"}
    given |= {key: value for key, value in KINDS[kind].items() if key != "algorithm"}
    given |= {"algorithms": ["fedavg", "fedprox:mu=0.1"], "progress": False}
    whole = edgefl.compare(**given)
    rounds: list[int] = []
    write = RunFolder.note

    def note(self: RunFolder, fact: Any) -> None:
        write(self, fact)
        rounds.extend([fact.round] if isinstance(fact, Round) else [])
        if rounds[5:] == [1, 2, 3]:  # of the second run
            rounds.clear()
            raise KilledError

    monkeypatch.setattr(RunFolder, "note", note)
    with pytest.raises(KilledError):
        edgefl.compare(**given, folder=tmp_path)
    again = edgefl.compare(**given, folder=tmp_path)
    assert rounds == ([1, 2, 3, 4, 5] if kind == "emulated" else [3, 4, 5]), "which is played again without training"
    assert [records(one) for runs in again.histories.values() for one in runs] == [
        records(one) for runs in whole.histories.values() for one in runs
    ]
    assert not list((tmp_path / "unfinished").iterdir())


SCRIPT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_resuming_objects import RunFolder, simulated
from edgefl.base.events import Round

RunFolder.__init__.__kwdefaults__["seconds"] = 0.0

def dies(event):
    if isinstance(event, Round) and event.round == 3:
        os.kill(os.getpid(), signal.SIGKILL)

simulated(sys.argv[2], folder=sys.argv[3], callbacks=[dies])
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_is_killed_goes_on(kind: str, tmp_path: Path) -> None:
    here = Path(__file__).parent
    killed = subprocess.run([sys.executable, "-c", SCRIPT, here, kind, tmp_path / "run"], check=False, timeout=240)
    assert killed.returncode == -signal.SIGKILL
    norms = Norms()
    history = simulated(kind, folder=tmp_path / "run", callbacks=[norms])
    assert (norms.resumed, norms.rounds) == (1, [1, 2, 3, 4, 5])
    assert records(history)[-1]["accuracy"] == records(simulated(kind))[-1]["accuracy"]
    assert history.facts[-1].model_sha256 == simulated(kind).facts[-1].model_sha256  # type: ignore[attr-defined]
