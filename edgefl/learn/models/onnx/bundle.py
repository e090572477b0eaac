"""The bundle: everything a device needs to train a model it has no code for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import prod
from typing import Any

import msgpack
import numpy as np

from edgefl.base.errors import WireError
from edgefl.base.vector import Array, Layout
from edgefl.learn.models.rule import TERMS, StepPlan

VERSION = 2
MOST_BYTES = 2**31  # of everything; a device that fetches it has a limit of its own
MOST_GRAPH_BYTES = 256 * 2**20  # of all graphs together; they hold no weights, so megabytes are already many
MOST_TENSORS = 10_000
GRAPHS = ("forward", "training", "backward", "input_gradient", "single_training", "single_backward", "descent")


@dataclass(frozen=True, slots=True)
class Mask:
    """A dropout mask the device draws: a size of -n stands for n times the batch size."""

    name: str
    shape: tuple[int, ...]
    keep: float


@dataclass(frozen=True, slots=True)
class Bundle:
    """Its graphs, the layout of the flat vector their weights are slices of, and the frozen weights.

    What is frozen is here once, whatever the number of graphs that read it: it travels with them, and never again.

    forward         weights, x -> logits, in evaluation mode
    training        weights, x, masks -> logits, new statistics, and what the backward graph asks for
    backward        weights, x, masks, dz, handed-over values -> gradients of the trainable tensors
    input_gradient  weights, x, dz -> dx, in evaluation mode; empty where x are tokens
    single_...      training and backward for a batch of one with BatchNorm, which has no variance and so runs in
                    evaluation mode; empty without BatchNorm
    descent         weights, mini-batches, rate -> weights, losses: whole steps of `plan`, several in one call; empty
                    where the run takes no plain ones
    """

    forward: bytes
    training: bytes
    backward: bytes
    input_gradient: bytes
    single_training: bytes
    single_backward: bytes
    descent: bytes
    layout: Layout
    masks: tuple[Mask, ...]
    shape: tuple[int, ...]  # of one sample
    dtype: str  # of x: float32 or int64
    outputs: int  # numbers for each sample; 0 where they are more than a row
    opset: int
    plan: StepPlan | None = None  # of `descent`
    frozen: Mapping[str, Array] = field(default_factory=dict)  # float32
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", sha256(_body(self)).hexdigest())


def _body(bundle: Bundle) -> bytes:
    layout = bundle.layout
    frozen = [(name, array.shape, array.tobytes()) for name, array in bundle.frozen.items()]
    return bytes(
        msgpack.packb(
            {
                "version": VERSION,
                "opset": bundle.opset,
                "outputs": bundle.outputs,
                "dtype": bundle.dtype,
                "shape": bundle.shape,
                "names": layout.names,
                "shapes": layout.shapes,
                "buffers": layout.buffers,
                "plan": bundle.plan and (bundle.plan.loss, bundle.plan.terms),
                "masks": [(m.name, m.shape, m.keep) for m in bundle.masks],
                **{name: getattr(bundle, name) for name in GRAPHS},
                **({"frozen": frozen} if frozen else {}),
                **({"norms": layout.norms} if layout.norms else {}),
            }
        )
    )


def pack(bundle: Bundle) -> bytes:
    """The bundle as bytes: its hash, then its content."""
    return bytes.fromhex(bundle.sha256) + _body(bundle)


def unpack(data: bytes) -> Bundle:
    """The bundle in these bytes, or WireError if they are not one, too many, or not what their hash says."""
    if len(data) > MOST_BYTES:
        raise WireError("wire.too_large", f"a bundle of {len(data)} bytes, at most {MOST_BYTES} are taken")
    if sha256(data[32:]).digest() != data[:32]:
        raise WireError("wire.hash", "the bundle is not what its sha256 says")
    try:
        content = msgpack.unpackb(data[32:], max_map_len=64, max_array_len=MOST_TENSORS, max_ext_len=0)
        bundle = _read(content)
    except (ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise WireError("wire.malformed", f"not a bundle: {error}") from None
    if bundle.sha256 != data[:32].hex():
        raise WireError("wire.malformed", "the bundle has another form than this version writes")
    return bundle


def _read(content: dict[str, Any]) -> Bundle:
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']}, expected {VERSION}")
    graphs = {name: content[name] for name in GRAPHS}
    if not all(isinstance(graph, bytes) for graph in graphs.values()):
        raise ValueError("graphs must be bytes")
    if sum(len(graph) for graph in graphs.values()) > MOST_GRAPH_BYTES:
        raise ValueError(f"graphs of more than {MOST_GRAPH_BYTES} bytes")
    if content["dtype"] not in ("float32", "int64"):
        raise ValueError(f"samples of type {content['dtype']}")
    shapes = tuple(_sizes(s, least=0) for s in content["shapes"])
    return Bundle(
        **graphs,
        layout=_layout(content, shapes),
        masks=tuple(Mask(str(n), _sizes(s, least=-(2**31)), float(keep)) for n, s, keep in content["masks"]),
        shape=_sizes(content["shape"], least=0),
        dtype=str(content["dtype"]),
        outputs=_sizes([content["outputs"]], least=0)[0],
        opset=int(content["opset"]),
        plan=_plan(content["plan"]),
        frozen=_frozen(content.get("frozen", [])),
    )


def _layout(content: dict[str, Any], shapes: tuple[tuple[int, ...], ...]) -> Layout:
    names, norms = (tuple(str(name) for name in content.get(key, ())) for key in ("names", "norms"))
    if not set(norms) <= set(names):
        raise ValueError("norm layers of tensors that are not there")
    return Layout(names, shapes, int(content["buffers"]), norms)


def _frozen(content: Any) -> dict[str, Array]:
    arrays = {str(name): _array(_sizes(shape, least=0), data) for name, shape, data in content}
    if len(arrays) != len(content):
        raise ValueError("two frozen tensors of one name")
    return arrays


def _array(shape: tuple[int, ...], data: Any) -> Array:
    if not isinstance(data, bytes) or len(data) != 4 * prod(shape):
        raise ValueError(f"a frozen tensor of shape {shape} that is not there")
    return np.frombuffer(data, "<f4").reshape(shape)


def _plan(content: Any) -> StepPlan | None:
    if content is None:
        return None
    loss, terms = content
    if not set(terms) <= set(TERMS):
        raise ValueError(f"terms {terms}")
    return StepPlan(str(loss), tuple(terms))


def _sizes(values: Any, *, least: int) -> tuple[int, ...]:
    sizes = tuple(values)
    if not all(isinstance(v, int) and least <= v < 2**31 for v in sizes):
        raise ValueError(f"sizes {sizes}")
    return sizes
