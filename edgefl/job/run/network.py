"""The network of a run: made once, with torch, and from then on carried without it as weights, graphs and names.

    make     build the module, export it, and ask both back-ends the same questions (needs torch)
    pack     what another process can go on with, without torch
    serve    the coordinator's own model: the graphs that devices train from, unless the run wants torch
    train    the same network as devices run it

All drivers evaluate and merge on what `serve` gives, so their numbers are the same to the last bit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefl.base.vector import Array, State, Vector
from edgefl.job.config.schema import RunFile
from edgefl.learn import losses
from edgefl.learn.contract import traits_of
from edgefl.learn.data.generated import made_up
from edgefl.learn.models import processor
from edgefl.learn.models.agreement import check_agreement
from edgefl.learn.models.base import Model
from edgefl.learn.models.build import build, build_module
from edgefl.learn.models.onnx.bundle import pack as pack_graphs
from edgefl.learn.models.onnx.bundle import unpack as unpack_graphs
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.models.rule import StepPlan
from edgefl.learn.models.state_names import Named, StateNames
from edgefl.learn.tasks.fields import width
from edgefl.learn.tasks.form import PLAIN, Form
from edgefl.learn.training.descent import step_plan
from edgefl.system import store

TRIAL_SAMPLES = 16  # on which the networks of coordinator and devices are compared
_START, _GRAPHS, _FIXED = "start", "graphs", "fixed/"


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """What a network takes and gives, and the samples that are at hand to try it on (none: an empty array)."""

    sample: tuple[int, ...]
    classes: int
    targets: int
    like: Array
    form: Form = PLAIN

    @property
    def outputs(self) -> int:
        """How many numbers it gives for a sample."""
        return width(self.form.outputs) or self.classes or self.targets

    @property
    def labels(self) -> str:
        """Explain the expected number of outputs, for the error message of a network with another number."""
        if self.form.kind:
            return ""
        if self.classes == 2:
            return "labels are classes 0 and 1; for a single logit give task.kind = 'multilabel' and labels (n, 1)"
        if self.classes:
            return f"labels are classes 0 to {self.classes - 1}; if there are more, task.classes says how many"
        number = "a real number" if self.targets == 1 else f"{self.targets} real numbers"
        return f"labels are {number} for each sample; classes are integers 0, 1, 2, ... in an array of shape (n,)"


@dataclass(frozen=True, slots=True)
class Network:
    """Everything about it that takes torch to find out."""

    start: Vector  # the first weights
    graphs: bytes | None  # the ONNX bundle that devices run, unless they bring PyTorch
    names: StateNames


def make(run: RunFile, shape: NetworkShape) -> Network:
    """The network, if what the coordinator computes is what devices compute."""
    compute, task = run.compute, run.task
    what = task.model, shape.sample, shape.outputs, run.run.seed
    how: dict[str, Any] = {"threads": compute.threads, "device": compute.device}
    model, start = build(*what, **how, form=shape.form, labels=shape.labels)
    like = shape.like
    if not len(like) and model.reads_tokens(shape.sample):
        like = np.zeros((0, *shape.sample), np.int64)
    plan = step_plan(run.make_algorithm(), shape.form.loss(losses.loss(task.loss)))
    graphs = export_graphs(*what, like=like, plan=plan, form=shape.form) if task.backend == "onnx" else None
    network = Network(start, graphs, model.state_names())
    masked = graphs is not None and bool(unpack_graphs(graphs).masks)  # it draws dropout masks in a way of its own
    samples = _trial_samples(like, shape.classes)
    check_agreement(task.model, model, train(run, shape, network), start, samples, masked=masked)
    return network


def serve(run: RunFile, shape: NetworkShape, network: Network) -> Model:
    """The coordinator's own model."""
    if network.graphs is None or wants_torch(run):
        return _built(run, shape)
    return OnnxModel(unpack_graphs(network.graphs), threads=run.compute.threads, names=network.names)


def train(run: RunFile, shape: NetworkShape, network: Network) -> Model:
    """The network as devices make it for themselves."""
    if network.graphs is None:
        return _built(run, shape)
    return OnnxModel(unpack_graphs(network.graphs), threads=run.compute.threads)


def of(start: Vector, graphs: bytes | None, served: Model) -> Network:
    """The network that a model was served from."""
    return Network(start, graphs, served.state_names() if isinstance(served, Named) else StateNames.of(served.layout))


def wants_torch(run: RunFile) -> bool:
    """Whether the coordinator computes with torch: on a GPU, for a stage that asks for it, or as its devices do."""
    asked = any(traits_of(stage).needs_torch for stage in run.make_stages())
    return run.task.backend == "torch" or asked or processor.chosen(run.compute.device) != processor.CPU


def pack(network: Network) -> bytes:
    """As bytes that know whether they are whole."""
    arrays: State = {_START: network.start, **{_FIXED + name: one for name, one in network.names.fixed.items()}}
    if network.graphs is not None:
        arrays[_GRAPHS] = np.frombuffer(network.graphs, np.uint8)
    return store.sealed(arrays, {"learnt": dict(network.names.learnt)})


def unpack(data: bytes, origin: str) -> Network:
    """The network in these bytes; `origin` stands in the message if they are damaged."""
    arrays, about = store.opened(data, origin)
    fixed = {name.removeprefix(_FIXED): one for name, one in arrays.items() if name.startswith(_FIXED)}
    graphs = arrays[_GRAPHS].tobytes() if _GRAPHS in arrays else None
    return Network(arrays[_START], graphs, StateNames(about["learnt"], fixed))


def export_graphs(  # noqa: PLR0917 - a network, and what devices do with it
    network: str,
    sample: tuple[int, ...],
    classes: int,
    seed: int,
    like: Array,
    plan: StepPlan | None = None,
    form: Form = PLAIN,
) -> bytes:
    """The graphs that devices train from, packed; what is frozen in the network follows from the seed, as here."""
    from edgefl.learn.models.onnx_export import export  # noqa: PLC0415 - needs torch, which waits until a network is made

    dtype = "int64" if like.dtype.kind in "iu" else "float32"
    return pack_graphs(export(build_module(network, sample, classes, seed, form), sample, dtype=dtype, plan=plan))


def _built(run: RunFile, shape: NetworkShape) -> Model:
    compute = run.compute
    what = run.task.model, shape.sample, shape.outputs, run.run.seed
    return build(*what, threads=compute.threads, device=compute.device, form=shape.form)[0]


def _trial_samples(like: Array, classes: int) -> Array:
    """A few samples to compare networks on, half of them real ones from all over the data, if there are enough.

    The other half is made up, and of length one: real ones may be so large that they hide a difference.
    """
    half = TRIAL_SAMPLES // 2
    artificial: Array = made_up(like.shape[1:], classes, like, seed=0, name="agreement", count=TRIAL_SAMPLES).x
    if len(like) < half:
        return artificial
    return np.concatenate([like[np.linspace(0, len(like) - 1, half).astype(int)], artificial[half:].astype(like.dtype)])
