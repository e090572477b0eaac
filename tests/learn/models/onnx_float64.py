"""The exported graphs, number by number as devices get them, evaluated in float64.

In float32 two right programs may take different sides of a kink. In float64 they do not, so a difference here is a
fault. The evaluator is that of the onnx package; where it is slow or wants float32, torch's kernels stand in.
"""

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx_checker import batch, relative
from torch.nn import functional

from edgefl.learn.models.torch_backend import TorchModel, initial_params

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE


def tensor(a):
    return torch.from_numpy(np.ascontiguousarray(a))


class Conv(OpRun):
    def _run(self, x, w, b=None, *, dilations, group, pads, strides, **_):
        run, n = (functional.conv1d, functional.conv2d)[x.ndim - 3], x.ndim - 2
        bias = None if b is None else tensor(b)
        return (run(tensor(x), tensor(w), bias, strides, pads[:n], dilations, group).numpy(),)


class ConvTranspose(OpRun):
    def _run(self, x, w, b=None, *, dilations, group, output_padding, pads, strides, **_):
        run, n = (functional.conv_transpose1d, functional.conv_transpose2d)[x.ndim - 3], x.ndim - 2
        bias = None if b is None else tensor(b)
        y = run(tensor(x), tensor(w), bias, strides, 0, 0, group, dilations)
        y = functional.pad(y, [side for extra in reversed(output_padding) for side in (0, extra)])
        for axis in range(n):  # torch would refuse what is more padding than stride
            y = y.narrow(2 + axis, pads[axis], y.shape[2 + axis] - 2 * pads[axis])
        return (y.numpy(),)


class Col2Im(OpRun):
    def _run(self, x, image, block, *, dilations=None, pads=None, strides=None):
        sides = (pads or [0, 0])[:2]
        return (
            functional.fold(tensor(x), image.tolist(), block.tolist(), dilations or 1, sides, strides or 1).numpy(),
        )


class MaxPool(OpRun):
    def _run(self, x, *, kernel_shape, strides, dilations=None, pads=None, **_):
        top, left, *ends = pads or [0, 0, 0, 0]
        padded = functional.pad(tensor(x), [left, ends[1], top, ends[0]], value=-torch.inf)
        y, where = functional.max_pool2d(padded, kernel_shape, strides, 0, dilations or 1, return_indices=True)
        images = torch.arange(x.shape[0] * x.shape[1]).view(*x.shape[:2], 1, 1)
        rows = images * x.shape[2] + where // padded.shape[3] - top
        flat = rows * x.shape[3] + where % padded.shape[3] - left
        return (y.numpy(), flat.numpy())[: len(self.onnx_node.output)]


class AveragePool(OpRun):
    def _run(self, x, *, kernel_shape, strides, **_):
        return (functional.avg_pool2d(tensor(x), kernel_shape, strides).numpy(),)


class Resize(OpRun):
    def _run(self, x, _, scales, **__):
        for axis, times in enumerate(scales):
            x = np.repeat(x, int(times), axis)
        return (x,)


class ScatterElements(OpRun):
    def _run(self, x, where, updates, *, axis=0, reduction=None):
        y = tensor(x.copy())
        scatter = y.scatter_add_ if reduction == "add" else y.scatter_
        return (scatter(axis, tensor(where), tensor(updates)).numpy(),)


class ScatterND(OpRun):
    def _run(self, x, where, updates, **_):
        y = x.copy()
        np.add.at(y, tuple(np.moveaxis(where, -1, 0)), updates)
        return (y,)


class Scan(OpRun):
    """A loop in one direction or the other; the evaluator's own knows but one."""

    def need_context(self):
        return True

    def _run(self, *args, context, num_scan_inputs, scan_input_directions, **_):
        count = len(args) - num_scan_inputs
        states, sequences, rows = list(args[:count]), args[count:], []
        order = 1 - 2 * scan_input_directions[0]  # all of ours go the same way
        for step in list(zip(*sequences, strict=True))[::order]:
            given = dict(zip(self.body.input_names, [*states, *step], strict=True))
            states_and_results = self.body.run(None, {**context, **given})
            states = states_and_results[:count]
            rows.append(states_and_results[count:])
        return (*states, *(np.stack(column) for column in zip(*rows[::order], strict=True)))


KERNELS = [Scan, Conv, ConvTranspose, Col2Im, MaxPool, AveragePool, Resize, ScatterElements, ScatterND]


def doubled(graph):
    """The evaluator of a graph in which every float32 has become a float64."""
    model = onnx.load_model_from_string(graph)
    widen(model.graph)
    return ReferenceEvaluator(model, new_ops=KERNELS)


def widen(graph):
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1, np.float32))))
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = DOUBLE
            elif attribute.name == "value":
                widen_constant(attribute.t)
            elif attribute.name == "body":
                widen(attribute.g)
    for constant in graph.initializer:
        widen_constant(constant)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = DOUBLE


def widen_constant(constant):
    if constant.data_type == FLOAT:
        wide = numpy_helper.to_array(constant).astype(np.float64)
        constant.CopyFrom(numpy_helper.from_array(wide, constant.name))


def single(graph):
    """The same graph in onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def run(graph, feeds):
    """The outputs by name; the inputs are taken from among `feeds`, as wide as the graph is."""
    if isinstance(graph, onnxruntime.InferenceSession):
        inputs, outputs = ([v.name for v in side] for side in (graph.get_inputs(), graph.get_outputs()))
        given = {name: feeds[name] for name in inputs}
    else:
        inputs, outputs = graph.input_names, graph.output_names
        given = {name: wide(feeds[name]) for name in inputs}
    return dict(zip(outputs, graph.run(outputs, given), strict=True))


def wide(a):
    return a.astype(np.float64) if a.dtype == np.float32 else a


def gradient(layout, results):
    """The gradient of all trainable tensors, from a backward graph's results."""
    count = len(layout.names) - layout.buffers
    tensors = zip(layout.names[:count], layout.shapes[:count], strict=True)
    return np.concatenate([results.get(f"grad.{n}", np.zeros(s)).ravel() for n, s in tensors])


class Exactness:
    """A bundle's graphs in both widths, to be compared with torch in float64."""

    def __init__(self, module, bundle):
        self.bundle, self.torch, self.w = bundle, TorchModel(module), initial_params(module)
        self.weights = {f"w.{n}": a for n, a in bundle.layout.layers(self.w).items()}
        self.graphs = {}

    def graph(self, make, name):
        if (make, name) not in self.graphs:
            self.graphs[make, name] = make(getattr(self.bundle, name))
        return self.graphs[make, name]

    def errors(self, n, seed=0):
        """How far each width is from torch in float64, and float32 from the exact pullback of its own activations."""
        rng, bundle, k = np.random.default_rng(seed), self.bundle, self.bundle.layout.trainable
        x = batch(rng, n, bundle.shape, bundle.dtype == "int64")
        z64, pull64 = self.torch.vjp(wide(self.w), wide(x))
        dz = (rng.standard_normal(z64.shape) / n).astype(np.float32)
        feeds, exact = {**self.weights, "x": x, "dz": dz}, pull64(wide(dz))[:k]
        kind = "single_" if n == 1 and bundle.single_training else ""
        kept, back = {}, {}
        for make in (single, doubled):
            kept[make] = run(self.graph(make, f"{kind}training"), feeds)
            back[make] = run(self.graph(make, f"{kind}backward"), {**feeds, **kept[make]})
        same_side = run(self.graph(doubled, f"{kind}backward"), {**feeds, **kept[single]})
        errors = {
            "outputs in float64": relative(kept[doubled]["logits"], z64),
            "pullback in float64": relative(gradient(bundle.layout, back[doubled]), exact),
            "outputs": relative(kept[single]["logits"], z64),
            "pullback on its side": relative(gradient(bundle.layout, back[single]), gradient(bundle.layout, same_side)),
            "pullback": relative(gradient(bundle.layout, back[single]), exact),
        }
        z32, pull32 = self.torch.vjp(self.w, x)
        errors["torch's outputs"], errors["torch's pullback"] = relative(z32, z64), relative(pull32(dz)[:k], exact)
        if bundle.input_gradient:
            dx64 = self.torch.input_gradient(wide(self.w), wide(x), wide(dz))
            dx = run(self.graph(doubled, "input_gradient"), feeds)["dx"]
            errors["gradient of x in float64"] = relative(dx, dx64)
        return errors
