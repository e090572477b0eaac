"""A device outlives every bad bundle: it declines with the code, the others carry on, and it stays."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from facts import in_json
from fleets import Fleet, prepared, run_file
from onnx import TensorProto, numpy_helper

from coordinator.shell.threaded import Threaded
from edgefl.job.config.local_compute import LocalCompute
from edgefl.learn.models.onnx.bundle import pack, unpack
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg"})
VICTIM = "device-00"


def changed(change: Callable[[onnx.ModelProto], None]) -> bytes:
    """The run's own bundle, with its training graph changed and its hash made right again."""
    graphs = prepared(RUN)[0].graphs
    assert graphs is not None
    bundle = unpack(graphs)
    model = onnx.load_from_string(bundle.training)
    change(model)
    return pack(replace(bundle, training=model.SerializeToString(), **NO_DESCENT))


NO_DESCENT: dict[str, Any] = {"descent": b"", "plan": None}  # so that a device takes its steps with the others


def wrong_hash() -> bytes:
    graphs = bytearray(prepared(RUN)[0].graphs or b"")
    graphs[-1] ^= 1
    return bytes(graphs)


def external_data(model: onnx.ModelProto) -> None:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "secret")
    onnx.external_data_helper.set_external_data(tensor, "/etc/passwd")
    tensor.data_location = TensorProto.EXTERNAL
    model.graph.initializer.append(tensor)


def foreign_domain(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "com.example"


BUNDLES: dict[str, Callable[[], bytes]] = {
    "wire.hash": wrong_hash,
    "wire.malformed": lambda: pack(replace(unpack(prepared(RUN)[0].graphs or b""), dtype="float16")),
    "model.external_data": lambda: changed(external_data),
    "model.domain": lambda: changed(foreign_domain),
    "model.malformed": lambda: pack(
        replace(unpack(prepared(RUN)[0].graphs or b""), training=b"\x07garbage", **NO_DESCENT)
    ),
    "model.too_large": lambda: changed(heavy),
}


def heavy(model: onnx.ModelProto) -> None:
    """It says that one of its values takes two gigabytes, where one is allowed."""
    value = model.graph.value_info.add()
    value.CopyFrom(onnx.helper.make_tensor_value_info("heavy", TensorProto.FLOAT, [2 << 28]))
    shape = numpy_helper.from_array(np.array([2 << 28]), "heavy.shape")
    model.graph.initializer.append(shape)
    model.graph.node.append(onnx.helper.make_node("ConstantOfShape", ["heavy.shape"], ["heavy"]))


@pytest.mark.parametrize("code", BUNDLES)
def test_a_bad_bundle_is_declined_with_its_code_and_the_agent_stays(code: str, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    broker = InMemoryBroker()
    fleet = Fleet(RUN, tmp_path, broker.client)
    for name in fleet.data:  # torch needs no graphs, so the others train whatever is published
        fleet.start(fleet.agent(name, compute=LocalCompute(backend="onnx" if name == VICTIM else "torch")))
    job = replace(prepared(RUN)[0], graphs=BUNDLES[code]())
    run_state = Threaded(RUN, broker.client("coordinator"), lambda: job, tell=in_json(told.append)).run()
    fleet.join()
    declined = [event["reason"] for event in told if event["event"] == "declined"]
    assert run_state.round == RUN.run.rounds
    assert declined
    assert all(reason.startswith(f"{code}: ") for reason in declined)
    assert {event["device"] for event in told if event["event"] == "declined"} == {VICTIM}
    assert fleet.exits[VICTIM] == (0, "job 'fleet' has finished")


def test_a_device_with_little_memory_says_so(tmp_path: Path) -> None:
    run = run_file({"name": "fedavg", "batch": 4096}, task={"model": "mlp"})
    told: list[dict[str, Any]] = []
    broker = InMemoryBroker()
    fleet = Fleet(run, tmp_path, broker.client)
    for name in fleet.data:
        small = LocalCompute(memory_mb=1 if name == VICTIM else 1024)
        fleet.start(fleet.agent(name, compute=small))
    run_state = fleet.coordinator(told.append).run()
    fleet.join()
    reasons = {event["reason"] for event in told if event["event"] == "declined"}
    assert run_state.round == run.run.rounds
    assert all(reason.startswith("model.too_large: ") and "allowed are 1 MiB" in reason for reason in reasons)
    assert reasons
