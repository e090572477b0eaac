"""What a run leaves: records, curves, figures, the model, and a folder that gives it all back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefl
from edgefl.base.errors import ConfigError
from edgefl.base.events import Round


@pytest.fixture(scope="module")
def history() -> edgefl.History:
    def note(event: Any, run: edgefl.Running) -> None:
        if isinstance(event, Round):
            run.log(double=2 * event.round)

    fleet = edgefl.Fleet(profiles={"pi4": 4})
    return edgefl.simulate("softmax", "digits", fleet=fleet, rounds=3, callbacks=[note], name="mine")


def test_records_are_flat_and_have_what_was_noted(history: edgefl.History) -> None:
    records = history.records()
    assert [record["round"] for record in records] == [1, 2, 3]
    assert [record["double"] for record in records] == [2, 4, 6]
    assert [record["accuracy"] for record in records] == [one.scores["accuracy"] for one in history.rounds]
    assert all({"accuracy", "balanced_accuracy", "loss", "rmse", "mae", "r2"} <= record.keys() for record in records)
    assert all(value is None or isinstance(value, int | float | str) for record in records for value in record.values())


def test_what_stages_and_devices_count_is_in_records_frames_and_curves() -> None:
    history = edgefl.simulate("softmax", "digits", algorithm="gradma", fleet=4, rounds=2, backend="torch")
    (first, last), rounds = history.records(), history.rounds
    for record, told in zip((first, last), rounds, strict=True):
        counted = {name: value for name, value in record.items() if name.startswith("stages/memory/")}
        assert counted == {f"stages/memory/{name}": value for name, value in told.stages["memory"].items()}
        assert {name for name in record if name.startswith("updates/")} == {f"updates/{name}" for name in told.updates}
    assert "stages/memory/shrunk" in last
    assert history.curve("stages/memory/shrunk") == [one.stages["memory"]["shrunk"] for one in rounds]
    pytest.importorskip("pandas", reason="pip install pandas")
    assert history.to_frame()["stages/memory/shrunk"].tolist() == history.curve("stages/memory/shrunk")


def test_it_shows_itself_in_one_line_without_its_weights(history: edgefl.History) -> None:
    line = f"<History of '{history.name}', fedavg: {len(history.rounds)} rounds, accuracy {history.accuracy:.3f}>"
    assert repr(history) == line
    assert repr(edgefl.History({}, (), {})) == "<History of 'run', unknown: 0 rounds>"


def test_pandas_takes_them(history: edgefl.History) -> None:
    pytest.importorskip("pandas", reason="pip install pandas")
    assert history.to_frame()["accuracy"].tolist() == history.curve("accuracy")


def test_curves_lie_over_rounds_bytes_and_time(history: edgefl.History) -> None:
    sent = [record["bytes_up"] + record["bytes_down"] for record in history.records()]
    assert history.over("round") == [1, 2, 3]
    assert history.over("bytes") == np.cumsum(sent).tolist()
    assert history.done is not None
    assert history.over("virtual_seconds")[-1] == pytest.approx(history.done.virtual_seconds)
    assert history.over("cpu") == np.cumsum(history.curve("cpu_seconds")).tolist()
    assert history.over("cpu")[-1] > 0
    with pytest.raises(ConfigError, match="no curve 'accuracyy'; did you mean 'accuracy'"):
        history.curve("accuracyy")
    with pytest.raises(ConfigError, match="over = 'byte' is not known; did you mean 'bytes'"):
        history.over("byte")


def test_what_a_run_did_not_tell_of_is_no_axis(history: edgefl.History) -> None:
    rounds = [replace(fact, cpu_seconds=None, virtual_seconds=None) for fact in history.rounds]
    bare = edgefl.History(history.run, rounds, {})
    with pytest.raises(ConfigError, match="over = 'virtual_seconds': the run had no virtual clock"):
        bare.over("virtual_seconds")
    with pytest.raises(ConfigError, match="over = 'cpu': only simulations record CPU time"):
        bare.plot(over="cpu")


def test_a_figure_is_a_file(history: edgefl.History, tmp_path: Path) -> None:
    figure = history.plot(tmp_path / "loss.png", what="loss", over="bytes")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    (line,) = figure.axes[0].lines
    assert np.asarray(line.get_ydata()).tolist() == history.curve("loss")


def test_a_curve_goes_through_the_rounds_that_were_looked_at() -> None:
    history = edgefl.simulate("softmax", "digits", fleet=4, rounds=4, settings={"evaluation.every": 2})
    (line,) = history.plot().axes[0].lines
    assert np.asarray(line.get_xdata()).tolist() == [2, 4]
    assert np.asarray(line.get_ydata()).tolist() == [history.curve("accuracy")[1], history.accuracy]


def test_a_folder_gives_it_back(history: edgefl.History, tmp_path: Path) -> None:
    again = edgefl.load(history.save(tmp_path / "run"))
    assert again.records() == history.records()
    assert again.done == history.done
    assert (again.name, again.run) == ("mine", history.run)
    assert all(np.array_equal(again.weights[name], array) for name, array in history.weights.items())
    assert history.weights.keys() == again.weights.keys()


def test_a_folder_without_a_run_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no metrics.jsonl; give the folder of a run"):
        edgefl.load(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"metrics.jsonl, line 1: not a line"):
        edgefl.load(tmp_path)


def test_a_run_whose_model_nobody_kept_says_so(history: edgefl.History) -> None:
    bare = edgefl.History(history.run, history.facts, {})
    with pytest.raises(ConfigError, match="the model of 'mine' was not kept"):
        bare.state_dict()


def test_a_kept_run_is_there_while_it_runs_and_goes_on_after_an_interruption(tmp_path: Path) -> None:
    def interrupt(event: Any) -> None:
        if isinstance(event, Round) and event.round == 2:
            assert len(edgefl.load(tmp_path / "run").rounds) == 2
            raise KeyboardInterrupt

    given: Any = {"model": "softmax", "data": "digits", "fleet": 4, "rounds": 3, "folder": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        edgefl.simulate(**given, callbacks=[interrupt])
    history = edgefl.simulate(**given)
    assert [record["round"] for record in history.records()] == [1, 2, 3]
    assert edgefl.load(tmp_path / "run").done == history.done
    assert edgefl.load(tmp_path / "run").weights.keys() == history.weights.keys()


def test_a_stopped_run_is_kept_with_its_end(tmp_path: Path) -> None:
    stop = {"callbacks": [lambda event, run: run.stop("enough") if isinstance(event, Round) else None]}
    history = edgefl.simulate("softmax", "digits", fleet=4, folder=tmp_path / "run", **stop)
    again = edgefl.load(tmp_path / "run")
    assert again.done is not None
    assert (again.done.stopped, len(again.rounds)) == ("enough", 1)
    assert all(np.array_equal(again.weights[name], array) for name, array in history.weights.items())


def test_loggers_without_a_folder_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match="the loggers of `export` write into the run's folder; give folder too"):
        edgefl.simulate("softmax", settings={"export.tensorboard": {}})


def test_a_run_that_diverges_at_once_has_the_figures_of_its_first_model_and_a_frame_with_columns():
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    history = edgefl.simulate("softmax", (x, x.sum(axis=1)), algorithm="fedavg:lr=1e20", fleet=2, backend="torch")
    assert history.done is not None
    assert history.done.stopped == "diverged"
    assert history.records() == []
    assert history.loss == history.done.loss is not None
    frame = history.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 0
    assert {"round", "loss", "bounded"} <= set(frame.columns)
