"""From any torch module to a bundle of plain ONNX graphs that compute its outputs and their pullback.

The module is traced together with its gradient (`onnx.tracing`), and each torch operator is translated to standard
ONNX (`onnx.translate`). Then the joint graph is cut where the gradient of the outputs comes in (`onnx.split`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.modules.batchnorm import _BatchNorm

from edgefl.base.errors import ConfigError
from edgefl.learn.models.copies import copied
from edgefl.learn.models.onnx.bundle import Bundle, Mask
from edgefl.learn.models.onnx.descent import Traced, descent
from edgefl.learn.models.onnx.graph import Graph, Value
from edgefl.learn.models.onnx.sizes import UncoveredError, is_symbolic, multiple, static
from edgefl.learn.models.onnx.split import OPSET, assemble, cut, needed, types
from edgefl.learn.models.onnx.tracing import BATCH, trace
from edgefl.learn.models.onnx.translate import translate
from edgefl.learn.models.rule import StepPlan
from edgefl.learn.models.source_lines import model_line, reason
from edgefl.learn.models.torch_backend import frozen_tensors, layout_of, tensors_of
from edgefl.learn.models.torch_rows import OnRows

Named: TypeAlias = dict[str, Tensor]
DTYPES = {"float32": torch.float32, "int64": torch.int64}


def export(
    module: nn.Module, shape: tuple[int, ...], *, dtype: str = "float32", plan: StepPlan | None = None
) -> Bundle:
    """The bundle of a module whose samples have this shape and type (`int64` for tokens).

    With a `plan` it has a graph for whole steps too, unless the network gives more than one row for each sample.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"samples of type '{dtype}' cannot be exported: use float32 or int64")
    layout = layout_of(module)
    joint = Joint(copied(module).cpu().float(), torch.zeros((BATCH, *shape), dtype=DTYPES[dtype]))
    normed = any(isinstance(m, _BatchNorm) for m in module.modules())
    outputs = int(joint.dz.shape[1]) if joint.dz.ndim == 2 else 0
    plan = plan if outputs else None
    training, backward, descending, masks = joint.pair(training=True, plan=plan)
    single_training, single_backward, _, _ = joint.pair(training=False) if normed else (b"", b"", b"", ())
    forward, input_gradient = joint.evaluation()
    return Bundle(
        forward, training, backward, input_gradient, single_training, single_backward, descending,
        layout=layout, masks=masks, shape=tuple(shape), dtype=dtype, outputs=outputs, opset=OPSET,
        plan=plan, frozen={name: tensor.numpy() for name, tensor in joint.frozen.items()},
    )  # fmt: skip


class Joint:
    """A module and an example batch, from which functions of (weights, statistics, frozen, x, dz) are traced."""

    def __init__(self, module: nn.Module, x: Tensor) -> None:
        self.module, self.x = module, x
        for layer in module.modules():
            if isinstance(layer, _BatchNorm):
                layer.num_batches_tracked = None  # a counter that nothing reads where there is a momentum
        params, statistics = tensors_of(module)
        self.params = {n: t.detach() for n, t in params.items()}
        self.statistics = {n: t.detach().clone() for n, t in statistics.items()}
        self.frozen = {n: t.detach() for n, t in frozen_tensors(module).items()}
        with torch.no_grad(), self._blaming_the_model():
            z = module.eval()(x[:2])
        if not isinstance(z, Tensor) or z.ndim < 2 or z.shape[0] != 2:
            seen = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise ConfigError(
                f"model {type(module).__name__}: a batch of 2 gives {seen}, expected a tensor (2, outputs)"
            )
        self.dz = torch.zeros((BATCH, *z.shape[1:]))

    def pair(self, *, training: bool, plan: StepPlan | None = None) -> tuple[bytes, bytes, bytes, tuple[Mask, ...]]:
        """The graph that runs forward, the one that pulls back, the one for whole steps, and the masks all need."""
        names = list(self.params)

        def step(params: Named, statistics: Named, frozen: Named, x: Tensor, dz: Tensor) -> Sequence[Any]:
            leaves = {n: p.detach().requires_grad_() for n, p in params.items()}
            with torch.enable_grad():
                z = functional_call(self.module, {**leaves, **statistics, **frozen}, (x,))
                grads = torch.autograd.grad(z, list(leaves.values()), dz, allow_unused=True)
            return z.detach(), *(s.detach() for s in statistics.values()), *grads

        g, inputs, (z, *results) = self._translated(step, training)
        moved, grads = results[: len(self.statistics)], results[len(self.statistics) :]
        statistics = [(f"new.{n}", v) for n, v in zip(self.statistics, moved, strict=True) if v and training]
        first = [("logits", z), *statistics]
        second = [(f"grad.{n}", v) for n, v in zip(names, grads, strict=True) if v]
        ahead, behind, handed = cut(g, [v.name for _, v in first], [v.name for _, v in second])
        known = types(g, inputs)
        masks = tuple(Mask(m.value.name, _shape(m.value), m.keep) for m in g.noise)
        after, gradients = dict(zip(self.statistics, moved, strict=True)), dict(zip(names, grads, strict=True))
        traced = Traced(g, {v.name: v for v in inputs}, z, after, gradients)
        whole = descent(traced, plan) if plan else b""
        return assemble(g, ahead, known, first, handed), assemble(g, behind, known, second), whole, masks

    def evaluation(self) -> tuple[bytes, bytes]:
        """The graph of the outputs and that of the gradient of x, both in evaluation mode."""
        tokens = not self.x.is_floating_point() or (isinstance(self.module, OnRows) and not self.module.has_real_inputs)

        def step(params: Named, statistics: Named, frozen: Named, x: Tensor, dz: Tensor) -> Sequence[Any]:
            if tokens:
                return (functional_call(self.module, {**params, **statistics, **frozen}, (x,)),)
            leaf = x.detach().requires_grad_()
            with torch.enable_grad():
                z = functional_call(self.module, {**params, **statistics, **frozen}, (leaf,))
                return z.detach(), *torch.autograd.grad(z, [leaf], dz)

        g, inputs, results = self._translated(step, training=False)
        known = types(g, inputs)
        files = [
            assemble(g, needed(g.nodes, [value.name], set()), known, [(name, value)])
            for name, value in zip(("logits", "dx"), results, strict=False)
            if value
        ]
        return (files[0], b"") if tokens else (files[0], files[1])

    def _translated(self, step: Callable[..., Any], training: bool) -> tuple[Graph, list[Value], list[Any]]:
        k, m, f = len(self.params), len(self.statistics), len(self.frozen)
        self.module.train(training)

        def flat(*args: Tensor) -> Sequence[Any]:
            statistics = {n: a.clone() for n, a in zip(self.statistics, args[k : k + m], strict=True)}
            params = dict(zip(self.params, args[:k], strict=True))
            frozen = dict(zip(self.frozen, args[k + m : k + m + f], strict=True))
            result: Sequence[Any] = step(params, statistics, frozen, *args[k + m + f :])
            return result

        weights = [*self.params.values(), *self.statistics.values(), *self.frozen.values()]
        names = [*(f"w.{n}" for n in (*self.params, *self.statistics)), *(f"frozen.{n}" for n in self.frozen)]
        examples, dynamic = [*weights, self.x, self.dz], [False] * len(weights) + [True, True]
        inputs = [*names, "x", "dz"]
        with self._blaming_the_model():
            try:
                return translate(trace(flat, examples, dynamic), inputs, "x")
            except UncoveredError:  # again, which is slower, but now we need to tell where
                return translate(trace(flat, examples, dynamic, lines=True), inputs, "x")

    @contextmanager
    def _blaming_the_model(self) -> Iterator[None]:
        """What its code does and no graph can is one line that names the place; a fault of ours stays one."""
        kind = type(self.module).__name__
        try:
            yield
        except UncoveredError as error:
            raise ConfigError(f"model {kind}: {error}") from None
        except GuardOnDataDependentSymNode as error:
            raise ConfigError(
                f"model {kind} cannot be exported: what its code does at {model_line(error)} depends on the values of"
                " a tensor (if, float(), .item()); use torch.where or keep it a tensor"
            ) from None
        except Exception as error:
            if (where := model_line(error)) is None:
                raise
            raise ConfigError(f"model {kind} cannot be exported: {reason(error)} at {where}") from error


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(-multiple(d) if is_symbolic(d) else static(d) for d in value.shape)
