"""Adapters beside frozen weights: what they compute, what travels, and what a device refuses."""

from dataclasses import replace
from hashlib import sha256

import msgpack
import numpy as np
import pytest
import torch
from guides import ROOT, blocks
from onnx_checker import BOUND, errors, worst
from torch import nn

from edgefl.base.errors import ConfigError, RemoteError, WireError
from edgefl.learn.models.build import build_module
from edgefl.learn.models.lora import lora, merged
from edgefl.learn.models.onnx.bundle import pack, unpack
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.rule import Rule, StepPlan
from edgefl.learn.models.torch_backend import TorchModel, initial_params
from edgefl.system import user_code

SHAPE = (6, 12)


class Encoder(nn.Module):
    """An attention of torch's, a linear layer of one's own, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.head = nn.Linear(12, 24), nn.Linear(24, 3)
        self.block = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.head(self.block(self.up(x)).mean(1))


@pytest.fixture
def base():
    torch.manual_seed(1)
    return Encoder()


def stepped(module):
    """Weights at which no adapter is zero."""
    w = initial_params(module)
    return w + 0.1 * np.random.default_rng(0).standard_normal(w.size).astype(np.float32)


def loaded(module, w):
    module.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in TorchModel(module).tensors(w).items()})
    return module


def test_an_adapted_network_begins_as_it_was_and_trains_its_adapters_alone(base):
    x = torch.randn(4, *SHAPE)
    before = base.train()(x)
    adapted = lora(base, rank=2, train="head.*")
    assert torch.allclose(adapted(x), before, atol=1e-6)
    trained = {n for n, p in adapted.named_parameters() if p.requires_grad}
    assert trained == {
        "up.lora.a", "up.lora.b", "head.weight", "head.bias", "head.lora.a", "head.lora.b",
        *(f"block.self_attn.parametrizations.in_proj_weight.0.{n}" for n in "ab"),
        *(f"block.self_attn.out_proj.parametrizations.weight.0.{n}" for n in "ab"),
        *(f"block.linear{i}.parametrizations.weight.0.{n}" for i in (1, 2) for n in "ab"),
    }  # fmt: skip


@pytest.fixture(scope="module")
def adapted():
    torch.manual_seed(1)
    module = lora(Encoder(), rank=2, layers="[ub]*", train="head.*")
    return module, export(module, SHAPE, plan=StepPlan("cross_entropy", ()))


def test_its_graphs_have_the_gradients_of_torch_and_its_base_once(adapted):
    module, bundle = adapted
    frozen = sum(array.nbytes for array in bundle.frozen.values())
    assert frozen == 4 * sum(p.numel() for p in module.parameters() if not p.requires_grad)
    graphs = replace(bundle, frozen={})
    assert frozen <= len(pack(bundle)) - len(pack(graphs)) < frozen + 100 * len(bundle.frozen)
    again = unpack(pack(bundle))
    assert worst(errors(OnnxModel(again), module, SHAPE, w=stepped(module))) < BOUND


def test_whole_steps_read_the_base_too(adapted):
    module, model, w = adapted[0], OnnxModel(adapted[1]), stepped(adapted[0])
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((8, *SHAPE)).astype(np.float32), rng.integers(0, 3, 8)
    walk = model.descent("cross_entropy", Rule(lr=0.1), w)
    walk.take(x, y, np.arange(8)[None])
    z, pull = TorchModel(module).vjp(w.astype(np.float64), x.astype(np.float64))
    share = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    share[np.arange(8), y] -= 1
    assert np.allclose(walk.params(), w - 0.1 * pull(share / 8), atol=1e-6)


def test_merged_it_is_a_plain_network_that_does_the_same(base):
    names = set(base.state_dict())
    adapted = lora(base, rank=2)
    adapted = loaded(adapted, stepped(adapted)).eval()
    x = torch.randn(5, *SHAPE)
    expected = adapted(x)
    plain = merged(adapted)
    assert set(plain.state_dict()) == names
    assert torch.allclose(plain(x), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"rank": 0}, "rank = 0"),
        ({"layers": "decoder.*"}, "fits 'decoder"),
        ({"train": "tail"}, "train = 'tail' fits no"),
    ],
)
def test_what_fits_nothing_is_refused(base, how, says):
    with pytest.raises(ConfigError, match=says):
        lora(base, **how)


def test_the_example_of_the_guide_sends_a_small_part_of_its_network(tmp_path, monkeypatch):
    (example,) = [block for block in blocks(ROOT / "docs" / "models.md", "python") if "lora(" in block]
    (tmp_path / "guides_network.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    user_code.allow("guides_network:adapted")
    module = build_module("guides_network:adapted", (8, 8), 10, seed=1)
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert 100 * trained < sum(p.numel() for p in module.parameters())


def resigned(bundle, frozen):
    """The bundle with another table of frozen tensors, and the hash of that."""
    content = msgpack.unpackb(pack(bundle)[32:])
    body = msgpack.packb({**content, "frozen": frozen})
    return sha256(body).digest() + body


@pytest.fixture(scope="module")
def small():
    return export(lora(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), rank=1), (2,))


@pytest.mark.parametrize(
    "frozen",
    [[["a", [2, 2], b"1234"]], [["a", [1], b"1234"], ["a", [1], b"1234"]], [["a", [-1], b""]], [["a", [1], "1"]], 7],
)
def test_a_base_that_is_not_what_it_says_is_refused(small, frozen):
    with pytest.raises(WireError):
        unpack(resigned(small, frozen))


def test_a_graph_that_asks_for_a_base_of_another_shape_is_not_loaded(small):
    other = {name: array[..., :-1] for name, array in small.frozen.items()}
    with pytest.raises(RemoteError, match=r"frozen\."):
        OnnxModel(replace(small, frozen=other)).logits(np.zeros(small.layout.size, "f"), np.zeros((2, 2), "f"))
