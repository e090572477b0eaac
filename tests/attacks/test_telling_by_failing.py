"""A coordinator whose graph fails at a value of the data, against real agents with an allowance.

The graph lowers a bias by one with each step, and divides by zero once the bias is as far below zero as the
largest feature is above: so the step at which training leaves the finite numbers is the value.
"""

import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from fleets import network, until
from hostile import edited, insert, node, renamed, say
from onnx import ModelProto, TensorProto, helper

from coordinator.shell.threaded import Threaded
from device_agent.durable.failures import MOST
from device_agent.shell.allowance import UNDONE
from edgefl.base.errors import Interrupted
from edgefl.base.events import as_json
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.learn.models.onnx.bundle import pack, unpack
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport

pytestmark = pytest.mark.timeout(240)

STEPS = 30
AGENT = """
[agent]
id = "{name}"
broker = "{broker}"
folder = "{folder}/devices"
[data]
source = "csv:{folder}/{name}.csv"
[privacy]
epsilon = 100.0
"""
ROWS = "0.5,0.25,0\n0.125,0.75,1\n" * 20
DEVICES = {
    "pi-a": ROWS + "9.5,0.5,1\n",  # it fails at step 11
    "pi-b": ROWS + "21.5,0.5,1\n",
    "pi-c": ROWS + "500.5,0.5,1\n",  # it does not fail
    "labels": ROWS + "0.5,0.5,7\n",
}
ALIKE = ("pi-a", "pi-b", "pi-c")


def run_file(broker: Broker, steps: int = STEPS, rounds: int = 2, devices: int = 3) -> RunFile:
    noise = {"mechanism": "output", "clips": "update", "clip": 1.0, "sigma": 50.0, "delta": 1e-5}
    table = {
        "run": {"name": "telling", "rounds": rounds, "seed": 1},
        "task": {"data": "none", "model": "softmax", "sample": [2], "classes": 2, "backend": "onnx"},
        "algorithm": {"name": "fedprox", "mu": 0.0, "lr": 1.0, "batch": 64, "batches": steps, "momentum": 0.0},
        "privacy": noise,
        "rounds": {"cohort": devices, "quorum": 1, "deadline": 60.0, "start_with": devices},
        "guards": {"norm_cap": "off"},
        "broker": {"url": str(broker.address)},
    }
    return parse(RunFile, table, "test", environment={})


def fails_at_the_largest_feature(model: ModelProto) -> None:
    """Logits that are no numbers once the bias is below the largest feature's negative."""
    logits = renamed(model, "logits")
    insert(
        model,
        [
            node("ReduceMax", ["x", "both"], ["largest"], keepdims=0),
            node("Add", ["w.1.bias", "largest"], ["left"]),
            node("Relu", ["left"], ["above"]),
            node("Reciprocal", ["above"], ["turned"]),
            node("Mul", ["turned", "zero"], ["trap"]),
        ],
        both=np.array([0, 1]),
        zero=np.float32(0),
    )
    say(model, largest=[], left=[2], above=[2], turned=[2], trap=[2])
    model.graph.node.append(node("Add", ["before", "trap"], [logits.name]))


def lowers_the_bias(model: ModelProto) -> None:
    bias = renamed(model, "grad.1.bias")
    insert(model, [], nothing=np.zeros(2, np.float32), one=np.ones(2, np.float32))
    model.graph.node.append(node("Mul", ["before", "nothing"], ["none"]))
    model.graph.node.append(node("Add", ["none", "one"], [bias.name]))
    model.graph.value_info.append(helper.make_tensor_value_info("none", TensorProto.FLOAT, [2]))


def villain(run: RunFile, broker: Broker, told: list[dict[str, Any]]) -> Threaded:
    """A coordinator of this run, with graphs that tell."""
    job, _ = jobs.prepare(run, None, network(run))
    bundle = edited(unpack(job.graphs or b""), "training", fails_at_the_largest_feature)
    job = replace(job, graphs=pack(edited(bundle, "backward", lowers_the_bias)))
    transport = MqttTransport(broker.address, "coordinator")
    return Threaded(run, transport, lambda: job, tell=lambda fact: told.append(as_json(fact)))


def started(folder: Path, broker: Broker, name: str) -> subprocess.Popen[bytes]:
    (folder / f"{name}.csv").write_text("a,b,label\n" + DEVICES[name])
    (folder / f"{name}.toml").write_text(AGENT.format(name=name, broker=broker.address, folder=folder))
    with (folder / f"{name}.log").open("ab") as log:
        command = [sys.executable, "-m", "edgefl", "agent", "start", f"{name}.toml"]
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


@contextmanager
def agents(folder: Path, broker: Broker, *names: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [started(folder, broker, name) for name in names]
    try:
        yield processes
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def booked(folder: Path, name: str) -> int:
    """How many updates the device's ledger has."""
    path = folder / "devices" / name / "privacy.json"
    return sum(entry["odd_updates"] for entry in json.loads(path.read_text()).values()) if path.exists() else 0


def test_a_graph_that_fails_at_a_value_learns_nothing_and_pays(mosquitto: Broker, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with agents(tmp_path, mosquitto, *ALIKE):
        villain(run_file(mosquitto), mosquitto, told).run()
    logs = "\n".join((tmp_path / f"{name}.log").read_text() for name in ALIKE)
    said: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for fact in told:
        if fact.get("device") in ALIKE:
            own = {key: value for key, value in fact.items() if key not in {"device", "at", "took", "seconds"}}
            said[fact["device"]].append(own)
    assert [one for one in told if one["event"] == "declined"] == [], logs
    answers = {name: [one for one in facts if one["event"] == "answered"] for name, facts in said.items()}
    assert {len(facts) for facts in answers.values()} == {2}, logs
    assert {one["steps"] for facts in answers.values() for one in facts} == {STEPS}
    assert answers["pi-a"] == answers["pi-b"] == answers["pi-c"], "nothing but the noise is different"
    assert {name: booked(tmp_path, name) for name in ALIKE} == dict.fromkeys(ALIKE, 2)


def until_stopped(coordinator: Threaded) -> None:
    with suppress(Interrupted):
        coordinator.run()


def test_a_task_is_booked_while_its_graph_runs_and_again_when_it_runs_again(mosquitto: Broker, tmp_path: Path) -> None:
    run, told = run_file(mosquitto, steps=100_000_000, rounds=1, devices=1), list[dict[str, Any]]()
    coordinator = villain(run, mosquitto, told)
    with agents(tmp_path, mosquitto, "pi-c") as (first,):
        thread = Thread(target=until_stopped, args=(coordinator,), daemon=True)
        thread.start()
        until(lambda: booked(tmp_path, "pi-c") == 1)
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert booked(tmp_path, "pi-c") == 1
    with agents(tmp_path, mosquitto, "pi-c"):
        until(lambda: booked(tmp_path, "pi-c") == 2)
        failures = json.loads((tmp_path / "devices" / "pi-c" / "failures.json").read_text())["failures"]
        assert list(failures.values()) == [1], "that it ended could be seen"
        coordinator.stop()
        thread.join(60)


def test_a_label_beyond_the_classes_of_a_run_is_told_by_nothing_and_counts(mosquitto: Broker, tmp_path: Path) -> None:
    """The newest data do not fit, the older ones train: without a failure nothing is said, and one is counted."""
    told: list[dict[str, Any]] = []
    with agents(tmp_path, mosquitto, "pi-c"):
        until(lambda: "samples=" in (tmp_path / "pi-c.log").read_text())  # it has read what there is
        with (tmp_path / "pi-c.csv").open("a") as file:
            file.write("0.5,0.5,7\n" * 20)
        villain(run_file(mosquitto, devices=1), mosquitto, told).run()
    log = (tmp_path / "pi-c.log").read_text()
    assert "its labels go up to 7, the model has 2 classes" in log
    assert [one["event"] for one in told if one["event"] in {"answered", "declined", "databroken"}] == ["answered"] * 2
    assert not any("labels" in str(one) or "classes" in str(one.get("reason", "")) for one in told)
    failures = json.loads((tmp_path / "devices" / "pi-c" / "failures.json").read_text())["failures"]
    assert list(failures.values()) == [1]


def test_failures_are_told_in_one_text_and_ten_of_them_end_the_service(mosquitto: Broker, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with agents(tmp_path, mosquitto, "pi-c", "labels"):
        villain(run_file(mosquitto, devices=2, rounds=MOST + 2), mosquitto, told).run()
    reasons = [one["reason"] for one in told if one["event"] == "declined"]
    assert reasons[:MOST] == [UNDONE] * MOST
    assert [reason.partition(":")[0] for reason in reasons[MOST:]] == ["privacy.closed"] * 2
    assert "its labels go up to 7, the model has 2 classes" in (tmp_path / "labels.log").read_text()
    assert booked(tmp_path, "labels") == MOST
