"""An exported network's gradient in double precision: its very graphs, but for the width of their numbers.

Where rounding grows so much that no two back-ends agree in float32, this tells a wrong graph from a right one. It is
computed by ONNX's reference implementation, since onnxruntime has no convolutions in float64; these are torch's, for
the reference's are slow, and wrong for a transposed one in groups (onnx 1.23); and so are maxima.
"""

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from torch.nn import functional

from edgefl.base.vector import Array, Vector
from edgefl.learn.models.onnx.bundle import Bundle


class Conv(OpRun):
    """A convolution of any number of axes."""

    op_domain = ""

    def _run(self, x: Array, w: Array, b: Array | None = None, **how: Any) -> tuple[Array]:  # Any: its attributes
        axes = w.ndim - 2
        pads = how.get("pads") or [0] * 2 * axes
        sides = [side for axis in reversed(range(axes)) for side in (pads[axis], pads[axes + axis])]  # the last first
        wide = functional.pad(torch.from_numpy(x), sides)
        z = (functional.conv1d, functional.conv2d, functional.conv3d)[axes - 1](
            wide,
            torch.from_numpy(w),
            None if b is None else torch.from_numpy(b),
            stride=tuple(how.get("strides") or [1] * axes),
            dilation=tuple(how.get("dilations") or [1] * axes),
            groups=how.get("group") or 1,
        )
        return (z.numpy(),)


class ConvTranspose(OpRun):
    """Its transpose."""

    op_domain = ""

    def _run(self, x: Array, w: Array, b: Array | None = None, **how: Any) -> tuple[Array]:  # Any: its attributes
        axes = w.ndim - 2
        pads = how.get("pads") or [0] * 2 * axes
        kinds = functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d
        z = kinds[axes - 1](
            torch.from_numpy(x),
            torch.from_numpy(w),
            None if b is None else torch.from_numpy(b),
            stride=tuple(how.get("strides") or [1] * axes),
            output_padding=tuple(how.get("output_padding") or [0] * axes),
            groups=how.get("group") or 1,
            dilation=tuple(how.get("dilations") or [1] * axes),
        )
        inside = [slice(pads[axis], z.shape[2 + axis] - pads[axes + axis]) for axis in range(axes)]
        return (np.ascontiguousarray(z.numpy()[(slice(None), slice(None), *inside)]),)


class MaxPool(OpRun):
    """The largest of each window, and where it lies; the reference's is wrong for windows of three at every place."""

    op_domain = ""

    def _run(self, x: Array, **how: Any) -> tuple[Array, Array]:  # Any: its attributes
        axes = x.ndim - 2
        pads = how.get("pads") or [0] * 2 * axes
        wide = np.pad(x, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)], constant_values=-np.inf)
        y, places = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[axes - 1](
            torch.from_numpy(wide),
            tuple(how["kernel_shape"]),
            stride=tuple(how.get("strides") or [1] * axes),
            dilation=tuple(how.get("dilations") or [1] * axes),
            return_indices=True,
        )
        padded = np.unravel_index(places.numpy(), wide.shape[2:])
        inside = [place - pad for place, pad in zip(padded, pads, strict=False)]
        sample, channel = np.indices(y.shape, sparse=True)[:2]
        where = np.ravel_multi_index((*np.broadcast_arrays(sample, channel, *inside),), x.shape)
        return y.numpy(), where


def gradient_in_double(bundle: Bundle, w: Vector, x: Array, dz: Array) -> Vector:
    """What the pullback of a training step gives for the weights, all of it in float64."""
    layers = bundle.layout.layers(w)
    feeds = {f"w.{name}": tensor.astype(np.float64) for name, tensor in layers.items()}
    feeds |= {f"frozen.{name}": tensor.astype(np.float64) for name, tensor in bundle.frozen.items()}
    feeds |= {"x": x, "dz": dz}
    feeds |= _run(bundle.training, feeds)
    gradients = _run(bundle.backward, feeds)
    trainable = list(layers)[: len(layers) - bundle.layout.buffers]
    parts = [gradients.get(f"grad.{name}", np.zeros(layers[name].shape)) for name in trainable]
    return np.concatenate([part.reshape(-1) for part in parts])


def _run(graph: bytes, feeds: dict[str, Array]) -> dict[str, Array]:
    model = onnx.load_from_string(graph)
    _widen(model.graph)
    given = {value.name: feeds[value.name] for value in model.graph.input}
    results = ReferenceEvaluator(model, new_ops=[Conv, ConvTranspose, MaxPool]).run(None, given)
    return dict(zip([value.name for value in model.graph.output], results, strict=True))


def _widen(graph: onnx.GraphProto) -> None:
    """Every float32 of the graph becomes a float64."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    constants = [attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")]
    for tensor in (*graph.initializer, *constants):
        if tensor.data_type == TensorProto.FLOAT:
            wide = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and not node.attribute:  # zeros, and in float32 where nothing else is said
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
            if attribute.HasField("g"):
                _widen(attribute.g)
