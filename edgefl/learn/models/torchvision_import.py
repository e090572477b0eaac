"""torchvision beside a CPU torch: its compiled extension wants CUDA libraries, everything else does not."""

import sys
from importlib import import_module
from types import ModuleType

import torch

# These two are looked up while torchvision is being imported. Nothing we use ever calls them.
MISSING = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[torch.library.Library] = []  # a declaration lives only as long as its library object


def import_torchvision() -> ModuleType:
    """The torchvision module, with datasets, transforms and models in working order; the plain import if it works."""
    try:
        return import_module("torchvision")
    except RuntimeError as e:
        if "torchvision::" not in str(e):
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch has no type here
    for schema in MISSING:
        library.define(schema)  # type: ignore[no-untyped-call]  # nor here
    _kept.append(library)
    for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # what the failed import left behind
    return import_module("torchvision")
