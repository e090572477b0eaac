"""Bundles of somebody who holds the coordinator's key, played against a real agent.

The victim runs in this process. What a bundle does to its memory must not be done to the tests, so they start it as a
child: `python hostile.py FOLDER [NAME ...]` prints one line of JSON for each bundle that the process survived.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "fleet"))

from fleets import Fleet, prepared, run_file

from coordinator.shell.threaded import Threaded
from edgefl.base.events import as_json
from edgefl.job.config.local_compute import LocalCompute
from edgefl.learn.models.onnx.bundle import Bundle, Mask, pack, unpack
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg"}, run={"rounds": 1}, task={"model": "mlp_bn"}, rounds={"cohort": 4, "quorum": 3})
VICTIM = "device-00"
LONG = 1_000_000  # numbers, where a few hundred fit
node = helper.make_node


def honest() -> Bundle:
    return unpack(prepared(RUN)[0].graphs or b"")


def edited(bundle: Bundle, graph: str, edit: Callable[[ModelProto], None]) -> Bundle:
    """The bundle with one of its graphs changed, which the device then uses; its hash is right again."""
    model = onnx.load_from_string(getattr(bundle, graph))
    edit(model)
    if graph != "descent":  # a device with one takes its steps in there
        bundle = replace(bundle, descent=b"", plan=None)
    return replace(bundle, **{graph: model.SerializeToString()})


def insert(model: ModelProto, nodes: list[NodeProto], **constants: Any) -> None:
    """Nodes that run before all others."""
    there = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *there])
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items())


def say(model: ModelProto, **sizes: list[int]) -> None:
    """What the file says of its values."""
    model.graph.value_info.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in sizes.items()
    )


def output_of(model: ModelProto, prefix: str) -> Any:
    return next(value for value in model.graph.output if value.name.startswith(prefix))


def renamed(model: ModelProto, prefix: str) -> Any:
    """An output whose name is free for something else; what it was is called `before`."""
    value = output_of(model, prefix)
    maker = next(candidate for candidate in model.graph.node if value.name in candidate.output)
    maker.output[0] = "before"
    model.graph.value_info.add().CopyFrom(value)
    model.graph.value_info[-1].name = "before"
    return value


def lengthen(prefix: str) -> Callable[[ModelProto], None]:
    """An output that is a million numbers long, and says so: bound with its own shape, it runs over what follows."""

    def edit(model: ModelProto) -> None:
        value = renamed(model, prefix)
        insert(model, [], long=np.array([LONG]))
        fill = numpy_helper.from_array(np.full(1, 7, np.float32))
        model.graph.node.append(node("ConstantOfShape", ["long"], [value.name], value=fill))
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, [LONG]))

    return edit


def other_type(model: ModelProto) -> None:
    value = renamed(model, "grad.")
    model.graph.node.append(node("Cast", ["before"], [value.name], to=TensorProto.DOUBLE))
    value.type.tensor_type.elem_type = TensorProto.DOUBLE


def branch(name: str) -> onnx.GraphProto:
    big = [node("ConstantOfShape", [f"{name}.s"], [f"{name}.big"]), node("ReduceSum", [f"{name}.big"], [name])]
    shape = numpy_helper.from_array(np.array([300_000_000]), f"{name}.s")
    return helper.make_graph(big, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)], [shape])


def in_a_branch(model: ModelProto) -> None:
    insert(
        model,
        [
            node("ReduceSum", ["x", "both"], ["sum"], keepdims=0),
            node("Greater", ["sum", "zero"], ["more"]),
            node("If", ["more"], ["used"], then_branch=branch("then"), else_branch=branch("else")),
        ],
        zero=np.float32(0),
        both=np.array([0, 1]),
    )
    say(model, sum=[], used=[1])
    model.graph.value_info.append(helper.make_tensor_value_info("more", TensorProto.BOOL, []))


def small_word(model: ModelProto) -> None:
    """A gigabyte that is said to be four bytes."""
    ones = node("ConstantOfShape", ["size"], ["ones"])
    insert(model, [node("Shape", ["x"], ["n"], start=0, end=1), node("Mul", ["n", "many"], ["size"]), ones],
           many=np.array([5_000_000]))  # fmt: skip
    say(model, ones=[1])
    model.graph.value_info.extend(helper.make_tensor_value_info(n, TensorProto.INT64, [1]) for n in ("n", "size"))


def endless(model: ModelProto) -> None:
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Identity", ["held"], ["kept"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("held", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("kept", TensorProto.FLOAT, None)],
    )  # fmt: skip
    insert(model, [node("Loop", ["times", "true", "one"], ["looped"], body=body)],
           times=np.array(2**62), true=np.array(True), one=np.ones(1, np.float32))  # fmt: skip
    say(model, looped=[1])


def by_zero(model: ModelProto) -> None:
    """Whole numbers divided by zero: the processor ends the process."""
    insert(
        model, [node("Shape", ["x"], ["n"]), node("Sub", ["n", "n"], ["none"]), node("Div", ["n", "none"], ["bang"])]
    )
    rank = len(next(i for i in model.graph.input if i.name == "x").type.tensor_type.shape.dim)
    names = ("n", "none", "bang")
    model.graph.value_info.extend(helper.make_tensor_value_info(n, TensorProto.INT64, [rank]) for n in names)


def wild_places(model: ModelProto) -> None:
    """A maximum that goes back to where the graph likes; old versions of onnxruntime write there."""
    insert(model, [node("MaxUnpool", ["pool", "places"], ["spread"], kernel_shape=[2, 2], strides=[2, 2])],
           pool=np.ones([1, 1, 2, 2], np.float32), places=np.full([1, 1, 2, 2], 2**30))  # fmt: skip
    say(model, spread=[1, 1, 4, 4])


def short_columns(model: ModelProto) -> None:
    """Columns of a smaller image than is asked for; old versions of onnxruntime read on."""
    insert(model, [node("Col2Im", ["columns", "image", "block"], ["leak"])],
           columns=np.ones([1, 1, 4], np.float32), image=np.array([64, 64]), block=np.array([1, 1]))  # fmt: skip
    say(model, leak=[1, 1, 64, 64])


def long_product(model: ModelProto) -> None:
    """One operator that runs for minutes, which nobody can interrupt."""
    insert(model, [node("ReduceSum", ["x", "both"], ["s"]), node("Expand", ["s", "wide"], ["a"]),
                   node("MatMul", ["a", "a"], ["b"])],
           both=np.array([0, 1]), wide=np.array([9000, 9000]))  # fmt: skip
    say(model, s=[1, 1], a=[9000, 9000], b=[9000, 9000])


def backwards(model: ModelProto) -> None:
    """Backwards from before the beginning: nothing to Python, one number to onnxruntime, and a gigabyte when tiled."""
    insert(model, [node("Slice", ["few", "from", "to", "axis", "back"], ["none"]),
                   node("Tile", ["none", "many"], ["large"])],
           few=np.ones(5, np.float32), to=np.array([-200]), axis=np.array([0]), back=np.array([-1]),
           many=np.array([300_000_000]), **{"from": np.array([-100])})  # fmt: skip
    say(model, none=[0], large=[0])


def wrapped(model: ModelProto) -> None:
    """Below the lowest whole number of 32 bits is the highest one: a gigabyte where we would count nothing."""
    insert(model, [node("Sub", ["low", "one"], ["c"]), node("Div", ["c", "high"], ["d"]),
                   node("Add", ["d", "one"], ["e"]), node("Cast", ["e"], ["f"], to=TensorProto.INT64),
                   node("Mul", ["f", "many"], ["g"]), node("ConstantOfShape", ["g"], ["large"])],
           low=np.array([-(2**31)], np.int32), high=np.array([2**31 - 1], np.int32), one=np.array([1], np.int32),
           many=np.array([150_000_000]))  # fmt: skip
    say(model, large=[0])


def in_many_loops(model: ModelProto) -> None:
    """Constants of 100 MB in the bodies of 60 loops, computed when the graph is loaded and kept from then on."""
    filled = numpy_helper.from_array(np.full(1, 2, np.float32))
    for i in range(60):
        nodes = [node("ConstantOfShape", [f"{i}.s"], [f"{i}.big"], value=filled),
                 node("Mul", [f"{i}.big", f"{i}.e"], [f"{i}.m"]),
                 node("ReduceSum", [f"{i}.m", f"{i}.axis"], [f"{i}.sum"], keepdims=0)]  # fmt: skip
        constants = {f"{i}.s": np.array([25_000_000]), f"{i}.axis": np.array([0])}
        body = helper.make_graph(
            nodes, f"body{i}", [helper.make_tensor_value_info(f"{i}.e", TensorProto.FLOAT, [])],
            [helper.make_tensor_value_info(f"{i}.sum", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )  # fmt: skip
        insert(model, [node("Scan", ["sequence"], [f"sums{i}"], body=body, num_scan_inputs=1)])
        say(model, **{f"sums{i}": [2]})
    insert(model, [], sequence=np.ones(2, np.float32))


def many_in_loops(model: ModelProto) -> None:
    """More operators than a graph may have, in loops that each have fewer."""
    for i in range(3):
        names = [f"{i}.e", *(f"{i}.{n}" for n in range(9_000))]
        nodes = [node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
        body = helper.make_graph(
            nodes, f"body{i}", [helper.make_tensor_value_info(names[0], TensorProto.FLOAT, [])],
            [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)],
        )  # fmt: skip
        insert(model, [node("Scan", ["sequence"], [f"ends{i}"], body=body, num_scan_inputs=1)])
        say(model, **{f"ends{i}": [2]})
    insert(model, [], sequence=np.ones(2, np.float32))


def far_away(model: ModelProto) -> None:
    """Padding whose sum is no number of 64 bits, and a stride that makes little of it."""
    insert(model, [node("ReduceSum", ["x", "both"], ["s"]), node("Reshape", ["s", "four"], ["image"]),
                   node("Conv", ["image", "kernel"], ["moved"], kernel_shape=[1, 1], strides=[2**62, 1],
                        pads=[2**62, 0, 2**62, 0])],
           both=np.array([0, 1]), four=np.array([1, 1, 1, 1]), kernel=np.ones([1, 1, 1, 1], np.float32))  # fmt: skip
    say(model, s=[1, 1], image=[1, 1, 1, 1], moved=[1, 1, 3, 1])


def other_input(model: ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("w.none", TensorProto.FLOAT, [4]))


def same_twice(model: ModelProto) -> None:
    model.graph.output.append(output_of(model, "logits"))


def without_logits(model: ModelProto) -> None:
    model.graph.output.remove(output_of(model, "logits"))


def two_formats(bundle: Bundle) -> Bundle:
    """An ONNX file that onnxruntime would take for one of its own format, which nobody has looked at."""
    model = onnx.load_from_string(bundle.training)
    model.producer_name = "ORTM" + " " * 60
    data = model.SerializeToString()
    assert data[4:8] == b"ORTM"
    return replace(bundle, training=data)


BUNDLES: dict[str, tuple[str, Callable[[], Bundle]]] = {
    "past the end of the gradient": ("model.binding", lambda: edited(honest(), "backward", lengthen("grad."))),
    "past the end of the statistics": ("model.binding", lambda: edited(honest(), "training", lengthen("new."))),
    "past the end of the outputs": ("model.binding", lambda: edited(honest(), "training", lengthen("logits"))),
    "numbers twice as wide": ("model.binding", lambda: edited(honest(), "backward", other_type)),
    "a gigabyte in a branch": ("model.operator", lambda: edited(honest(), "training", in_a_branch)),
    "a gigabyte that is said to be small": ("model.shape", lambda: edited(honest(), "training", small_word)),
    "an endless loop": ("model.operator", lambda: edited(honest(), "training", endless)),
    "a division by zero": ("model.shape", lambda: edited(honest(), "training", by_zero)),
    "places outside a result": ("model.shape", lambda: edited(honest(), "training", wild_places)),
    "columns that are too short": ("model.shape", lambda: edited(honest(), "training", short_columns)),
    "a product that takes minutes": ("model.too_long", lambda: edited(honest(), "training", long_product)),
    "a slice backwards from nowhere": ("model.shape", lambda: edited(honest(), "training", backwards)),
    "a size that wraps around": ("model.shape", lambda: edited(honest(), "training", wrapped)),
    "gigabytes in many loops": ("model.too_large", lambda: edited(honest(), "training", in_many_loops)),
    "too many operators in loops": ("model.malformed", lambda: edited(honest(), "training", many_in_loops)),
    "padding without end": ("model.shape", lambda: edited(honest(), "training", far_away)),
    "an input that does not exist": ("model.binding", lambda: edited(honest(), "training", other_input)),
    "the same output twice": ("model.binding", lambda: edited(honest(), "training", same_twice)),
    "no outputs": ("model.binding", lambda: edited(honest(), "training", without_logits)),
    "a mask of terabytes": (
        "model.too_large",
        lambda: replace(honest(), masks=(Mask("mask.0", (-(2**31) + 1, 1000), 0.5),)),
    ),
    "a file of two formats": ("", lambda: two_formats(honest())),  # what was checked is what is run: it trains
    "samples of another shape": ("model.shape", lambda: replace(honest(), shape=(7,))),
}


def played(bundle: Bundle, folder: Path) -> tuple[list[str], tuple[int, str]]:
    """What the victim says to a run with this bundle, and how it ends; the others need no graphs."""
    told: list[dict[str, Any]] = []
    broker = InMemoryBroker()
    fleet = Fleet(RUN, folder, broker.client)
    for name in fleet.data:
        fleet.start(fleet.agent(name, compute=LocalCompute(backend="onnx" if name == VICTIM else "torch")))
    job = replace(prepared(RUN)[0], graphs=pack(bundle))
    Threaded(RUN, broker.client("coordinator"), lambda: job, tell=lambda fact: told.append(as_json(fact))).run()
    fleet.join()
    declined = [event["reason"] for event in told if event["event"] == "declined" and event["device"] == VICTIM]
    return declined, fleet.exits[VICTIM]


def main(folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names or BUNDLES):
        reasons, left = played(BUNDLES[name][1](), folder / str(number))
        print(json.dumps({"bundle": name, "reasons": reasons, "left": left}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
    os._exit(0)  # as an agent ends: a graph that was left behind must not be taken apart while it runs
