"""The onnxruntime back-end: a bundle's graphs, with numpy and the stock onnxruntime package and nothing else.

Weights go in as slices of the flat vector and gradients come out into slices of a new one, both in place. What the
forward pass keeps for the pullback is written into arrays of ours and read from there, never copied.
"""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import NamedTuple
from zlib import crc32

import numpy as np
import onnxruntime

from edgefl.errors import ConfigError
from edgefl.frugal import release_code
from edgefl.models.onnx.bundle import Bundle
from edgefl.models.onnx_guard import size, verify
from edgefl.models.onnx_handover import Kept, cut, fresh
from edgefl.vector import Array, Layout, Vector, check

ITEM = 4  # bytes per number
SLICE = 64  # samples per evaluation pass: bounds memory, whatever the size of the test set, and is no slower than more
MEMORY = 4 * 2**30
BATCH = 64  # for which a graph must fit into that memory
RESULTS = ("logits", "dx")  # what callers get; other outputs have a place of their own or are for the pullback
NOTHING = np.empty(0, np.float32)
TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


class OnnxModel:
    """A `Model` that runs on onnxruntime; a graph is checked and loaded when it is first needed."""

    def __init__(
        self, bundle: Bundle, *, threads: int = 1, memory: int = MEMORY, batch: int = BATCH, frugal: bool = False
    ) -> None:
        """`frugal` is for a process that does nothing else: what only loading needed leaves its memory."""
        np.empty(31 << 20, np.uint8)  # freeing one large block teaches glibc to keep our large vectors' pages
        self.layout = bundle.layout
        self._bundle = bundle
        self._threads, self._memory, self._batch, self._frugal = threads, memory, batch, frugal
        self._sessions: dict[str, Session] = {}
        self._checked: dict[str, int] = {}  # for how many samples a graph is known to fit
        trained, k = len(self.layout.names) - self.layout.buffers, self.layout.trainable
        named = list(zip(self.layout.names, self.layout.slices, strict=True))
        self._places = {
            **{f"grad.{name}": s for name, s in named[:trained]},
            **{f"new.{name}": slice(s.start - k, s.stop - k) for name, s in named[trained:]},
        }
        self._lock = Lock()  # a binding holds the arguments of one call

    def logits(self, w: Vector, x: Array) -> Array:
        """The outputs for `x`, in evaluation mode."""
        weights = self._weights(w)
        with self._lock:
            forward = self._session("forward", min(len(x), SLICE))
            parts = [
                forward.run(weights, {"x": self._input(x[i : i + SLICE])}).result
                for i in range(0, max(len(x), 1), SLICE)
            ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        """The outputs in training mode, and the function that turns their gradient into the gradient of `w`.

        The pullback reads `w` and `x` where they are: they must not be written to before it is called. A batch of
        one sample has no variance: with BatchNorm it runs in evaluation mode and moves no statistic.
        """
        weights, k = self._weights(w), self.layout.trainable
        single = len(x) == 1 and bool(self._bundle.single_training)
        kind = "single_" if single else ""
        feeds = {"x": self._input(x), **({} if single else self._masks(w, x))}
        moved = np.zeros(self.layout.size - k, np.float32)
        with self._lock:
            ahead = self._session(f"{kind}training", max(len(x), self._batch))
            z, kept = ahead.run(weights, feeds, moved)
        if not single:
            np.subtract(w[k:], moved, out=moved)

        def pullback(dz: Array) -> Vector:
            gradient = np.empty(self.layout.size, np.float32)
            gradient[k:] = moved
            seed = np.ascontiguousarray(dz, np.float32)
            if seed.shape != z.shape:
                raise ValueError(f"expected a gradient of shape {z.shape}, got {seed.shape}")
            with self._lock:
                behind = self._session(f"{kind}backward", max(len(x), self._batch))
                behind.run(weights, {**feeds, "dz": seed}, gradient, kept)
            for unused in behind.unused:
                gradient[unused] = 0
            return gradient

        return z, pullback

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
            return self._session("input_gradient", max(len(x), self._batch)).run(weights, feeds).result

    def tensors(self, w: Vector) -> dict[str, Array]:
        """What is trained, by name; what is frozen is part of the graphs."""
        return self.layout.layers(w)

    def _weights(self, w: Vector) -> Vector:
        if w.dtype != np.float32:
            raise ValueError(f"expected weights in float32, got {w.dtype}")
        return np.ascontiguousarray(check(w, self.layout.size))

    def _input(self, x: Array) -> Array:
        if x.shape[1:] != self._bundle.shape:
            raise ValueError(f"expected samples of shape {self._bundle.shape}, got {x.shape[1:]}")
        return np.ascontiguousarray(x, self._bundle.dtype)

    def _masks(self, w: Vector, x: Array) -> dict[str, Array]:
        """Dropout masks, drawn from a stream that depends on nothing but `w` and `x`."""
        if not self._bundle.masks:
            return {}
        some = w[:: 1 + len(w) // 1024].tobytes()
        rng = np.random.Generator(np.random.PCG64(crc32(some, crc32(x.tobytes()))))
        drawn = {}
        for mask in self._bundle.masks:
            shape = [-d * len(x) if d < 0 else d for d in mask.shape]
            drawn[mask.name] = (rng.random(shape, np.float32) < mask.keep).astype(np.float32)
        return drawn

    def _session(self, graph: str, rows: int) -> "Session":
        """The graph, ready for so many samples."""
        data: bytes = getattr(self._bundle, graph)
        if rows > self._checked.get(graph, -1):
            verify(data, batch=rows, limit=self._memory)
            self._checked[graph] = rows
        if graph not in self._sessions:
            kind = "grad." if graph.endswith("backward") else "new."
            places = {n: s for n, s in self._places.items() if n.startswith(kind)}
            self._tidy()  # before, so that what was needed for imports and what is needed now never add up
            self._sessions[graph] = Session(data, self.layout, places, self._threads)
            self._tidy()
        return self._sessions[graph]

    def _tidy(self) -> None:
        if self._frugal:
            release_code()


class Session:
    """One graph, loaded; its weights are read where they lie in the flat vector."""

    def __init__(self, graph: bytes, layout: Layout, places: Mapping[str, slice], threads: int) -> None:
        """`places` tells which outputs are written to which part of the array given to `run`."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        options.enable_mem_pattern = False  # planned memory is a second copy of the arena's: megabytes, and no faster
        # One level below the highest, which only adds a memory layout that pays off where weights are constants.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # an idle device should be idle
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._binding = self._session.io_binding()
        inputs = [i.name for i in self._session.get_inputs()]
        where = {f"w.{n}": (s, shape) for n, s, shape in zip(layout.names, layout.slices, layout.shapes, strict=True)}
        self._weights = [(name, where[name][0].start * ITEM, where[name][1]) for name in inputs if name in where]
        self._others = {name for name in inputs if name not in where}
        outputs = {o.name: o for o in self._session.get_outputs()}
        self._into = [(n, places[n].start * ITEM, o.shape) for n, o in outputs.items() if n in places]
        self._result = next(((n, outputs[n].shape) for n in RESULTS if n in outputs), None)
        self._kept = [(n, TYPES[o.type], o.shape) for n, o in outputs.items() if n not in places and n not in RESULTS]
        self.unused = [s for n, s in places.items() if n not in outputs]
        self._cut = cut(self._kept, 0)
        self._bound: dict[str, object] = {}

    def run(
        self, w: Vector, feeds: Mapping[str, Array], out: Vector | None = None, kept: Kept | None = None
    ) -> "Outcome":
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
        outcome = self._outcome(len(feeds["x"]))
        self._session.run_with_iobinding(bind)
        return outcome

    def _outcome(self, batch: int) -> "Outcome":
        """Memory for what a run with so many samples gives."""
        bind, result = self._binding, NOTHING
        if self._result:
            name, dims = self._result
            result = np.empty([size(d, batch) for d in dims], np.float32)
            bind.bind_output(name, "cpu", 0, np.float32, result.shape, result.ctypes.data)
        if self._cut.batch != batch:
            self._cut = cut(self._kept, batch)
        made = fresh(self._cut)
        if self._moved("made", made.place):
            for name, part in made.cut.parts.items():
                bind.bind_output(name, "cpu", 0, part.dtype, part.shape, made.address(part))
        return Outcome(result, made)

    def _moved(self, what: str, place: object) -> bool:
        """Whether it must be bound again; the allocator often gives the same memory again."""
        before, self._bound[what] = self._bound.get(what), place
        return before != place


class Outcome(NamedTuple):
    """What a graph gives."""

    result: Array  # logits or dx
    kept: Kept  # for the pullback
