"""Only code the device chose: what a manifest names is not imported because a message says so."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import in_json
from fleets import Fleet, builds_with, prepared, run_file

from coordinator.shell.threaded import Threaded
from device_agent.decide.vocabulary import Tasked
from device_agent.shell.order import Item
from device_agent.shell.samples import Samples
from device_agent.shell.workers import make_worker, open_task
from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.local_compute import LocalCompute
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.job.run.local_fleet import LocalFleet
from edgefl.job.run.work import pack_broadcast
from edgefl.learn.data.dataset import Dataset
from edgefl.system import user_code
from edgefl.wire.broker import Broker
from edgefl.wire.codecs import Float32
from edgefl.wire.messages import Manifest, Shape
from tools.in_memory_broker import InMemoryBroker

VICTIM = "device-00"
CHOSEN = "chosen_by_a_message:make"
SOFTMAX = run_file({"name": "fedavg"}, task={"model": "softmax"})
BROADCAST = pack_broadcast("job", 1, np.zeros(2, np.float32), {}, Float32())
FACTORY = """
import pathlib
from torch import nn
pathlib.Path({mark!r}).touch()
def make(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))
"""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once the module `chosen_by_a_message` was imported."""
    path = tmp_path / "imported"
    (tmp_path / "chosen_by_a_message.py").write_text(FACTORY.format(mark=str(path)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "chosen_by_a_message", raising=False)
    return path


def asked_to_build(network: str, compute: LocalCompute, folder: Path) -> list[str]:
    """A task without graphs whose manifest names this network; what the device with such a file says to it.

    The other devices know the network, so the run ends with or without that one.
    """
    run = run_file({"name": "fedavg"}, task={"model": "softmax", "backend": "torch"})
    job = prepared(run)[0]
    named = run.model_copy(update={"task": run.task.model_copy(update={"model": network})})
    told: list[dict[str, Any]] = []
    broker = InMemoryBroker()
    fleet = Fleet(run, folder / "fleet", broker.client)
    willing = LocalCompute(backend="torch", factories=("chosen_by_a_message:make",))
    for name in fleet.data:
        host = fleet.agent(name, compute=compute if name == VICTIM else willing)
        if name != VICTIM:  # these have the network at hand, whatever it is called
            builds_with(host.agent, lambda _manifest, _graphs: job.device_model)
        fleet.start(host)
    Threaded(named, broker.client("coordinator"), lambda: replace(job, run=named), tell=in_json(told.append)).run()
    fleet.join()
    assert fleet.exits[VICTIM] == (0, "job 'fleet' has finished")
    return [event["reason"] for event in told if event["event"] == "declined" and event["device"] == VICTIM]


@pytest.mark.parametrize("network", ["chosen_by_a_message:make", "softmax"])
def test_with_onnx_a_task_without_graphs_imports_nothing(network: str, mark: Path, tmp_path: Path) -> None:
    reasons = asked_to_build(network, LocalCompute(backend="onnx"), tmp_path)
    assert not mark.exists()
    assert reasons[0].startswith("model.no_graphs: ")
    assert "task.backend = 'onnx'" in reasons[0]


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_with_torch_a_factory_that_the_agent_file_does_not_list_is_not_imported(
    backend: Any, mark: Path, tmp_path: Path
) -> None:
    reasons = asked_to_build("chosen_by_a_message:make", LocalCompute(backend=backend), tmp_path)
    assert not mark.exists()
    assert reasons[0].startswith("model.factory: ")
    assert "compute.factories" in reasons[0]


def test_a_listed_factory_is_built_and_trained(mark: Path, tmp_path: Path) -> None:
    compute = LocalCompute(backend="torch", factories=("chosen_by_a_message:make",))
    user_code.allow(compute.factories)
    reasons = asked_to_build("chosen_by_a_message:make", compute, tmp_path)
    assert mark.exists()
    assert reasons == [], "it has the tensors of the job's network"


def test_a_network_that_nobody_knows_is_declined(tmp_path: Path) -> None:
    reasons = asked_to_build("softmaks", LocalCompute(backend="torch"), tmp_path)
    assert reasons[0].startswith("model.network: unknown model 'softmaks'")


NAMED = {"algorithm": {"name": CHOSEN}, "loss": CHOSEN, "codec": {"codec": CHOSEN}, "down": {"codec": CHOSEN}}


def looked_at(what: str, allowed: frozenset[str]) -> str:
    """What a device says to a manifest that names a place there: nothing, or why it does not go on."""
    user_code.allow(allowed)  # they stand in the agent file
    plain: dict[str, Any] = {"algorithm": {"name": "fedavg"}, "loss": "cross_entropy", "codec": "float32"}
    layout = Shape(names=("w",), shapes=((2,),))
    about = {"digest": "0" * 64, "size": 1, "layout": layout, "network": "softmax", "sample": (2,), "classes": 2}
    manifest = Manifest(job="job", run_id="run", round=1, seed=0, **about, **{**plain, what: NAMED[what]})
    data = Dataset(np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1]), 2)
    try:
        open_task(Tasked("job", "run", 1, "m"), Item(manifest, BROADCAST), None, 1 << 20, allowed)
        make_worker("pi", Samples(data), lambda *_: prepared(SOFTMAX)[0].model, manifest, None, allowed=allowed)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("what", NAMED)
def test_algorithms_losses_and_codecs_are_not_imported_because_a_message_names_them(what: str, mark: Path) -> None:
    reason = looked_at(what, frozenset({"chosen_by_a_message:other"}))
    assert not mark.exists()
    assert "add it to compute.factories in the agent file" in reason


@pytest.mark.parametrize("what", NAMED)
def test_they_are_if_the_agent_file_lists_them(what: str, mark: Path) -> None:
    """What stands at this place is a function, so as a loss it passes."""
    reason = looked_at(what, frozenset({CHOSEN}))
    assert mark.exists()
    assert reason == "" if what == "loss" else "is no dataclass" in reason


def test_a_fleet_may_run_all_that_its_run_file_names() -> None:
    task = {"model": "m:net", "backend": "torch", "loss": "edgefl.learn.losses:cross_entropy"}
    up = {"codec": "edgefl.wire.codec_int8:Int8"}
    user_code.allow([task["loss"], up["codec"], "edgefl.learn.algorithms.fedavg:FedAvg"])
    run = run_file({"name": "edgefl.learn.algorithms.fedavg:FedAvg"}, task=task, wire={"up": up})
    names = [
        "edgefl.learn.algorithms.fedavg:FedAvg",
        "edgefl.learn.losses:cross_entropy",
        "edgefl.wire.codec_int8:Int8",
    ]
    assert run.code() == ["m:net", *names]


@pytest.mark.parametrize(("model", "listed"), [("my_nets:make", ("my_nets:make",)), ("mlp", ())])
def test_a_fleet_of_ones_own_may_build_the_factory_of_its_run(
    model: str, listed: tuple[str, ...], tmp_path: Path, mosquitto: Broker
) -> None:
    task = {"model": model, "backend": "torch"}
    run: RunFile = run_file({"name": "fedavg"}, run={"folder": str(tmp_path)}, task=task)
    with LocalFleet.of(run, str(mosquitto.address), 1) as fleet:
        written = load(AgentFile, fleet.folder / "device-00.toml", ())
    assert written.compute.factories == listed
