"""A run that its devices judge: whoever lies, declines, has no data or is gone holds no model back."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import in_json
from fleets import Fleet, loop, prepared, run_file
from sklearn.datasets import load_digits
from test_processes import EDGEFL, WITHOUT_TORCH, start

from coordinator.durable import checkpoint
from coordinator.durable.existing_run import extend, settle
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import ConfigError, Interrupted
from edgefl.base.events import Done, Evaluated, Fact, Round, timeless
from edgefl.base.scores import beside
from edgefl.delivery.deployed import Deployed
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.work import Worker, WorkResult
from edgefl.learn.contract import Task
from edgefl.sim.loop import simulate
from edgefl.system.disk import FolderDisk
from edgefl.watch.metrics_file import MetricsFile, reports
from edgefl.wire.broker import Broker
from edgefl.wire.messages import TO_COORDINATOR, Answer, frame, read
from tools.in_memory_broker import InMemoryBroker

JUDGED = {"on": "devices", "least": 1}
ALL = {"cohort": 4, "quorum": 3, "deadline": 120.0}
DEVICE = "device-00"


def judged(**more: Any) -> RunFile:
    algorithm = {"name": more.pop("algorithm", "scaffold"), "batches": 2}
    return run_file(algorithm, **{"run": {"rounds": 3}, "rounds": ALL, "evaluation": JUDGED, **more})


def told_by_the_loop(run: RunFile) -> list[dict[str, Any]]:
    """What devices see of each model of an undisturbed run."""
    told: list[dict[str, Any]] = []
    job, held = prepared(run)
    devices = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
    simulate(job, devices, lambda fact: told.append(beside(timeless(fact))) if isinstance(fact, Evaluated) else None)
    return told


def played(run: RunFile, folder: Path, work: Callable[..., WorkResult] | None = None) -> list[dict[str, Any]]:
    """What a coordinator tells of a fleet in which one device does another work."""
    told: list[dict[str, Any]] = []
    fleet = Fleet(run, folder, InMemoryBroker().client)
    for name in fleet.data:
        host = fleet.agent(name)
        if work and name == DEVICE:
            host.agent.train = replace(host.agent.train, work=work)  # type: ignore[type-var]  # an InProcess
        fleet.start(host)
    fleet.coordinator(told.append).run()
    fleet.join()
    return told


def of(told: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [fact for fact in told if fact["event"] == event]


# ── one device among others ──────────────────────────────────────────────────────────────────────────────────


def lying(worker: Worker, task: Task, *rest: Any) -> WorkResult:
    done = Worker.work(worker, task, *rest)
    answer, opened = read(TO_COORDINATOR, done.frame, limit=1 << 24)
    assert isinstance(answer, Answer)
    parts, begin = [], 0
    for tensor in answer.tensors:
        part = bytes(opened.body[begin : begin + tensor.bytes])
        parts.append(b"\xff" * len(part) if tensor.name == "received/table" else part)
        begin += tensor.bytes
    return replace(done, frame=frame(answer, tuple(parts)))


def test_counts_that_cannot_be_are_refused_and_the_others_judge(tmp_path: Path) -> None:
    told = played(judged(), tmp_path, lying)
    refused = [fact for fact in of(told, "answered") if fact["verdict"] == "refused"]
    assert {fact["device"] for fact in refused} == {DEVICE}
    assert all("number of samples is negative" in fact["reason"] for fact in refused)
    assert [fact["devices"] for fact in of(told, "evaluated")] == [3, 3, 3, 3]
    assert of(told, "done")[0]["rounds"] == 3


def unwilling(worker: Worker, task: Task, *rest: Any) -> WorkResult:
    if task.purpose == "evaluate":
        raise ConfigError("not today")
    return Worker.work(worker, task, *rest)


def test_a_device_that_declines_to_evaluate_is_not_waited_for(tmp_path: Path) -> None:
    told = played(judged(), tmp_path, unwilling)
    assert [(fact["device"], fact["round"]) for fact in of(told, "declined")] == [(DEVICE, 4)]
    assert [fact["devices"] for fact in of(told, "evaluated")] == [4, 4, 4, 3]


def ignorant(worker: Worker, task: Task, *rest: Any) -> WorkResult:
    return Worker.work(worker, replace(task, purpose="train", evaluates=None), *rest)


def test_a_device_that_knows_nothing_of_evaluation_trains_and_counts_for_nothing_else(tmp_path: Path) -> None:
    run = judged(algorithm="fedavg")
    told = played(run, tmp_path, ignorant)
    assert [(fact["devices"], fact["silent"]) for fact in of(told, "evaluated")] == [(3, 1)] * 4
    assert not of(told, "refused")
    assert of(told, "done")[0]["model_sha256"] == loop(run).sha256()


def test_answers_that_are_sealed_say_the_same(tmp_path: Path) -> None:
    told = played(judged(wire={"seal": True}), tmp_path)
    seen = [
        {key: value for key, value in fact.items() if key not in ("at", "bytes_up")} for fact in of(told, "evaluated")
    ]
    expected = [{key: value for key, value in fact.items() if key != "bytes_up"} for fact in told_by_the_loop(judged())]
    assert json.loads(json.dumps(seen)) == json.loads(json.dumps(expected))


# ── the last model ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_that_nobody_is_there_to_evaluate_is_not_held_back(tmp_path: Path) -> None:
    run = judged(rounds={**ALL, "deadline": 8.0})
    told: list[dict[str, Any]] = []
    fleet = Fleet(run, tmp_path, InMemoryBroker().client)
    fleet.start_all()

    def tell(fact: dict[str, Any]) -> None:
        told.append(fact)
        if fact["event"] == "round" and fact["round"] == 3:
            fleet.stop()

    run_state = fleet.coordinator(tell).run()
    fleet.join()
    assert run_state.sha256() == loop(run).sha256()
    last, done = of(told, "evaluated")[-1], of(told, "done")[0]
    assert (last["round"], done["rounds"]) == (3, 3)
    assert (done["accuracy"], last["accuracy"]) == (None, None) or last["devices"] > 0  # one may have been faster
    assert done["best_accuracy"] is not None


def coordinate(run: RunFile, folder: Path, broker: InMemoryBroker, number: int, stop: str = "") -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []

    def tell(fact: dict[str, Any]) -> None:
        told.append(fact)
        if fact["event"] == stop and fact.get("purpose", "evaluate") == "evaluate":
            coordinator.stop()

    client = broker.client(f"coordinator-{number}")
    metrics, watch = MetricsFile(FolderDisk(folder)), in_json(tell)

    def hear(fact: Fact) -> None:
        metrics(fact)
        watch(fact)

    coordinator = Threaded(run, client, lambda: prepared(run)[0], folder=folder, tell=hear)
    coordinator.run()
    return told


@pytest.mark.parametrize("stop", ["asked", "answered"])
def test_a_coordinator_that_is_stopped_while_devices_evaluate_goes_on_there(stop: str, tmp_path: Path) -> None:
    run, broker, folder = (
        judged(run={"rounds": 1}, evaluation={**JUDGED, "per_device": True}),
        InMemoryBroker(),
        tmp_path / "run",
    )
    fleet = Fleet(run, tmp_path, broker.client)
    fleet.start_all()
    settle(folder, run)
    with pytest.raises(Interrupted):
        coordinate(run, folder, broker, 1, stop)
    settle(folder, run)
    told = coordinate(run, folder, broker, 2)
    fleet.join()
    assert of(told, "done")[0]["model_sha256"] == loop(run).sha256()
    seen = [fact for fact in of(told, "evaluated") if fact["round"] == 1]
    expected = told_by_the_loop(run)[-1]
    assert seen, "once, or once more because it may not have been heard"
    assert (seen[0]["accuracy"], seen[0]["confusion"]) == (expected["accuracy"], expected["confusion"])
    assert seen[0]["per_device"] == expected["per_device"]
    lines = [fact.round for fact in reports(FolderDisk(folder)) if isinstance(fact, Evaluated)]
    assert lines == [0, 1], "each once"


def test_a_run_is_extended_behind_its_evaluation_and_ends_as_if_it_had_been_so_long_from_the_start(
    tmp_path: Path,
) -> None:
    short, broker, folder = judged(run={"rounds": 2}), InMemoryBroker(), tmp_path / "run"
    fleet = Fleet(short, tmp_path, broker.client, once=False)
    fleet.start_all()
    settle(folder, short)
    coordinate(short, folder, broker, 1)
    longer = extend(folder, short, 2)
    told = coordinate(longer, folder, broker, 2)
    fleet.stop()
    fleet.join()
    assert of(told, "done")[0]["model_sha256"] == loop(judged(run={"rounds": 4})).sha256()
    facts = reports(FolderDisk(folder))
    assert [fact.round for fact in facts if isinstance(fact, Evaluated)] == [0, 1, 2, 3, 4]
    assert [fact.rounds for fact in facts if isinstance(fact, Done)] == [2, 4]


def test_the_best_model_by_the_word_of_devices_is_kept_beside_the_last(tmp_path: Path) -> None:
    def run(rounds: int) -> RunFile:
        return run_file(
            {"name": "fedavg", "batches": 2, "lr": 3.0}, run={"rounds": rounds}, rounds=ALL, evaluation=JUDGED
        )

    broker, folder, expected = InMemoryBroker(), tmp_path / "run", loop(run(5))
    fleet = Fleet(run(5), tmp_path, broker.client)
    fleet.start_all()
    settle(folder, run(5))
    done = of(coordinate(run(5), folder, broker, 1), "done")[0]
    fleet.join()
    assert done["best_round"] == expected.best_round
    assert 1 <= done["best_round"] < done["rounds"] == 5
    disk = FolderDisk(folder)
    about = checkpoint.read(disk, checkpoint.best(disk))[1]
    assert (about["round"], about["sha256"]) == (done["best_round"], loop(run(done["best_round"])).sha256())


# ── as an operator has it ────────────────────────────────────────────────────────────────────────────────────

RUN = """
[run]
name = "field"
rounds = 4
seed = 5
folder = "{folder}"
[task]
data = "none"
sample = [64]
classes = 10
model = "mlp"
[algorithm]
name = "fedavg"
lr = 0.2
epochs = 2
[rounds]
cohort = 3
start_with = 3
[evaluation]
per_device = true
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


def test_a_run_without_data_at_the_coordinator_has_everything_that_others_have(
    mosquitto: Broker, tmp_path: Path
) -> None:
    """Three processes with data of their own; one has too few of them to show anybody."""
    digits = load_digits()
    x, y = (digits.data / 16).astype(np.float32), digits.target
    order = np.random.default_rng(0).permutation(len(x))
    run, processes = tmp_path / "run.toml", []
    run.write_text(RUN.format(folder=tmp_path / "runs", broker=mosquitto.address))
    for part, rows in enumerate((order[:800], order[800:1600], order[1600:1630])):
        data, file = tmp_path / f"pi-{part}.npz", tmp_path / f"agent-{part}.toml"
        np.savez(data, x=x[rows], y=y[rows])
        file.write_text(AGENT.format(part=part, broker=mosquitto.address, folder=tmp_path / "devices", data=data))
        program = WITHOUT_TORCH if part == 0 else EDGEFL
        processes.append(start([*program, "agent", "start", str(file), "--once"], tmp_path / f"agent-{part}.log"))
    processes.append(start([*EDGEFL, "coordinator", "start", str(run), "--json"], tmp_path / "coordinator.log"))
    try:
        codes = [process.wait(180) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0, 0, 0], {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    folder = tmp_path / "runs" / "field"
    facts = reports(FolderDisk(folder))
    assert [fact.round for fact in facts if isinstance(fact, Round)] == [1, 2, 3, 4]
    evaluated = [fact for fact in facts if isinstance(fact, Evaluated)]
    assert [(fact.round, fact.samples, fact.devices, fact.silent) for fact in evaluated] == [
        (round, 320, 2, 1) for round in range(5)
    ], "a fifth of 800 samples each, and the six of the third are too few"
    done = facts[-1]
    assert isinstance(done, Done)
    assert done.accuracy == evaluated[-1].accuracy
    assert done.best_score["accuracy"] == max(fact.accuracy or 0 for fact in evaluated)
    assert evaluated[-1].per_device is not None
    assert set(evaluated[-1].per_device) == {"pi-0", "pi-1"}
    deployed = Deployed(folder / "model.onnx")
    assert float(deployed.card["accuracy"]) == pytest.approx(done.accuracy)
    unseen = deployed.logits(x[order[1630:]])
    assert (unseen.argmax(axis=1) == y[order[1630:]]).mean() > 0.6
