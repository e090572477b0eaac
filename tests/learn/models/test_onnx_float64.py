"""Kinks told apart from faults: exported graphs are exact in float64, and as good as float32 can be in float32.

A float32 pullback near a kink may differ from torch by 1e-3 and be right. So it is taken apart: the graphs computed in
float64 must be torch's function, and the float32 pullback must be the exact pullback of the activations it was given.
"""

import os

import pytest
import torch
from onnx_checker import BOUND, SMALL, exported
from onnx_float64 import Exactness
from torch import nn

from edgefl.learn.models.onnx.rules import RULES
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.torchvision_import import import_torchvision

EXACT = 1e-7  # no less, because constants of a graph, such as GELU's root of one half, are rounded to float32
slow = pytest.mark.skipif(not os.environ.get("EDGEFL_SLOW"), reason="set EDGEFL_SLOW=1 to run the large networks")


def exact(errors):
    return max(error for what, error in errors.items() if "float64" in what)


@pytest.fixture(autouse=True)
def same_weights():
    torch.manual_seed(1)


@pytest.mark.night
@pytest.mark.parametrize("name", [*SMALL, pytest.param("resnet9", marks=slow)])
def test_every_zoo_model_is_exact_in_float64_and_near_it_in_float32(name):
    checked = Exactness(*exported(name))
    for n in (1, 3, 32):
        errors = checked.errors(n)
        assert exact(errors) < EXACT
        assert max(errors["outputs"], errors["pullback on its side"]) < BOUND


def calm(name):
    """A torchvision network without its noise, which torch would draw otherwise than we do."""
    module = getattr(import_torchvision().models, name)(num_classes=4)
    for layer in module.modules():
        if isinstance(layer, nn.Dropout) or type(layer).__name__ == "StochasticDepth":
            layer.p = 0.0
    return module


@pytest.mark.night
@pytest.mark.parametrize(("name", "side", "sizes"), [
    ("resnet18", 32, (1, 3)),
    *(pytest.param(name, 64, (1, 3, 32), marks=slow)
      for name in ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "efficientnet_b0")),
])  # fmt: skip
def test_torchvision_networks_are_exact_in_float64_and_near_it_in_float32(name, side, sizes):
    module = calm(name)
    checked = Exactness(module, export(module, (3, side, side)))
    for n in sizes:
        errors = checked.errors(n)
        assert exact(errors) < EXACT
        assert errors["pullback on its side"] < BOUND
        assert errors["outputs"] < max(BOUND, 3 * errors["torch's outputs"])  # BatchNorm over few numbers is ill-posed


@pytest.mark.parametrize("name", ["convolution_backward", "native_layer_norm_backward", "mm"])
def test_a_fault_too_small_for_float32_is_seen(name, monkeypatch):
    for operator in [o for o in RULES if o.name().partition(".")[0] == f"aten::{name}"]:
        monkeypatch.setitem(RULES, operator, faulty(RULES[operator]))
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LayerNorm(36), nn.Linear(36, 4))
    assert exact(Exactness(module, export(module, (3, 5, 5))).errors(3)) > EXACT


def faulty(rule):
    def wrong(g, *args, **kwargs):
        result = rule(g, *args, **kwargs)
        almost = g.constant(1 + 1e-6, torch.float32)
        if isinstance(result, str):
            return g("Mul", result, almost)
        return [n and g("Mul", n, almost) for n in result]

    return wrong
