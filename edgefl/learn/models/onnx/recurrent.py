"""LSTM and GRU as single operators of ours while tracing, so that a sequence becomes a loop and not a long graph.

Everything that does not depend on the previous step stays outside: the inputs enter through one product for all
steps, and the gradients of the weights come from one product over all steps. Shapes: time, batch, features.
These operators have no kernels; only their shapes, their gradients and (in `operators_recurrent`) their translation.
"""
# ruff: noqa: PLR0917, ARG001 - these functions have the signatures of torch's operators

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

torch.library.define(
    "edgefl::lstm", f"(Tensor x, Tensor w, Tensor h, Tensor c, bool reverse) -> ({', '.join(['Tensor'] * 9)})"
)
torch.library.define(
    "edgefl::lstm_backward",
    "(Tensor? dy, Tensor? dh, Tensor? dc, Tensor[] saved, Tensor w, Tensor c, bool reverse)"
    " -> (Tensor, Tensor, Tensor)",
)
torch.library.define(
    "edgefl::gru", "(Tensor x, Tensor w, Tensor b, Tensor h, bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
torch.library.define(
    "edgefl::gru_backward",
    "(Tensor? dy, Tensor? dh, Tensor[] saved, Tensor w, Tensor h, bool reverse) -> (Tensor, Tensor, Tensor)",
)
OPS = torch.ops.edgefl


def shifted(steps: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """What each step found: the result of the step before it."""
    start = first.unsqueeze(0)
    return torch.cat([steps[1:], start]) if reverse else torch.cat([start, steps[:-1]])


def _like(x: Tensor, width: int) -> Tensor:
    return x.new_empty([*x.shape[:-1], width])


@torch.library.register_fake("edgefl::lstm")  # type: ignore[untyped-decorator]  # torch has no type here
def _lstm_shapes(x: Tensor, w: Tensor, h: Tensor, c: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    """The last y and c; and of all steps y, the c it found, the tanh of the one it left, and its gates.

    Gates are input, forget, candidate and output, after their activation.
    """
    return torch.empty_like(h), torch.empty_like(c), *(_like(x, w.shape[1]) for _ in range(7))


@torch.library.register_fake("edgefl::lstm_backward")  # type: ignore[untyped-decorator]  # torch has no type here
def _lstm_backward_shapes(
    dy: Any, dh: Any, dc: Any, saved: list[Tensor], w: Tensor, c: Tensor, reverse: bool
) -> tuple[Tensor, ...]:
    return _like(saved[0], w.shape[0]), torch.empty_like(c), torch.empty_like(c)


@torch.library.register_fake("edgefl::gru")  # type: ignore[untyped-decorator]  # torch has no type here
def _gru_shapes(x: Tensor, w: Tensor, b: Tensor, h: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    """The last y, all of them, the gates (reset and update together, candidate), and the candidate's own product."""
    n = w.shape[1]
    return torch.empty_like(h), _like(x, n), _like(x, 2 * n), _like(x, n), _like(x, n)


@torch.library.register_fake("edgefl::gru_backward")  # type: ignore[untyped-decorator]  # torch has no type here
def _gru_backward_shapes(
    dy: Any, dh: Any, saved: list[Tensor], w: Tensor, h: Tensor, reverse: bool
) -> tuple[Tensor, ...]:
    return _like(saved[0], w.shape[0]), _like(saved[0], w.shape[0]), torch.empty_like(h)


def _keep_lstm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, w, h, c, ctx.reverse = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(w, h, c, *output[2:])


def _pull_lstm(ctx: Any, dh: Tensor | None, dc: Tensor | None, dy: Tensor | None, *_: Any) -> tuple[Any, ...]:
    w, h, c, *saved = ctx.saved_tensors
    dx, dh_first, dc_first = OPS.lstm_backward(dy, dh, dc, saved, w, c, ctx.reverse)
    before = shifted(saved[0], h, ctx.reverse)
    return dx, dx.flatten(0, 1).T @ before.flatten(0, 1), dh_first, dc_first, None


def _keep_gru(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, w, _, h, ctx.reverse = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(w, h, *output[1:])


def _pull_gru(ctx: Any, dh: Tensor | None, dy: Tensor | None, *_: Any) -> tuple[Any, ...]:
    w, h, *saved = ctx.saved_tensors
    dx, dp, dh_first = OPS.gru_backward(dy, dh, saved, w, h, ctx.reverse)
    before = shifted(saved[0], h, ctx.reverse)
    return dx, dp.flatten(0, 1).T @ before.flatten(0, 1), dp.sum((0, 1)), dh_first, None


torch.library.register_autograd("edgefl::lstm", _pull_lstm, setup_context=_keep_lstm)
torch.library.register_autograd("edgefl::gru", _pull_gru, setup_context=_keep_gru)


def _entering(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """What the inputs add to the gates, by one product for all steps."""
    rows = torch.nn.functional.linear(x.flatten(0, 1), w, bias)
    return rows.reshape(*x.shape[:2], rows.shape[-1])


def lstm_layer(x: Tensor, start: list[Tensor], weights: list[Tensor], reverse: bool) -> tuple[Tensor, list[Tensor]]:
    w_in, w_rec, *biases = weights
    entering = _entering(x, w_in, biases[0] + biases[1] if biases else None)
    h, c, y, *_ = OPS.lstm(entering, w_rec, start[0], start[1], reverse)
    return y, [h, c]


def gru_layer(x: Tensor, start: list[Tensor], weights: list[Tensor], reverse: bool) -> tuple[Tensor, list[Tensor]]:
    w_in, w_rec, *biases = weights
    entering = _entering(x, w_in, biases[0] if biases else None)
    h, y, *_ = OPS.gru(entering, w_rec, biases[1] if biases else w_rec.new_zeros(w_rec.shape[0]), start[0], reverse)
    return y, [h]


def projected(weights: Iterable[Tensor], h: Tensor) -> bool:
    return any(w.ndim == 2 and w.shape[0] == h.shape[-1] for w in weights)


def stack(
    layer: Callable[..., tuple[Tensor, list[Tensor]]], x: Tensor, states: list[Tensor], weights: list[Tensor],
    biased: bool, layers: int, dropout: float, train: bool, both_ways: bool, batch_first: bool,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Layer upon layer, in both directions where asked, with dropout in between."""
    ways, each = (2 if both_ways else 1), (4 if biased else 2)
    if batch_first:
        x = x.transpose(0, 1)
    finals: list[list[Tensor]] = []
    for i in range(layers):
        outputs = []
        for way in range(ways):
            k = i * ways + way
            y, final = layer(x, [s[k] for s in states], weights[k * each : (k + 1) * each], bool(way))
            outputs.append(y)
            finals.append(final)
        x = torch.cat(outputs, -1) if both_ways else outputs[0]
        if dropout and train and i + 1 < layers:
            x = drop(x, dropout)
    last = [torch.stack(parts) for parts in zip(*finals, strict=True)]
    return (x.transpose(0, 1) if batch_first else x), last
