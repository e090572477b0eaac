"""Walking with a bundle's graph of whole steps: weights in, weights out, nothing bound or copied in between.

A lane has two sets of weights. A call reads one and writes the other, the next call goes back the other way: both
directions are bound once. Each tensor begins at a line of the cache, as onnxruntime allocates it: some kernels sum in
another order elsewhere. The number of steps in a call must not change a bit.

Lanes share a session and nothing else, so each thread can walk in its own.
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnxruntime

from edgefl.base.vector import Array, Layout, Vector, check
from edgefl.learn.models.onnx.bundle import Bundle
from edgefl.learn.models.onnx_file import INT64
from edgefl.learn.models.onnx_guard import Signature
from edgefl.learn.models.onnx_masks import drawn
from edgefl.learn.models.onnx_session import run, run_options
from edgefl.learn.models.rule import Rule

LINE = 64  # bytes of the cache
STEPS = 16  # of one call, at most: then a call costs nothing beside them
SAMPLES = 2**20  # bytes of one call: they stay in the cache until their step
LARGE = 2**20  # weights: their steps are so long that each may have a call of its own

Signed: TypeAlias = Callable[[int, int], Signature]  # what the graph binds for each number of mini-batches of this size


class BoundCall(NamedTuple):
    """All that is bound for calls of one size, and where its arguments are written."""

    ways: tuple[onnxruntime.IOBinding, onnxruntime.IOBinding]  # from the first set of weights to the second, and back
    x: Array
    y: Array
    gain: Array
    losses: Array
    masks: dict[str, Array]


class Lane:
    """A `Descent` on onnxruntime. It is used by one thread at a time, and again by the next walk."""

    def __init__(
        self,
        bundle: Bundle,
        session: onnxruntime.InferenceSession,
        signed: Signed,
        closed: Callable[["Lane"], None],
        frozen: dict[str, Array],
    ) -> None:
        self._bundle, self._session, self._signed, self._closed = bundle, session, signed, closed
        self._frozen = frozen
        self.outputs = bundle.outputs
        self._sample = prod(bundle.shape) * np.dtype(bundle.dtype).itemsize  # bytes
        self._places, size = padded(bundle.layout)
        terms = bundle.plan.terms if bundle.plan else ()
        sets = 2 if "momentum" in terms else 1  # the weights, and their velocity
        self._weights = aligned((sets, size), np.float32), aligned((sets, size), np.float32)
        self._anchor = aligned((size,) if "pull" in terms else (0,), np.float32)
        self._scalars = {term: np.zeros((), np.float32) for term in terms}
        self._calls: dict[tuple[int, int], BoundCall] = {}
        self._samples: dict[int, Array] = {}  # by the size of a mini-batch: calls of any length write here
        self._at, self._rate, self._options = 0, 0.0, run_options()

    def begin(self, w: Vector, rule: Rule, options: onnxruntime.RunOptions) -> "Lane":
        """Stand at `w`, with no velocity."""
        check(w, self._bundle.layout.size)
        self._at, self._rate, self._options = 0, rule.lr, options
        weights, velocity = self._weights[0][0], self._weights[0][1:]
        for part, place in zip(self._bundle.layout.slices, self._places, strict=True):
            weights[place] = w[part]
        velocity[:] = 0
        if self._anchor.size:
            self._anchor[:] = weights
        sizes = {"pull": rule.lr * rule.pull, "decay": -rule.lr * rule.weight_decay, "momentum": rule.momentum}
        for term, scalar in self._scalars.items():
            scalar[...] = sizes[term]
        return self

    def most(self, batch: int) -> int:
        """How many mini-batches of this size one call takes; it depends on sizes alone, and changes no bit."""
        size = batch * self._sample
        if self._bundle.masks or self._bundle.layout.size > LARGE or size % LINE:
            return 1  # masks follow from the weights before their step; samples lie as they would alone
        return max(1, min(STEPS, SAMPLES // size))

    def take(self, x: Array, y: Array, rows: Array) -> Array:
        """One step for each row of `rows`, which numbers the samples of a mini-batch; their losses."""
        if x.shape[1:] != self._bundle.shape:
            raise ValueError(f"expected samples of shape {self._bundle.shape}, got {x.shape[1:]}")
        steps, batch = rows.shape
        call = self._calls.get((steps, batch)) or self._bound(steps, batch)
        gather(x, rows, call.x)
        gather(y.reshape(len(y), *call.y.shape[2:]), rows, call.y)
        call.gain[...] = -self._rate / batch
        for name, mask in drawn(self._bundle.masks, self.params, call.x[0]).items():
            call.masks[name][...] = mask
        run(self._session, call.ways[self._at], self._options)
        self._at = 1 - self._at
        return np.asarray(call.losses / np.float32(batch))

    def back(self) -> None:
        """Undo the last call, whose weights are still there."""
        self._at = 1 - self._at

    def is_finite(self) -> bool:
        """Whether all weights are; what lies between the tensors is zero."""
        w = self._weights[self._at][0]
        return bool(np.isfinite(np.dot(w, w)))

    def params(self) -> Vector:
        """The weights now."""
        w, here = np.empty(self._bundle.layout.size, np.float32), self._weights[self._at][0]
        for part, place in zip(self._bundle.layout.slices, self._places, strict=True):
            w[part] = here[place]
        return w

    def close(self) -> None:
        """Leave its memory to the next walk."""
        self._closed(self)

    def _bound(self, steps: int, batch: int) -> BoundCall:
        """Memory and bindings for calls of a new size, once the graph has been checked for it."""
        signature = self._signed(steps, batch)
        inputs = signature.inputs
        if len(self._samples.get(batch, ())) < steps:
            room = max(steps, self.most(batch)), batch, *self._bundle.shape
            self._samples[batch] = aligned(room, self._bundle.dtype)
        x = self._samples[batch][:steps]
        y = aligned(inputs["ys"].shape, np.int64 if inputs["ys"].type == INT64 else np.float32)
        masks = {mask.name: aligned(inputs[mask.name].shape, np.float32) for mask in self._bundle.masks}
        gain, losses = np.zeros((), np.float32), np.zeros(steps, np.float32)
        fixed = {"xs": x, "ys": y, "gain": gain, **self._scalars, **masks, **self._frozen}
        there, back = (self._way(signature, fixed, losses, at) for at in (0, 1))
        self._calls[steps, batch] = BoundCall((there, back), x, y, gain, losses, masks)
        return self._calls[steps, batch]

    def _way(self, signature: Signature, fixed: dict[str, Array], losses: Array, at: int) -> onnxruntime.IOBinding:
        """The binding that reads one set of weights and writes the other."""
        binding, layout = self._session.io_binding(), self._bundle.layout
        for name, array in fixed.items():
            if name in signature.inputs:
                binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        binding.bind_output("losses", "cpu", 0, np.float32, losses.shape, losses.ctypes.data)
        here, there = self._weights[at], self._weights[1 - at]
        read = {"from.": here[0], "velocity_from.": here[-1], "anchor.": self._anchor}
        written = {"to.": there[0], "velocity_to.": there[-1]}
        for name, shape, place in zip(layout.names, layout.shapes, self._places, strict=True):
            for prefix, memory in read.items():
                if prefix + name in signature.inputs:
                    binding.bind_input(prefix + name, "cpu", 0, np.float32, shape, memory[place].ctypes.data)
            for prefix, memory in written.items():
                if prefix + name in signature.outputs:
                    binding.bind_output(prefix + name, "cpu", 0, np.float32, shape, memory[place].ctypes.data)
        return binding


def padded(layout: Layout) -> tuple[list[slice], int]:
    """Where each tensor lies if each begins at a line of the cache, and how many numbers that takes."""
    places, at, numbers = list[slice](), 0, LINE // 4
    for part in layout.slices:
        count = part.stop - part.start
        places.append(slice(at, at + count))
        at += -(-count // numbers) * numbers
    return places, at


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros that begin at a line of the cache; `dtype` is any that numpy understands."""
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return np.asarray(memory[start : start + size].view(dtype).reshape(shape))


def aligned_copy(array: Array) -> Array:
    """The same numbers, from a line of the cache on."""
    copy = aligned(array.shape, np.float32)
    copy[...] = array
    return copy


def gather(table: Array, rows: Array, out: Array) -> None:
    """These rows of the table, in place."""
    if table.dtype == out.dtype:
        np.take(table, rows, axis=0, out=out, mode="clip")  # all rows exist; to look first, numpy would need a copy
    else:
        np.copyto(out, table[rows], casting="unsafe")
