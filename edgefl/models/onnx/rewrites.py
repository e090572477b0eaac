"""Torch functions that are replaced while tracing, because what they do inside has no counterpart in ONNX."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from edgefl.models.onnx.recurrent import gru_layer, lstm_layer, projected, stack


class Rewrites(TorchFunctionMode):
    """While active, LSTM and GRU go through operators of ours, and a bag of embeddings becomes a mean or a sum."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.lstm and isinstance(args[1], (list, tuple)) and not projected(args[2], args[1][0]):
            x, states, weights, *rest = args
            y, (h, c) = stack(lstm_layer, x, states, list(weights), *rest)
            return y, h, c
        if func is torch.gru and isinstance(args[2], (list, tuple)):
            x, h, weights, *rest = args
            y, (h,) = stack(gru_layer, x, [h], list(weights), *rest)
            return y, h
        if func is functional.embedding_bag:
            rewritten = _bag(*args, **(kwargs or {}))
            if rewritten is not None:
                return rewritten
        return func(*args, **(kwargs or {}))


def _bag(x: Tensor, table: Tensor, offsets: Any = None, *_: Any, mode: str = "mean", **options: Any) -> Tensor | None:
    if (
        _
        or x.ndim != 2
        or offsets is not None
        or mode == "max"
        or any(v for k, v in options.items() if k != "norm_type")
    ):
        return None
    rows = functional.embedding(x, table)
    return rows.mean(1) if mode == "mean" else rows.sum(1)
