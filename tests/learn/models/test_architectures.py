"""Networks of torchvision and Hugging Face train on onnxruntime as in torch, or are refused with the line."""

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.torch_backend import initial_params

ROOT = Path(__file__).parents[3]
# Seconds of CPU time each; of the others each takes up to minutes.
QUICK = ["squeezenet1_1", "DenseNet", "SwinTransformer", "GPT2LMHeadModel"]


def script():
    spec = importlib.util.spec_from_file_location("architectures", ROOT / "scripts" / "architectures.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["architectures"] = module  # where dataclasses look
    sys.path.insert(0, str(ROOT / "scripts"))  # what stands beside it
    spec.loader.exec_module(module)
    sys.path.remove(str(ROOT / "scripts"))
    return module


architectures = script()


def all_of_them():
    slow = pytest.mark.skipif(not os.environ.get("EDGEFL_SLOW"), reason="set EDGEFL_SLOW=1 to run the large networks")
    return [name if name in QUICK else pytest.param(name, marks=slow) for name in architectures.ALL]


@pytest.mark.night
@pytest.mark.filterwarnings("ignore")  # what libraries say about themselves
@pytest.mark.parametrize("name", all_of_them())
def test_a_network_agrees_with_torch(name):
    if name in architectures.HUGGING_FACE:
        pytest.importorskip("transformers", reason="pip install edgefl[architectures]")
    verdict = architectures.judge(architectures.ALL[name])
    if verdict.chaotic and not verdict.agrees:  # torch in float32 is itself far from torch in float64
        assert verdict.exact is not None
        assert verdict.exact < architectures.EXACT, verdict
    else:
        assert verdict.agrees, verdict


def test_graphs_in_float64_have_the_gradient_of_torch_in_float64_or_are_found_out():
    torch.manual_seed(0)
    first = nn.Conv2d(2, 4, 3, groups=2), nn.BatchNorm2d(4), nn.ReLU6()
    network = nn.Sequential(*first, nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 1, 1), nn.Flatten(), nn.Linear(36, 3))
    like = architectures.Architecture(lambda: network, (2, 7, 7))
    bundle = export(network, like.shape)
    assert architectures.exactly(network, bundle, like) < architectures.EXACT / 10
    frozen = replace(bundle, training=bundle.single_training, backward=bundle.single_backward)
    assert architectures.exactly(network, frozen, like) > architectures.EXACT


class LooksIntoItsMask(nn.Module):
    """Leaves a mask out that masks nothing, unless it is exported; as networks of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        mask = x > 0
        if not torch.compiler.is_exporting() and mask.all():
            return self.last(x)
        return self.last(torch.where(mask, x, 0.0))


def test_a_network_that_asks_is_told_that_it_is_exported_and_only_then():
    torch.manual_seed(0)
    network = LooksIntoItsMask()
    bundle = export(network, (3,))
    assert not torch.compiler.is_exporting()
    x = np.array([[1.0, -2.0, 3.0], [1.0, 2.0, 3.0]], np.float32)
    logits = OnnxModel(bundle).logits(initial_params(network), x)
    assert np.allclose(logits, network(torch.from_numpy(x)).detach().numpy(), atol=1e-6)
