"""Models of the devices' own: kept by each device, used on it without torch, and never sent."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from fleets import Fleet, prepared, run_file
from sklearn.datasets import load_digits
from test_processes import EDGEFL, WITHOUT_TORCH, start

from coordinator.shell import artifacts
from device_agent.durable.own_models import OwnModels
from device_agent.shell.own_inference import export, open_own
from edgefl.base.vector import Vector
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.learn.algorithms.private_parts import PrivateParts
from edgefl.learn.contract import Update, is_personal
from edgefl.system import store
from edgefl.system.disk import FolderDisk
from edgefl.wire.broker import Broker
from edgefl.wire.messages import Answer
from tools.in_memory_broker import InMemoryBroker, InMemoryClient

ALL = {"cohort": 4, "quorum": 4, "deadline": 120.0}
ALGORITHMS = {
    "fedper": {"name": "fedper", "batches": 3},
    "fedrep": {"name": "fedrep", "batches": 3, "head_epochs": 1},
    "fedbn": {"name": "fedbn", "batches": 3, "private": ["*.bias"]},
    "ditto": {"name": "ditto", "batches": 3},
    "pfedme": {"name": "pfedme", "batches": 3},
}
DEVICE = "device-00"


def personal(name: str, **more: Any) -> RunFile:
    return run_file(ALGORITHMS[name], **{"task": {"model": "mlp"}, "rounds": ALL, "run": {"rounds": 2}, **more})


def played(run: RunFile, folder: Path, connect: Callable[[str], Any] | None = None) -> Vector:
    """The shared model of a run with real agents, whose folders are in `folder`."""
    fleet = Fleet(run, folder, connect or InMemoryBroker().client)
    fleet.start_all()
    result = fleet.coordinator().run()
    fleet.join()
    return result.params


def agent_file(folder: Path, device: str = DEVICE) -> AgentFile:
    return parse(AgentFile, {"agent": {"id": device, "folder": str(folder)}}, "test", environment={})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_device_keeps_the_model_that_its_algorithm_says_is_its_own(name: str, tmp_path: Path) -> None:
    run = personal(name, evaluation={"on": "devices", "least": 1})
    job, held = prepared(run)
    assert is_personal(job.algorithm)
    shared, models = played(run, tmp_path), []
    for number, data in enumerate(held.devices):
        device, disk = f"device-0{number}", FolderDisk(tmp_path / f"device-0{number}")
        (run_key,) = OwnModels(disk).runs()
        state, _ = store.opened(disk.read(f"{run_key}.state") or b"", device)
        expected = job.algorithm.own(shared, state, job.model.layout)
        own, received = open_own(agent_file(tmp_path, device))
        assert own.kept.round == 3, "the round after the last, in which devices evaluate, brought the last model"
        assert (own.params == expected).all()
        assert (received.params == shared).all()
        np.testing.assert_allclose(own.logits(data.x), job.model.logits(expected, data.x), atol=1e-5)
        models.append(own.params)
    assert not (models[0] == models[1]).all()


def test_where_the_coordinator_judges_the_shared_part_is_that_of_the_last_round_that_counted(tmp_path: Path) -> None:
    run = personal("fedper")
    shared = played(run, tmp_path)
    own, received = open_own(agent_file(tmp_path))
    assert own.kept.round == 2
    assert (own.params != received.params).any()
    assert (received.params != shared).any(), "the model that round 2 made was not sent to anybody"


def test_a_device_that_trains_with_torch_uses_its_own_model_with_torch(tmp_path: Path) -> None:
    run = personal("ditto", task={"model": "mlp", "backend": "torch"})
    played(run, tmp_path)
    _, held = prepared(run)
    own, _ = open_own(agent_file(tmp_path))
    assert own.bundle is None
    x = held.devices[0].x[:9]
    export(own, tmp_path / "own.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "own.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["logits"], {"x": x})[0], own.logits(x), atol=1e-5)


def test_an_algorithm_without_models_of_the_devices_own_leaves_none(tmp_path: Path) -> None:
    played(run_file({"name": "scaffold", "batches": 1}, rounds=ALL), tmp_path)
    assert not OwnModels(FolderDisk(tmp_path / DEVICE)).runs()
    assert not list((tmp_path / DEVICE).glob("*.graphs"))


@pytest.mark.night
@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_of_the_private_part_leaves_the_device(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that devices publish is looked through for the numbers that stay, as bytes and as updates."""
    said, answers = list[bytes](), list[tuple[Answer, Update]]()
    broker, unpack = InMemoryBroker(), artifacts.unpack_answer

    class Tapped(InMemoryClient):
        def publish(self, topic: str, payload: Any, **how: Any) -> None:
            if not self.id.startswith("coordinator"):
                said.append(b"".join(bytes(part) for part in ([payload] if isinstance(payload, bytes) else payload)))
            super().publish(topic, payload, **how)

    def unpacked(answer: Answer, *given: Any, **how: Any) -> Update:
        answers.append((answer, unpack(answer, *given, **how)))
        return answers[-1][1]

    monkeypatch.setattr(artifacts, "unpack_answer", unpacked)
    run = personal(name, evaluation={"on": "devices", "least": 1})
    played(run, tmp_path, lambda name: Tapped(broker, name))
    job, held = prepared(run)
    parts = isinstance(job.algorithm, PrivateParts)  # else a whole model stays, beside the shared one
    layout, everything = job.model.layout, np.ones(job.model.layout.size, bool)
    mask = job.algorithm.mask(layout) if isinstance(job.algorithm, PrivateParts) else everything
    assert sum(map(len, said)) > 4 * layout.size, "the tap works"

    trained = [(answer, update) for answer, update in answers if answer.purpose == "train"]
    assert len(trained) == 2 * len(held.devices)
    for answer, update in trained:
        assert not update.extra, "no tensor travels beside the update"
        assert {tensor.name.partition("/")[0] for tensor in answer.tensors} <= {"delta", "received", "trained"}
        if parts:
            assert not update.delta[mask].any()
        assert update.delta[~mask].any() if parts else update.delta.any()
    for number in range(len(held.devices)):
        own, _ = open_own(agent_file(tmp_path, f"device-0{number}"))
        private, body = own.params[mask], own.params[~mask]
        fours = [private[at : at + 4] for at in range(0, len(private) - 4, 4)]
        fours = [four for four in fours if four.all()]  # zeros are everywhere
        assert len(fours) > (5 if name == "fedbn" else 200)
        for four in fours:
            assert not any(four.tobytes() in one for one in said)
        assert not parts or not any(body[:4].tobytes() in one for one in said), "nor is the rest of it sent"


# ── as an operator has it ────────────────────────────────────────────────────────────────────────────────────

RUN = """
[run]
name = "field"
rounds = 5
seed = 5
folder = "{folder}"
[task]
data = "none"
sample = [64]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
model = "mlp"
normalise = "fleet"
[algorithm]
name = "fedper"
lr = 0.1
epochs = 2
[rounds]
cohort = 3
start_with = 3
[broker]
url = "{broker}"
"""
AGENT = """
[agent]
id = "pi-{part}"
broker = "{broker}"
folder = "{folder}"
[data]
source = "npz:{data}"
"""


def said(*words: str | Path, code: int = 0) -> str:
    bare = [part.replace("['torch'] = None", "['torch'] = sys.modules['onnx'] = None") for part in WITHOUT_TORCH]
    done = subprocess.run([*bare, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.night
def test_a_device_without_torch_judges_asks_and_exports_its_own_model(mosquitto: Broker, tmp_path: Path) -> None:
    """Three processes that call the same thing by other names: no shared model can be as good for all of them."""
    digits = load_digits()
    x, y, rows = digits.data.astype(np.float32), digits.target, np.arange(len(digits.data))
    run, processes = tmp_path / "run.toml", []
    run.write_text(RUN.format(folder=tmp_path / "runs", broker=mosquitto.address))
    for part in range(3):
        data, file = tmp_path / f"pi-{part}.npz", tmp_path / f"agent-{part}.toml"
        mine = rows % 3 == part
        np.savez(data, x=x[mine], y=(y[mine] + 3 * part) % 10)
        file.write_text(AGENT.format(part=part, broker=mosquitto.address, folder=tmp_path / "devices", data=data))
        program = WITHOUT_TORCH if part == 0 else EDGEFL
        processes.append(start([*program, "agent", "start", str(file), "--once"], tmp_path / f"agent-{part}.log"))
    coordinator = start([*EDGEFL, "coordinator", "start", str(run), "--json"], tmp_path / "coordinator.log")
    try:
        assert coordinator.wait(180) == 0, (tmp_path / "coordinator.log").read_text()
        codes = [process.wait(60) for process in processes]
    finally:
        for process in (coordinator, *processes):
            process.kill()
    assert codes == [0, 0, 0], {path.name: path.read_text() for path in tmp_path.glob("*.log")}

    agent = tmp_path / "agent-0.toml"
    lines = [json.loads(line) for line in said("agent", "evaluate", agent, "--own", "--json").splitlines()]
    scores = {(line["model"], line["part"]): line["accuracy"] for line in lines}
    assert list(scores) == [(of, part) for of in ("own", "shared") for part in ("trained on", "held back")]
    assert scores["own", "held back"] > 0.8 > scores["shared", "held back"], "neither was trained on these"
    assert "own model, held back: accuracy" in said("agent", "evaluate", agent, "--run", "field")

    new, out = tmp_path / "new.npz", tmp_path / "said.npz"
    np.savez(new, x=x)
    said("agent", "predict", agent, new, "--own", "--out", out)
    predicted = np.load(out)
    assert (predicted["prediction"] == y).mean() > 0.8
    assert set(predicted["class"]) <= {str(label) for label in range(10)}

    assert "no model of its own of that run" in said("agent", "predict", agent, new, "--run", "other", code=2)
    assert "give MODEL and SAMPLES" in said("agent", "predict", agent, new, code=2)
    assert "pi-1" in said("agent", "evaluate", tmp_path / "agent-1.toml", "--own", "--json")

    file = tmp_path / "own.onnx"
    said("agent", "export", agent, file)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (z,) = session.run(["logits"], {"x": x})
    assert (z.argmax(axis=1) == predicted["prediction"]).all()
    assert session.get_modelmeta().custom_metadata_map["algorithm"] == "fedper"
    again = [json.loads(line) for line in said("agent", "evaluate", agent, file, "--json").splitlines()]
    assert [line["accuracy"] for line in again] == [scores["own", part] for part in ("trained on", "held back")]
    assert file.stat().st_mode & 0o777 == 0o600
