"""Tracing: one function of tensors becomes a graph of core torch operators with a symbolic batch size."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from traceback import FrameSummary
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn.attention import SDPBackend, sdpa_kernel

from edgefl.learn.models.onnx.rewrites import Rewrites
from edgefl.learn.models.onnx.rules import RULES, aten
from edgefl.learn.models.onnx.sizes import UncoveredError
from edgefl.learn.models.source_lines import is_model_code, shown, source_line

BATCH = 7  # of the example; 0 and 1 would be taken for constants
MORE = [
    getattr(aten, name)
    for name in (
        "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
        "_native_batch_norm_legit_no_training", "native_batch_norm_backward", "silu", "hardswish",
        "hardsigmoid", "mish", "addcmul", "elu", "softplus", "select_scatter", "index_put",
    )
]  # fmt: skip


def trace(
    function: Callable[..., Any], examples: Sequence[torch.Tensor], dynamic: Sequence[bool], *, lines: bool = False
) -> GraphModule:
    """The graph of `function`, where the first axis of the `dynamic` arguments is the batch.

    With `lines` each node knows the line of code it comes from, which takes several times as long.
    """
    with _quiet(), _plain_kernels(), _exporting():
        return _trace(function, examples, dynamic, lines)


def _trace(
    function: Callable[..., Any], examples: Sequence[torch.Tensor], dynamic: Sequence[bool], lines: bool
) -> GraphModule:
    fake = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    arguments = []
    for i, (example, moves) in enumerate(zip(examples, dynamic, strict=True)):
        sizes = [DimDynamic.DUCK if moves and axis == 0 else DimDynamic.STATIC for axis in range(example.ndim)]
        context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)  # generic in kinds we do not use
        arguments.append(fake.from_tensor(example, symbolic_context=context, source=ConstantSource(f"a{i}")))
    table = {**core_aten_decompositions(), **get_decompositions(MORE)}
    table = {operator: rule for operator, rule in table.items() if operator not in RULES}
    tracer = make_fx(
        dispatch_functionalize(function), decomposition_table=table, tracing_mode="symbolic", record_stack_traces=lines
    )
    traced: GraphModule = tracer(*arguments)
    for node in reversed(list(traced.graph.nodes)):  # assertions about sizes are not for the device
        if "_assert_" in str(node.target) and not node.users:
            traced.graph.erase_node(node)
    traced.graph.eliminate_dead_code()
    still_dynamic(traced)
    return traced


def still_dynamic(traced: GraphModule) -> None:
    """Refuse a trace in which the model fixed the batch size, e.g. by comparing it with a number."""
    values = (node.meta.get("val") for node in traced.graph.nodes if node.op == "placeholder")
    environment = next(v.fake_mode.shape_env for v in values if isinstance(v, torch.Tensor))  # type: ignore[attr-defined]  # fake tensors have it
    for symbol, value in environment.replacements.items():
        if not value.is_Integer:
            node = next((node for node in traced.graph.nodes if node.meta.get("unbacked_bindings")), None)
            where = f" at {source_line(node)}" if node else ""
            raise UncoveredError(f"a size in its code{where} depends on the values of a tensor: no graph can have that")
        source = environment.replacements_slocs.get(symbol)
        frame = source.framework_loc if source else None
        where = f" at {shown(frame)}" if isinstance(frame, FrameSummary) and is_model_code(frame.filename) else ""
        raise UncoveredError(f"its code fixes the batch size{where}: it compares or converts x.shape[0]")


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)  # what torch has to say is said again in one line, with the place in the code
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _exporting() -> Iterator[None]:
    """Let `torch.compiler.is_exporting()` be true: libraries then look at shapes, not at values.

    Hugging Face's networks ask it before they look whether an attention mask masks anything.
    """
    before = torch.compiler._is_exporting_flag  # noqa: SLF001 - torch.export sets it so, and has no public way
    torch.compiler._is_exporting_flag = True  # noqa: SLF001
    try:
        yield
    finally:
        torch.compiler._is_exporting_flag = before  # noqa: SLF001


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Keep torch from choosing fused kernels that have no counterpart in ONNX."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(Rewrites())
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
