"""A run begins with the model of another, the same in every driver."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fleets import Fleet, loop, prepared, run_file
from safetensors.numpy import load_file, save_file

from coordinator.durable import checkpoint
from coordinator.durable.checkpoint import Checkpoint
from coordinator.shell.threaded import Threaded
from coordinator.start import _export
from edgefl.base.errors import ConfigError, Interrupted
from edgefl.base.events import Fact, Inherited, timeless
from edgefl.delivery.deployed import Deployed
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.first_model import locate
from edgefl.job.run.job import RunState, device_names
from edgefl.sim.emulator import emulate
from edgefl.sim.loop import simulate
from edgefl.system import store
from edgefl.system.disk import FolderDisk
from tools.in_memory_broker import InMemoryBroker


def the_run(folder: Path, name: str = "second", **run: Any) -> RunFile:
    table = {"name": name, "rounds": 2, "folder": str(folder), **run}
    return run_file({"name": "scaffold"}, run=table, rounds={"cohort": 4, "quorum": 4})


@pytest.fixture
def first(tmp_path: Path) -> RunState:
    """A run that has ended, as its folder `runs/first` tells."""
    run = the_run(tmp_path / "runs", "first")
    run_state = loop(run)
    checkpoint.save(FolderDisk(tmp_path / "runs" / "first"), prepared(run)[0], Checkpoint(run_state, (), 0, 0))
    return run_state


def devices_of(run: RunFile) -> dict[str, Any]:
    _, held = prepared(run)
    return dict(zip(device_names(len(held.devices)), held.devices, strict=True))


def test_loop_emulator_and_fleet_begin_with_the_same_model_and_tell_so(first: RunState, tmp_path: Path) -> None:
    run = the_run(tmp_path / "runs", **{"from": "first"})
    told: dict[str, list[Fact]] = {"loop": [], "emulator": [], "fleet": []}
    states = [simulate(prepared(run)[0], devices_of(run), told["loop"].append)]
    states.append(emulate(prepared(run)[0], devices_of(run), told["emulator"].append))
    broker = InMemoryBroker()
    fleet = Fleet(run, tmp_path / "devices", broker.client)
    fleet.start_all()
    coordinator = Threaded(
        run, broker.client("c"), lambda: prepared(run)[0], folder=tmp_path / "runs/second", tell=told["fleet"].append
    )
    states.append(coordinator.run())
    fleet.join()
    assert len({state.sha256() for state in states}) == 1
    assert states[0].sha256() != loop(the_run(tmp_path)).sha256(), "it began with a new model"
    expected = {"event": "inherited", "source": "first", "model_sha256": first.sha256(), "run": "first", "rounds": 2}
    for facts in told.values():
        assert [timeless(fact) for fact in facts if isinstance(fact, Inherited)] == [expected]
    path = tmp_path / "model.onnx"
    _export(path, prepared(run)[0], states[2])
    card = Deployed(path, memory=1 << 62).card
    assert (card["from"], card["from_sha256"]) == ("first", first.sha256())


def test_a_run_that_was_begun_needs_the_other_one_no_more(first: RunState, tmp_path: Path) -> None:
    run, broker = the_run(tmp_path / "runs", **{"from": "first"}), InMemoryBroker()
    expected = loop(run).sha256()
    fleet = Fleet(run, tmp_path / "devices", broker.client)
    fleet.start_all()

    def coordinate(number: int) -> Threaded:
        def tell(fact: Fact) -> None:
            if number == 1 and type(fact).__name__ == "Asked":
                coordinator.stop()

        folder = tmp_path / "runs" / "second"
        coordinator = Threaded(run, broker.client(f"c{number}"), lambda: prepared(run)[0], folder=folder, tell=tell)
        return coordinator

    with pytest.raises(Interrupted):
        coordinate(1).run()
    for path in (tmp_path / "runs" / "first").iterdir():
        path.unlink()
    resumed = coordinate(2).run()
    assert resumed.sha256() == expected
    assert resumed.origin is not None
    assert resumed.origin.sha256 == first.sha256()
    fleet.join()


def test_a_file_of_tensors_and_a_state_dict_of_torch_do_as_well(first: RunState, tmp_path: Path) -> None:
    run = the_run(tmp_path)
    tensors = prepared(run)[0].model.tensors(first.params)
    save_file({name: np.ascontiguousarray(one) for name, one in tensors.items()}, tmp_path / "plain.safetensors")
    torch.save({name: torch.tensor(one) for name, one in tensors.items()}, tmp_path / "saved.pt")
    newest = tmp_path / "runs" / "first" / "checkpoint-000002.safetensors"
    assert set(load_file(newest)) == set(tensors)
    for path in (tmp_path / "plain.safetensors", tmp_path / "saved.pt", newest, newest.parent):
        state = jobs.begin(prepared(the_run(tmp_path, **{"from": str(path)}))[0])
        assert state.sha256() == first.sha256()
        assert (state.round, state.previous, state.states) == (0, None, {})


def refused(run: RunFile) -> str:
    with pytest.raises(ConfigError) as error:
        jobs.begin(prepared(run)[0])
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_does_not_fit_is_named_with_both_shapes(tmp_path: Path) -> None:
    run = the_run(tmp_path)
    good = {name: np.array(one) for name, one in prepared(run)[0].model.tensors(prepared(run)[0].start).items()}
    name, tensor = next(iter(good.items()))
    path = tmp_path / "bad.safetensors"
    run = the_run(tmp_path, **{"from": str(path)})

    def with_tensors(**tensors: Any) -> str:
        save_file(tensors, path)
        return refused(run)

    rest = {key: value for key, value in good.items() if key != name}
    shape, wrong = list(tensor.shape), np.zeros((7, *tensor.shape), np.float32)
    here = f"run.from = '{path}': {path}: "
    assert with_tensors(**rest) == f"{here}lacks '{name}' of shape {shape}, which task.model = 'softmax' has"
    assert with_tensors(**{**good, name: wrong}) == (
        f"{here}'{name}' has shape {list(wrong.shape)} there, and {shape} in task.model = 'softmax'"
    )
    assert "holds a tensor 'more', which task.model = 'softmax' does not have" in with_tensors(**good, more=tensor)
    assert "not finite" in with_tensors(**{**good, name: tensor * np.nan})
    assert "is of type int64" in with_tensors(**{**good, name: tensor.astype(np.int64)})
    path.write_bytes(b"nonsense")
    assert "cannot be read as safetensors" in refused(run)


def test_another_run_of_other_classes_is_refused(first: RunState, tmp_path: Path) -> None:
    run = the_run(tmp_path / "runs", **{"from": "first"})
    job, _ = prepared(run)
    disk, name = FolderDisk(tmp_path / "runs" / "first"), "checkpoint-000002.safetensors"
    tensors, about = checkpoint.read(disk, name)
    disk.write(name, store.sealed(tensors, {**about, "classes": 3}))
    assert f"tells 3 classes apart, this run has {job.classes}" in refused(run)
    names = [f"c{i}" for i in range(job.classes)]
    disk.write(name, store.sealed(tensors, {**about, "class_names": names}))
    with pytest.raises(ConfigError, match="class 1 is 'c1' there, and 'x' in this run"):
        jobs.begin(replace(job, class_names=("c0", "x", *names[2:])))


@pytest.mark.parametrize(
    ("source", "words"),
    [("nobody", "there is no run of that name in"), ("empty", "holds no checkpoint"), ("second", "is this run itself")],
)
def test_a_source_that_is_not_there_is_said_so(source: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=words):
        locate(the_run(tmp_path, **{"from": source}))


def test_the_key_is_called_from_wherever_it_is_written_down(tmp_path: Path) -> None:
    run = the_run(tmp_path, **{"from": "first"})
    table = json.loads(run.model_dump_json())
    assert table["run"]["from"] == "first"
    assert "from_" not in table["run"]
    assert RunFile.model_validate(table) == run
    with pytest.raises(ConfigError, match="did you mean 'from'"):
        the_run(tmp_path, form="first")
