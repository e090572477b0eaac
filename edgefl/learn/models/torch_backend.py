"""The torch back-end: any `nn.Module`, its weights lifted out into one flat vector.

A call puts slices of `w` where the module looks for its parameters, runs it, and puts the old ones back. That is
what `torch.func.functional_call` does too, but the places are found once, not at every step. The slices are cut
from a private copy, so a pullback stays valid whatever the caller does with `w`, `x` or other calls meanwhile.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, Layout, Vector, check
from edgefl.learn.models.copies import check_kept, copied
from edgefl.learn.models.norms import norm_tensors
from edgefl.learn.models.state_names import StateNames
from edgefl.learn.models.torch_rows import OnRows

SLICE = 512  # samples per evaluation pass: bounds memory, whatever the size of the test set
DTYPES = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}

# What people put around a module, and where that is then.
WRAPPED = {
    "OptimizedModule": "what was given to torch.compile (model._orig_mod)",
    "RecursiveScriptModule": "what was given to torch.jit.script",
    "TopLevelTracedModule": "what was given to torch.jit.trace",
    "DataParallel": "model.module",
    "DistributedDataParallel": "model.module",
    "FullyShardedDataParallel": "the module that was sharded",
}


def use_threads(count: int) -> None:
    """Let the calling thread compute with this number of threads, which decides the order of sums.

    OpenMP keeps the number for each calling thread, so it is not enough to set it once. Asking takes 30 ns, and makes
    torch pass the number on to a thread that is new; parts of torch compute without asking.
    """
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


def tensors_of(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The trainable parameters and the statistics, by name, in module order; a tied tensor appears once.

    Frozen parameters and integer counters are neither: they stay what they are.
    """
    params: dict[str, Tensor] = {n: p for n, p in module.named_parameters() if p.requires_grad}
    return params, {n: b for n, b in module.named_buffers() if b.is_floating_point()}


def frozen_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the frozen parameters by name; a tied tensor appears once."""
    return {n: p for n, p in module.named_parameters() if not p.requires_grad and p.is_floating_point()}


def layout_of(module: nn.Module) -> Layout:
    """Names and shapes of the flat vector: trainable parameters first, statistics last."""
    check_module(module)
    params, statistics = tensors_of(module)
    both = params | statistics
    layout = Layout(tuple(both), tuple(tuple(t.shape) for t in both.values()), len(statistics))
    return replace(layout, norms=norm_tensors(module, layout))


def initial_params(module: nn.Module) -> Vector:
    """The weights the module has now, as one float32 vector."""
    params, statistics = tensors_of(module)
    both = params | statistics
    return layout_of(module).flatten({n: t.detach().cpu().float().numpy() for n, t in both.items()})


def takes_tokens(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether samples of this shape are rows of token ids for this module, to the best of our knowledge."""
    if isinstance(module, OnRows) and module.form.inputs:
        return False  # rows of several inputs are real numbers, ids among them
    return len(shape) == 1 and any(isinstance(m, nn.Embedding | nn.EmbeddingBag) for m in module.modules())


def check_module(module: nn.Module) -> None:
    """Refuse a module whose training is not a function of its weights and one batch."""
    kind = type(module).__name__
    if (inside := WRAPPED.get(kind)) is not None:
        raise ConfigError(f"model {kind} wraps another module, which alone can be exported: give {inside}")
    if any(t.is_meta for t in (*module.parameters(), *module.buffers())):
        raise ConfigError(f"model {kind} has weights on the device 'meta', which are no numbers: make it without that")
    if any(is_lazy(t) for t in (*module.parameters(), *module.buffers())):
        raise ConfigError(f"model {kind} has lazy layers: give them their sizes, or run it once in its factory")
    if not any(p.requires_grad for p in module.parameters()):
        raise ConfigError(f"model {kind} has no trainable parameter: nothing could be learned")
    check_kept(module)
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and layer.momentum is None:
            raise ConfigError(
                f"model {kind}: {name or kind} has momentum=None, an average over all batches ever seen, "
                "which no vector can carry; give it a momentum, e.g. 0.1"
            )
        if isinstance(layer, _BatchNorm) and not layer.track_running_stats:
            raise ConfigError(
                f"model {kind}: {name or kind} has track_running_stats=False, so an answer depends on the other "
                "samples of its batch; switch it on, or use GroupNorm"
            )


class TorchModel:
    """A `Model` that runs on torch. It keeps a copy of the module, for its structure only."""

    def __init__(self, module: nn.Module, *, threads: int = 1, device: str = "cpu") -> None:
        self.threads = threads
        np.empty(31 << 20, np.uint8)  # freeing one large block teaches glibc to keep our large vectors' pages
        self.layout = layout_of(module)
        self._module = copied(module).to(torch.device(device), torch.float32)
        self._device = torch.device(device)
        self._dtype = torch.float32
        self._places = places(self._module)
        self._sizes = [s.stop - s.start for s in self.layout]
        self._batch_norm = any(isinstance(m, _BatchNorm) for m in self._module.modules())
        self._random = True  # until a pass in training mode has drawn nothing
        # Integers as they were made: BatchNorm counts the batches it sees, which says nothing about the weights.
        self._integers = {
            name: buffer.cpu().numpy().copy()
            for name, buffer in self._module.named_buffers(remove_duplicate=False)
            if not buffer.is_floating_point()
        }
        self._lock = Lock()  # the module is a workbench: one call at a time

    def reads_tokens(self, shape: tuple[int, ...]) -> bool:
        """Whether samples of this shape are rows of token ids for it, to the best of our knowledge."""
        return takes_tokens(self._module, shape)

    def logits(self, w: Vector, x: Array) -> Array:
        """The outputs for `x`, in evaluation mode."""
        use_threads(self.threads)
        with self._lock, torch.no_grad():
            tensors = self._cut(w)
            parts = [
                self._run(tensors, self._input(x[i : i + SLICE]), training=False).cpu().numpy()
                for i in range(0, max(len(x), 1), SLICE)
            ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def vjp(self, w: Vector, x: Array) -> tuple[Array, Callable[[Array], Vector]]:
        """The outputs in training mode, and the function that turns their gradient into the gradient of `w`.

        A batch of one sample has no variance: with BatchNorm it runs in evaluation mode and moves no statistic.
        """
        k = self.layout.trainable
        use_threads(self.threads)
        with self._lock:
            tensors = self._cut(w)
            params = tensors[: len(tensors) - self.layout.buffers]
            for p in params:
                p.requires_grad_()
            if self._batch_norm and len(x) == 1:
                z = self._run(tensors, self._input(x), training=False)
            else:
                z = self._train(tensors, w, x)
            dtype = self._dtype
        statistics = [t.cpu().numpy().ravel() for t in tensors[len(params) :]]
        move = w[k:] - np.concatenate(statistics) if statistics else None

        def pullback(dz: Array) -> Vector:
            use_threads(self.threads)  # again: another thread may pull back than went forward
            seed = torch.tensor(np.ascontiguousarray(dz), dtype=dtype, device=z.device)
            parts = torch.autograd.grad(z, params, seed, retain_graph=True, materialize_grads=True)
            flat = [g.reshape(-1) for g in parts]
            if move is not None:
                flat.append(torch.tensor(move, dtype=dtype, device=z.device))
            return np.asarray(torch.cat(flat).cpu().numpy())

        return z.detach().cpu().numpy().copy(), pullback  # a copy: the graph may still need its own

    def input_gradient(self, w: Vector, x: Array, dz: Array) -> Array:
        """The gradient of `x`, in evaluation mode, for this gradient of the outputs."""
        if x.dtype.kind in "iu":
            raise ConfigError(
                f"model {type(self._module).__name__} reads token ids ({x.dtype}), which have no gradient; "
                "choose an algorithm that needs none (fedreg and the privacy audit do)"
            )
        use_threads(self.threads)
        with self._lock:
            tensors = self._cut(w)
            leaf = self._input(x).requires_grad_()
            z = self._run(tensors, leaf, training=False)
            seed = torch.tensor(np.ascontiguousarray(dz), dtype=self._dtype, device=self._device)
        (g,) = torch.autograd.grad(z, [leaf], seed)
        return np.asarray(g.cpu().numpy())

    def tensors(self, w: Vector) -> dict[str, Array]:
        """The module's `state_dict` with these weights: frozen parameters, counters and tied tensors included."""
        return self.state_names().tensors(self.layout, w)

    def state_names(self) -> StateNames:
        """What its `state_dict` calls the entries of the layout, and what stands there besides."""
        with self._lock:
            trained, statistics = tensors_of(self._module)
            names = {id(tensor): name for name, tensor in (trained | statistics).items()}
            held = self._module.state_dict(keep_vars=True)  # the tensors themselves, so that they are known again
            learnt = {n: names[id(t)] for n, t in held.items() if id(t) in names}
            rest = {n: t.detach().cpu().numpy() for n, t in held.items() if n not in learnt and isinstance(t, Tensor)}
            return StateNames(learnt, rest | {n: a for n, a in self._integers.items() if n in held})

    def _cut(self, w: Vector) -> list[Tensor]:
        """Private tensors with the numbers of `w`, one per entry of the layout."""
        check(w, self.layout.size)
        dtype = DTYPES.get(w.dtype)
        if dtype is None:
            raise ValueError(f"expected weights in float32 or float64, got {w.dtype}")
        if dtype != self._dtype:  # for constants and frozen parameters; only tests come here
            self._module.to(dtype)
            self._dtype = dtype
        whole = torch.tensor(w, device=self._device)
        tensors = [t.view(s) for t, s in zip(torch.split(whole, self._sizes), self.layout.shapes, strict=True)]
        first = len(tensors) - self.layout.buffers
        # Statistics are written to in place; memory of their own keeps autograd from suspecting the weights.
        return [*tensors[:first], *(t.clone() for t in tensors[first:])]

    def _input(self, x: Array) -> Tensor:
        dtype = torch.int64 if x.dtype.kind in "iu" else self._dtype
        return torch.tensor(np.ascontiguousarray(x), dtype=dtype, device=self._device)

    def _run(self, tensors: Sequence[Tensor], x: Tensor, *, training: bool) -> Tensor:
        if self._module.training != training:
            self._module.train(training)
        before = [where[key] for where, key, _ in self._places]
        try:
            for where, key, i in self._places:
                where[key] = tensors[i]
            z: Any = self._module(x)  # Any: whatever it gives
            if not isinstance(z, Tensor):
                raise ConfigError(
                    f"model {type(self._module).__name__} gives a {type(z).__name__}; return one tensor (its"
                    " logits), or several by name with task.kind = 'heads'"
                )
            return z
        finally:
            for (where, key, _), tensor in zip(self._places, before, strict=True):
                where[key] = tensor

    def _train(self, tensors: Sequence[Tensor], w: Vector, x: Array) -> Tensor:
        """A pass in training mode; what it draws (dropout) depends on nothing but `w` and `x`."""
        if not self._random:
            return self._run(tensors, self._input(x), training=True)
        some = w[:: 1 + len(w) // 1024].tobytes()
        cuda = self._device.type == "cuda"
        with torch.random.fork_rng(devices=[self._device] if cuda else []):
            torch.manual_seed(crc32(some, crc32(x.tobytes())))
            start = torch.get_rng_state()
            z = self._run(tensors, self._input(x), training=True)
            self._random = cuda or not torch.equal(start, torch.get_rng_state())
        return z


def places(module: nn.Module) -> list[tuple[dict[str, Any], str, int]]:
    """Where the module looks for each tensor of its layout: dictionary, key, number; a tied tensor has several.

    Any: torch declares its dictionaries for parameters only, and we put plain tensors there, as functional_call does.
    """
    params, statistics = tensors_of(module)
    number = {id(t): i for i, t in enumerate([*params.values(), *statistics.values()])}
    return [
        (where, name, number[id(t)])
        for layer in module.modules()
        for where in (layer._parameters, layer._buffers)  # noqa: SLF001 - torch has no public way that is as cheap
        for name, t in where.items()
        if id(t) in number
    ]
