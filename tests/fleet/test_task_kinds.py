"""Every kind of task gives the same model in the loop, in an emulated fleet and with real agents that have no torch."""

import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from fleets import Fleet, prepared

from coordinator.durable import checkpoint
from coordinator.shell.exporting import export_checkpoint
from device_agent.shell.inference import _numbered
from edgefl.base.events import Evaluated, Fact, Round
from edgefl.base.scores import Scores
from edgefl.delivery.deployed import Deployed, judge
from edgefl.job.config.local_compute import LocalCompute
from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import RunState, device_names
from edgefl.learn.tasks import fields
from edgefl.sim.emulator import emulate
from edgefl.sim.loop import simulate
from edgefl.system.disk import FolderDisk
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport
from tools.in_memory_broker import InMemoryBroker

EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples"
CHIEF = {
    "segmentation": ("mean_iou", 0.45),
    "multilabel": ("f1", 0.7),
    "next_token": ("perplexity", 2.0),
    "anomaly": ("auroc", 0.75),
    "two_inputs": ("kind.accuracy", 0.8),
}
SHORT = ("run.rounds=3", "rounds.deadline=120.0", 'evaluation.on="both"', "evaluation.least=2")


def devices_of(run: RunFile) -> Any:
    _, held = prepared(run)
    return dict(zip(device_names(len(held.devices)), held.devices, strict=True))


def over(connect: Any, run: RunFile, folder: Path) -> tuple[str, list[dict[str, Any]]]:
    told: list[dict[str, Any]] = []
    fleet = Fleet(run, folder, connect)
    for name in fleet.data:
        fleet.start(fleet.agent(name, compute=LocalCompute(backend="onnx", factories=(run.task.loss,))))
    run_state = fleet.coordinator(told.append, folder=folder / "coordinator").run()
    fleet.join()
    return run_state.sha256(), told


@pytest.mark.parametrize("name", CHIEF)
def test_an_example_learns_and_is_the_same_in_every_driver(name: str, mosquitto: Broker, tmp_path: Path) -> None:
    run = load(RunFile, EXAMPLES / f"{name}.toml", SHORT)
    facts: list[Fact] = []
    state = simulate(prepared(run)[0], devices_of(run), facts.append)
    _learnt(name, facts)
    assert emulate(prepared(run)[0], devices_of(run)).sha256() == state.sha256()
    sha256, told = over(lambda client: MqttTransport(mosquitto.address, client), run, tmp_path)
    assert sha256 == state.sha256()
    theirs, ours = [e["scores"] for e in told if e["event"] == "evaluated"], [e.scores for e in judged(facts)]
    assert theirs == ours
    _deploys(run, state, tmp_path)


def judged(facts: list[Fact]) -> list[Evaluated]:
    return [fact for fact in facts if isinstance(fact, Evaluated)]


def _learnt(name: str, facts: list[Fact]) -> None:
    """The example's chief figure is good enough, by the coordinator's test data and by what devices set aside."""
    figure, level = CHIEF[name]
    last = [fact for fact in facts if isinstance(fact, Round)][-1]
    *_, trained, by_devices = judged(facts)
    for told in (last, by_devices):
        value = told.scores[figure]
        if figure == "auroc" and told is by_devices:
            assert value is None, "no device has marked an anomaly"
        else:
            assert value is not None
            assert value < level if figure == "perplexity" else value > level
    assert trained.local_scores["loss"] is not None


def judged_by_task(scores: Scores) -> Scores:
    """The figures without the loss: a file does not know a loss of the run's own."""
    return {name: value for name, value in scores.items() if name != "loss"}


def _deploys(run: RunFile, state: RunState, folder: Path) -> None:
    """The model of the last checkpoint as a file: its inputs and outputs have names and shapes of their own."""
    job, test = prepared(run)[0], prepared(run)[1].test
    path = folder / checkpoint.save(FolderDisk(folder), job, checkpoint.Checkpoint(state, (), 0, 0))
    exported = export_checkpoint(path, folder / "model.onnx")
    assert exported.parity < 1e-4
    assert judged_by_task(exported.exported_scores) == pytest.approx(judged_by_task(exported.scores), rel=1e-3)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    form = job.form
    feeds = fields.unpack(form.inputs, test.x[:3]) if form.inputs else {"x": test.x[:3]}
    assert {one.name for one in session.get_inputs()} == set(feeds)
    given = session.run(None, feeds)
    assert [z.shape[1:] for z in given] == [field.shape for field in form.outputs]
    deployed = Deployed(folder / "model.onnx")
    verdict = judge(deployed, _numbered(deployed, test))
    assert state.evaluation is not None
    assert judged_by_task(verdict.scores) == pytest.approx(judged_by_task(state.evaluation.scores), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("segmentation", ('task.normalise="fleet"', 'task.augment=["flip","crop=1"]')),
        ("multilabel", ('task.normalise="fleet"', 'task.augment=["noise=0.1"]')),
        ("anomaly", ('task.augment=["noise=0.1"]',)),
    ],
)
def test_normalised_and_augmented_it_is_still_the_same_in_every_driver(
    name: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    run = load(RunFile, EXAMPLES / f"{name}.toml", (*SHORT, "run.rounds=2", *more))
    plain = load(RunFile, EXAMPLES / f"{name}.toml", (*SHORT, "run.rounds=2"))
    state = simulate(prepared(run)[0], devices_of(run))
    assert state.sha256() != simulate(prepared(plain)[0], devices_of(plain)).sha256()
    assert emulate(prepared(run)[0], devices_of(run)).sha256() == state.sha256()
    assert over(InMemoryBroker().client, run, tmp_path)[0] == state.sha256()
    _deploys(run, state, tmp_path)


WITHOUT_TORCH = """
import hashlib, pickle, sys
sys.modules["torch"] = None  # whoever imports it fails
from edgefl.learn import losses
from edgefl.learn.models.onnx.bundle import unpack
from edgefl.learn.models.onnx_backend import OnnxModel
graphs, weights, loss, form, x, y = pickle.load(sys.stdin.buffer)
model, loss, told = OnnxModel(unpack(graphs)), form.loss(losses.loss(loss)), []
for _ in range(8):
    logits, pullback = model.vjp(weights, x)
    value, gradient = loss(logits, y)
    weights = (weights - 0.05 * pullback(gradient)).astype("float32")
    told.append(value)
print(told[0], told[-1], hashlib.sha256(weights.tobytes()).hexdigest())
"""


@pytest.mark.parametrize("name", CHIEF)
def test_a_device_learns_it_where_torch_cannot_be_imported(name: str) -> None:
    run = load(RunFile, EXAMPLES / f"{name}.toml", SHORT)
    job, held = prepared(run)
    data = held.devices[0]
    given = pickle.dumps((job.graphs, job.start, run.task.loss, job.form, data.x[:32], data.y[:32]))
    places = os.pathsep.join([str(EXAMPLES), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        input=given,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": places},
    )
    assert done.returncode == 0, done.stderr.decode()
    first, last, sha256 = done.stdout.decode().split()
    assert float(last) < float(first)
    assert sha256 == _here(job, data.x[:32], data.y[:32])


def _here(job: Any, x: Any, y: Any) -> str:
    """The same eight steps in this process, which has torch."""
    weights = job.start
    for _ in range(8):
        logits, pullback = job.device_model.vjp(weights, x)
        weights = (weights - 0.05 * pullback(job.loss(logits, y)[1])).astype("float32")
    return hashlib.sha256(weights.tobytes()).hexdigest()
