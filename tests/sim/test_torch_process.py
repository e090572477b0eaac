"""The network of a run, made by a child: what comes back is what would have been made here, and torch stays away."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from edgefl.base.errors import ConfigError, StoreError
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import network as networks
from edgefl.job.run.network import Network
from edgefl.learn.aggregation import Mean
from edgefl.learn.contract import Traits
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.models.state_names import StateNames
from edgefl.sim import torch_process
from edgefl.sim.torch_process import network_apart

TABLE = {
    "run": {"name": "apart", "rounds": 2, "seed": 3},
    "task": {"data": "synthetic", "model": "softmax", "partition": {"kind": "iid", "devices": 2}},
}


def test_a_network_survives_the_way_to_another_process() -> None:
    start, fixed = np.arange(3, dtype=np.float32), {"0.frozen": np.ones((2, 2), np.float32)}
    network = Network(start, b"graphs", StateNames({"a.weight": "b.weight"}, fixed))
    back = networks.unpack(networks.pack(network), "here")
    np.testing.assert_array_equal(back.start, start)
    assert (back.graphs, back.names.learnt) == (b"graphs", {"a.weight": "b.weight"})
    np.testing.assert_array_equal(back.names.fixed["0.frozen"], fixed["0.frozen"])
    with pytest.raises(StoreError, match="here: damaged"):
        networks.unpack(networks.pack(network)[:-1] + b"\1", "here")


def test_a_coordinator_with_a_childs_network_has_the_same_job_and_never_loads_torch() -> None:
    run = RunFile.model_validate(TABLE)
    code = f"""
import sys
from edgefl.learn.aggregation import Mean
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.sim.torch_process import network_apart
run = RunFile.model_validate({TABLE!r})
job = jobs.prepare(run, None, network_apart(run))[0]
print(jobs.begin(job).sha256(), jobs.begin(job).evaluation.loss, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = jobs.prepare(run)[0]
    assert isinstance(here.model, OnnxModel)
    assert done.stdout.split() == [jobs.begin(here).sha256(), repr(jobs.begin(here).evaluation.loss), "False"]


def test_what_the_child_complains_of_is_the_operators_one_line_whatever_lies_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for ours in ("edgefl", "coordinator"):
        (tmp_path / ours).mkdir()
    (tmp_path / "json.py").write_text("raise RuntimeError('this is the json of the user')")
    run = RunFile.model_validate({**TABLE, "task": {**TABLE["task"], "data": "npz:nowhere.npz"}})
    with pytest.raises(ConfigError, match=r"^data set 'npz:nowhere.npz': .* is not a file"):
        network_apart(run)


def test_a_child_that_crashed_leaves_its_traceback_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch_process, "python", lambda *_: [sys.executable, "-c", "int('seven')"])
    with pytest.raises(ConfigError, match=r"^ValueError: .* 'seven'$"):
        network_apart(RunFile.model_validate(TABLE))
    assert "Traceback" in caplog.text


@dataclass(frozen=True)
class Looking:
    """A stage that looks inside the network, which only torch can."""

    name: str = "looking"
    traits: ClassVar[Traits] = Traits(needs_torch=True)


@pytest.mark.parametrize(
    ("backend", "stages", "asked"),
    [("onnx", (Mean(),), False), ("onnx", (Mean(), Looking()), True), ("torch", (Mean(),), True)],
)
def test_torch_is_wanted_by_a_stage_that_says_so_or_where_devices_bring_it(
    backend: str, stages: tuple[Any, ...], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFile, "make_stages", lambda _: stages)
    run = RunFile.model_validate({**TABLE, "task": {**TABLE["task"], "backend": backend}})
    assert networks.wants_torch(run) is asked


def test_a_stage_that_needs_torch_finds_it_at_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = jobs.prepare(run := RunFile.model_validate(TABLE))[0]
    monkeypatch.setattr(RunFile, "make_stages", lambda _: (Mean(), Looking()))
    looking = jobs.prepare(run, None, networks.of(plain.start, plain.graphs, plain.model))[0]
    assert [type(job.model).__name__ for job in (plain, looking)] == ["OnnxModel", "TorchModel"]
    assert isinstance(looking.device_model, OnnxModel)
