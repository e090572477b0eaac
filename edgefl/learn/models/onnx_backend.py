"""The onnxruntime back-end: a bundle's graphs, with numpy and the stock onnxruntime package and nothing else.

Weights go in as slices of the flat vector and gradients come out into slices of a new one, both in place. What the
forward pass keeps for the pullback is written into arrays of ours and read from there, never copied.

What a graph declares never decides about memory: names, types and shapes are those of the layout and the batch
(`onnx_bindings`). onnxruntime refuses to write a result whose shape differs from that of the memory bound for it.
"""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import NamedTuple

import numpy as np
import onnxruntime

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, Layout, Vector, check
from edgefl.learn.models.onnx.bundle import Bundle
from edgefl.learn.models.onnx_bindings import Bindings
from edgefl.learn.models.onnx_descent import Lane, aligned_copy
from edgefl.learn.models.onnx_file import BOOL, DOUBLE, FLOAT, INT32, INT64
from edgefl.learn.models.onnx_guard import Signature
from edgefl.learn.models.onnx_handover import ForwardValues, cut, fresh
from edgefl.learn.models.onnx_masks import drawn
from edgefl.learn.models.onnx_session import loaded, run, run_options
from edgefl.learn.models.rule import Rule, StepPlan
from edgefl.learn.models.state_names import StateNames
from edgefl.system.resident_memory import release_code

ITEM = 4  # bytes per number
SLICE = 64  # samples per evaluation pass: bounds memory, whatever the size of the test set, and is no slower than more
MEMORY = 4 * 2**30
BATCH = 64  # for which a graph must fit into that memory
RESULTS = ("logits", "dx")  # what callers get; other outputs have a place of their own or are for the pullback
NOTHING = np.empty(0, np.float32)
TYPES = {FLOAT: np.float32, DOUBLE: np.float64, INT32: np.int32, INT64: np.int64, BOOL: np.bool_}


class OnnxModel:
    """A `Model` that runs on onnxruntime; a graph is checked and loaded when it is first needed."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int = 1,
        memory: int = MEMORY,
        batch: int = BATCH,
        outputs: int | None = None,
        frugal: bool = False,
        names: StateNames | None = None,
    ) -> None:
        """`memory` is what a graph may need for a `batch`, `outputs` how many the job says a sample has.

        `names` are those of the network's `state_dict`; without them only what is trained is known, by the layout's.
        `frugal` is for a process that does nothing else: what only loading needed leaves its memory.
        """
        np.empty(31 << 20, np.uint8)  # freeing one large block teaches glibc to keep our large vectors' pages
        self.layout = bundle.layout
        self._bundle = bundle
        self._names = names or StateNames.of(bundle.layout)
        self._frozen = {f"frozen.{name}": aligned_copy(array) for name, array in bundle.frozen.items()}
        self._threads, self._batch, self._frugal = threads, batch, frugal
        self._bindings = Bindings(bundle, memory, outputs)
        self._sessions: dict[str, GraphSession] = {}
        self._running = run_options()
        trained, k = len(self.layout.names) - self.layout.buffers, self.layout.trainable
        named = list(zip(self.layout.names, self.layout.slices, strict=True))
        self._places = {
            **{f"grad.{name}": s for name, s in named[:trained]},
            **{f"new.{name}": slice(s.start - k, s.stop - k) for name, s in named[trained:]},
        }
        self._lock = Lock()  # a binding holds the arguments of one call
        self._walker: onnxruntime.InferenceSession | None = None  # of whole steps
        self._lanes: list[Lane] = []  # which no training uses now

    def logits(self, w: Vector, x: Array) -> Array:
        """The outputs for `x`, in evaluation mode."""
        weights = self._weights(w)
        with self._lock:
            slices = [self._input(x[i : i + SLICE]) for i in range(0, max(len(x), 1), SLICE)]
            parts = [self._run("forward", weights, {"x": part}).result for part in slices]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        """The outputs in training mode, and the function that turns their gradient into the gradient of `w`.

        The pullback reads `w` and `x` where they are: they must not be written to before it is called. A batch of
        one sample has no variance: with BatchNorm it runs in evaluation mode and moves no statistic.
        """
        weights, k = self._weights(w), self.layout.trainable
        single = len(x) == 1 and bool(self._bundle.single_training)
        kind = "single_" if single else ""
        moved = np.zeros(self.layout.size - k, np.float32)
        with self._lock:
            self._signature(f"{kind}training", len(x))  # before anything is drawn that is as large as the bundle says
            feeds = {"x": self._input(x), **({} if single else drawn(self._bundle.masks, lambda: w, x))}
            z, kept = self._run(f"{kind}training", weights, feeds, moved)
        if not single:
            np.subtract(w[k:], moved, out=moved)

        def pullback(dz: Array) -> Vector:
            gradient = np.empty(self.layout.size, np.float32)
            gradient[k:] = moved
            seed = np.ascontiguousarray(dz, np.float32)
            if seed.shape != z.shape:
                raise ValueError(f"expected a gradient of shape {z.shape}, got {seed.shape}")
            with self._lock:
                self._run(f"{kind}backward", weights, {**feeds, "dz": seed}, gradient, kept)
                unused = self._sessions[f"{kind}backward"].unused
            for part in unused:
                gradient[part] = 0
            return gradient

        return z, pullback

    def descent(self, loss: str, rule: Rule, w: Vector) -> Lane | None:
        """A walk from `w` down this loss; None if there is no graph for such steps. Each thread may have its own."""
        if self._bundle.plan != StepPlan(loss, rule.terms):
            return None
        weights = self._weights(w)
        with self._lock:
            lane = self._lanes.pop() if self._lanes else self._lane()
        return lane.begin(weights, rule, self._running)

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:
        """The gradient of `x`, in evaluation mode, for this gradient of the outputs."""
        if not self._bundle.input_gradient:
            raise ConfigError(
                f"the model reads token ids ({x.dtype}), which have no gradient; "
                "choose an algorithm that needs none (fedreg and the privacy audit do)"
            )
        weights = self._weights(w)
        feeds = {"x": self._input(x), "dz": np.ascontiguousarray(dz, np.float32)}
        with self._lock:
            return self._run("input_gradient", weights, feeds).result

    def interrupt(self) -> None:
        """End the graph that runs after the operator it is at, and let none run until `resume`; from any thread."""
        self._running.terminate = True

    def resume(self) -> None:
        """Let graphs run again."""
        self._running = run_options()

    def tensors(self, w: Vector) -> dict[str, Array]:
        """What is trained, by name; what is frozen is part of the graphs, and here only if the names tell it."""
        return self._names.tensors(self.layout, w)

    def state_names(self) -> StateNames:
        """What its `state_dict` calls the entries of the layout, and what stands there besides."""
        return self._names

    def _weights(self, w: Vector) -> Vector:
        if w.dtype != np.float32:
            raise ValueError(f"expected weights in float32, got {w.dtype}")
        return np.ascontiguousarray(check(w, self.layout.size))

    def _input(self, x: Array) -> Array:
        if x.shape[1:] != self._bundle.shape:
            raise ValueError(f"expected samples of shape {self._bundle.shape}, got {x.shape[1:]}")
        return np.ascontiguousarray(x, self._bundle.dtype)

    def _run(
        self,
        graph: str,
        w: Vector,
        feeds: Mapping[str, Array],
        out: Vector | None = None,
        kept: ForwardValues | None = None,
    ) -> "GraphResult":
        signature = self._signature(graph, len(feeds["x"]))
        if graph not in self._sessions:
            kind = "grad." if graph.endswith("backward") else "new."
            places = {n: s for n, s in self._places.items() if n.startswith(kind)}
            self._tidy()  # before, so that what was needed for imports and what is needed now never add up
            file = getattr(self._bundle, graph)
            session = loaded(file, self._threads, frugal=self._frugal)
            self._sessions[graph] = GraphSession(session, signature, self.layout, places, self._frozen)
            self._tidy()
        return self._sessions[graph].run(signature, self._running, w, feeds, out, kept)

    def _lane(self) -> Lane:
        if self._walker is None:
            self._bindings.signature("descent", self._batch)  # it must fit for a whole batch
            self._tidy()
            self._walker = loaded(self._bundle.descent, self._threads, frugal=self._frugal)
            self._tidy()
        return Lane(self._bundle, self._walker, self._signed, self._lanes.append, self._frozen)

    def _signed(self, steps: int, batch: int) -> Signature:
        with self._lock:
            return self._bindings.signature("descent", batch, steps)

    def _signature(self, graph: str, rows: int) -> Signature:
        """Return what the graph binds for this batch; a training graph must at first fit a whole batch too."""
        if graph not in self._sessions and graph != "forward":
            self._bindings.signature(graph, max(rows, self._batch))
        return self._bindings.signature(graph, rows)

    def _tidy(self) -> None:
        if self._frugal:
            release_code()


class GraphSession:
    """One graph, loaded; its weights are read where they lie in the flat vector."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        signature: Signature,
        layout: Layout,
        places: Mapping[str, slice],
        frozen: Mapping[str, Array],
    ) -> None:
        """`places` tells which outputs are written to which part of the array given to `run`."""
        self._session = session
        self._binding = self._session.io_binding()
        where = {f"w.{n}": (s, shape) for n, s, shape in zip(layout.names, layout.slices, layout.shapes, strict=True)}
        inputs, outputs = signature.inputs, signature.outputs
        self._weights = [(name, where[name][0].start * ITEM, where[name][1]) for name in inputs if name in where]
        self._others = {name for name in inputs if name not in where}
        for name, array in frozen.items():
            if name in inputs:
                self._binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        self._into = [(n, places[n].start * ITEM, v.shape) for n, v in outputs.items() if n in places]
        self._result = next((n for n in RESULTS if n in outputs), None)
        self._kept = [n for n in outputs if n not in places and n not in RESULTS]
        self.unused = [s for n, s in places.items() if n not in outputs]
        self._cut = cut((), -1)
        self._bound: dict[str, object] = {}

    def run(  # noqa: PLR0917 - what a graph is given
        self,
        signature: Signature,
        options: onnxruntime.RunOptions,
        w: Vector,
        feeds: Mapping[str, Array],
        out: Vector | None = None,
        kept: ForwardValues | None = None,
    ) -> "GraphResult":
        """The graph's result, and what it hands over; what has a place in `out` is written there.

        `kept` is what another graph has handed over to this one. All memory is ours: what onnxruntime allocates for
        outputs dies with its binding, in some versions before we have read it.
        """
        bind = self._binding
        if self._moved("weights", at := w.ctypes.data):
            for name, offset, shape in self._weights:
                bind.bind_input(name, "cpu", 0, np.float32, shape, at + offset)
        for name in feeds.keys() & self._others:
            bind.bind_cpu_input(name, feeds[name])
        if kept and self._moved("kept", kept.place):
            for name in kept.cut.parts.keys() & self._others:
                part = kept.cut.parts[name]
                bind.bind_input(name, "cpu", 0, part.dtype, part.shape, kept.address(part))
        if out is not None and self._moved("out", at := out.ctypes.data):
            for name, offset, shape in self._into:
                bind.bind_output(name, "cpu", 0, np.float32, shape, at + offset)
        outcome = self._outcome(signature, len(feeds["x"]))
        run(self._session, bind, options)
        return outcome

    def _outcome(self, signature: Signature, batch: int) -> "GraphResult":
        """Return memory for the outputs of a run with this number of samples."""
        bind, result = self._binding, NOTHING
        if self._result:
            result = np.empty(signature.outputs[self._result].shape, np.float32)
            bind.bind_output(self._result, "cpu", 0, np.float32, result.shape, result.ctypes.data)
        if self._cut.batch != batch:
            kept = {name: signature.outputs[name] for name in self._kept}
            self._cut = cut(((name, TYPES[value.type], value.shape) for name, value in kept.items()), batch)
        block = fresh(self._cut)
        if self._moved("made", block.place):
            for name, part in block.cut.parts.items():
                bind.bind_output(name, "cpu", 0, part.dtype, part.shape, block.address(part))
        return GraphResult(result, block)

    def _moved(self, what: str, place: object) -> bool:
        """Whether it must be bound again; the allocator often gives the same memory again."""
        before, self._bound[what] = self._bound.get(what), place
        return before != place


class GraphResult(NamedTuple):
    """What a graph gives."""

    result: Array  # logits or dx
    kept: ForwardValues  # for the pullback
