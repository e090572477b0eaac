"""Pooling over volumes while tracing: first over each slice, then over the slices, both as images.

A maximum of maxima is the maximum, and of equal ones the first still gets the gradient; an average over a box is an
average along its edges one after another, whatever is padded or rounded. Only with `divisor_override` it is not.
"""
# ruff: noqa: PLR0917 - these functions have the signatures of torch's

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional

from edgefl.learn.models.onnx.resize import each


def max_pool3d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """What torch.nn.functional.max_pool3d gives; None where places are asked for too."""
    if return_indices:
        return None
    (k, *slice_k), (s, *slice_s), (p, *slice_p) = _window(kernel_size, stride, padding)
    d, *slice_d = each(dilation, 3)
    return _pooled(
        x,
        lambda image: functional.max_pool2d(image, slice_k, slice_s, slice_p, slice_d, ceil_mode),
        lambda image: functional.max_pool2d(image, [k, 1], [s, 1], [p, 0], [d, 1], ceil_mode),
    )


def avg_pool3d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor | None:
    """What torch.nn.functional.avg_pool3d gives; None where a number of its own divides the sums."""
    if divisor_override is not None:
        return None
    (k, *slice_k), (s, *slice_s), (p, *slice_p) = _window(kernel_size, stride, padding)
    return _pooled(
        x,
        lambda image: functional.avg_pool2d(image, slice_k, slice_s, slice_p, ceil_mode, count_include_pad),
        lambda image: functional.avg_pool2d(image, [k, 1], [s, 1], [p, 0], ceil_mode, count_include_pad),
    )


def adaptive_avg_pool3d(x: Tensor, output_size: Any) -> Tensor | None:
    """What torch.nn.functional.adaptive_avg_pool3d gives."""
    depth, high, wide = (size if size is not None else x.shape[i - 3] for i, size in enumerate(each(output_size, 3)))
    return _pooled(
        x,
        lambda image: functional.adaptive_avg_pool2d(image, (high, wide)),
        lambda image: functional.adaptive_avg_pool2d(image, (depth, image.shape[-1])),
    )


def _window(kernel: Any, stride: Any, padding: Any) -> tuple[list[int], list[int], list[int]]:
    """Kernel, stride and padding, each for depth, height and width; a stride is as long as the kernel unless said."""
    own = stride is None or stride in ([], ())
    return each(kernel, 3), each(kernel if own else stride, 3), each(padding, 3)


def _pooled(x: Tensor, slices: Callable[[Tensor], Tensor], depth: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The volumes pooled slice by slice, then along their depth; None without a batch axis."""
    if x.ndim != 5:
        return None
    n, channels, deep = x.shape[:3]
    flat = slices(x.flatten(1, 2))
    high, wide = flat.shape[-2:]
    return depth(flat.reshape(n, channels, deep, high * wide)).reshape(n, channels, -1, high, wide)
