"""Every zoo model and every covered layer, exported, against torch in float64."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx_checker import BOUND, SMALL, errors, exported, relative, worst
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from edgefl.base.errors import ConfigError
from edgefl.learn.losses import cross_entropy
from edgefl.learn.models.onnx.operators_conv import _together
from edgefl.learn.models.onnx.rules import RULES
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.onnx_masks import drawn
from edgefl.learn.models.torch_backend import TorchModel, initial_params
from edgefl.learn.models.torchvision_import import import_torchvision
from edgefl.learn.models.zoo import ZOO
from edgefl.learn.training.local import Sgd

slow = pytest.mark.skipif(not os.environ.get("EDGEFL_SLOW"), reason="set EDGEFL_SLOW=1 to run the large networks")
IMAGE, SEQUENCE = (3, 11, 9), (6, 12)


class Through(nn.Module):
    """Some layers and a function of them."""

    def __init__(self, function, *layers):
        super().__init__()
        self.layers, self.function = nn.ModuleList(layers), function

    def forward(self, x):
        return self.function(x, *self.layers)


def stacked(*layers, shape):
    body = nn.Sequential(*layers, nn.Flatten())
    return nn.Sequential(body, nn.Linear(body.eval()(torch.zeros(2, *shape)).shape[1], 4)).train()


def between(layer, width=6):
    return nn.Conv1d(width, width, 1), layer


def onnx_model(module, shape, dtype="float32"):
    return OnnxModel(export(module, shape, dtype=dtype))


@pytest.fixture(autouse=True)
def same_weights():
    torch.manual_seed(1)


@pytest.mark.parametrize("name", SMALL)
def test_every_zoo_model_has_the_gradients_of_torch(name):
    module, bundle = exported(name)
    deviations = errors(OnnxModel(bundle), module, bundle.shape, tokens=bundle.dtype == "int64", tries=12)
    assert worst(deviations) < BOUND


IMAGE_LAYERS = {
    "convolutions with stride, padding, dilation and groups": lambda: [
        nn.Conv2d(3, 6, 3, stride=(2, 1), padding=(1, 2)),
        nn.Conv2d(6, 8, (2, 3), padding=(1, 2), dilation=(1, 2), groups=2),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8),
        nn.Conv2d(8, 5, 3, padding="same"),
        nn.Conv2d(5, 4, 1, stride=2),
    ],
    "convolutions of many channels": lambda: [
        nn.Conv2d(3, 16, 1), nn.Conv2d(16, 20, 3, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        nn.Conv2d(20, 8, (1, 2)),
    ],
    "large kernels over small images": lambda: [
        nn.Conv2d(3, 64, 3, stride=2, padding=1), nn.Conv2d(64, 128, 3, padding=1), nn.Tanh(),
        nn.Conv2d(128, 66, (3, 2), stride=(1, 2), padding=1, dilation=(2, 1), bias=False),
        nn.ConvTranspose2d(66, 128, 3),
    ],
    "images of very many channels": lambda: [
        nn.Conv2d(3, 128, 1), nn.Conv2d(128, 5, (3, 2), padding=(1, 0), dilation=(2, 1)), nn.Tanh(),
        nn.Conv2d(5, 128, 1), nn.Conv2d(128, 6, 2, padding=2), nn.Conv2d(6, 128, 1), nn.Conv2d(128, 4, 3, stride=2),
    ],
    "transposed convolutions": lambda: [
        nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 1), padding=1, dilation=2, groups=2),
    ],
    "overlapping, rounded and dilated maxima": lambda: [
        nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2, 1, dilation=2), nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d(2, ceil_mode=True),
    ],
    "tiled maxima": lambda: [nn.Conv2d(3, 4, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1), nn.MaxPool2d((5, 2))],
    "adaptive maxima": lambda: [nn.Conv2d(3, 4, 1), nn.AdaptiveMaxPool2d((11, 3)), nn.AdaptiveMaxPool2d((4, 2))],
    "averages with padding": lambda: [
        nn.Conv2d(3, 4, 1), nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(3, 1, 1, count_include_pad=False),
        nn.AvgPool2d(2, 1), nn.AvgPool2d(2, divisor_override=3),
    ],
    "adaptive averages": lambda: [
        nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d((8, 6)), nn.AdaptiveAvgPool2d((4, 3)), nn.Conv2d(4, 4, 1),
        nn.AdaptiveAvgPool2d(1),
    ],
    "group and instance norms": lambda: [
        nn.Conv2d(3, 8, 1), nn.GroupNorm(4, 8), nn.Conv2d(8, 6, 1), nn.GroupNorm(3, 6, affine=False),
        nn.Conv2d(6, 6, 1), nn.InstanceNorm2d(6, affine=True), nn.Conv2d(6, 6, 1), nn.InstanceNorm2d(6),
    ],
    "group norms of rows": lambda: [
        nn.Flatten(), nn.Linear(297, 32), nn.GroupNorm(2, 32), nn.Linear(32, 16), nn.GroupNorm(1, 16, affine=False),
    ],
    "nearest numbers": lambda: [
        nn.Conv2d(3, 2, 1), nn.Upsample(scale_factor=2), nn.Upsample((13, 7)),
        nn.Upsample((7, 9), mode="nearest-exact"), nn.Upsample(scale_factor=0.5),
    ],
    "bilinear and bicubic": lambda: [
        nn.Conv2d(3, 2, 1), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Upsample((13, 7), mode="bilinear", align_corners=True),
        Through(lambda x: functional.interpolate(x, (5, 6), mode="bicubic", antialias=True)),
    ],
    "normed weights": lambda: [
        parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), nn.Tanh(),
        parametrizations.weight_norm(nn.Conv2d(4, 4, 3), dim=2), nn.Tanh(),
        parametrizations.weight_norm(nn.Conv2d(4, 2, 1), dim=None),
    ],
    "the largest of many": lambda: [
        nn.Conv2d(3, 4, 3),
        Through(lambda x: torch.cat([x.topk(3, 1)[0], x.topk(2, dim=1, largest=False)[0], x.sort(1)[0]], 1)),
        Through(lambda x: torch.cat([x.min(1)[0], x.max(1)[0], x.median(1)[0], x.kthvalue(2, 1)[0]], 1)),
    ],
    "indices": lambda: [
        nn.Conv2d(3, 4, 3), Through(lambda x: x[:, :, torch.tensor([1, 1, 0, 4])]),
        Through(lambda x: x[:, torch.tensor([[0, 2, 3]]), torch.tensor([[1], [1]])]),
        Through(lambda x: x[torch.arange(x.shape[0]), x.mean((2, 3)).argmax(1)].cumsum(1)),
    ],
    "borders and windows": lambda: [
        nn.Conv2d(3, 2, 3), nn.ReplicationPad2d((2, 1, 0, 3)), nn.CircularPad2d(1),
        nn.Conv2d(2, 2, 3, padding=2, padding_mode="reflect"), Through(lambda x: x.unfold(2, 3, 2)),
    ],
    "batch norm": lambda: [nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Tanh(), nn.BatchNorm2d(8, affine=False)],
}  # fmt: skip
VOLUME = (1, 7, 6, 9)
VOLUME_LAYERS = {
    "maxima over volumes": lambda: [
        nn.Conv3d(1, 2, 2), nn.MaxPool3d((2, 3, 2), 1, (1, 1, 0), dilation=(1, 1, 2)), nn.MaxPool3d(2, ceil_mode=True),
    ],
    "averages over volumes": lambda: [
        nn.Conv3d(1, 2, 2), nn.AvgPool3d(3, 2, 1, ceil_mode=True), nn.AvgPool3d(2, 1, 1, count_include_pad=False),
        nn.AvgPool3d((2, 1, 2)), nn.AdaptiveAvgPool3d((2, 3, None)),
    ],
}  # fmt: skip
SEQUENCE_LAYERS = {
    "convolutions and pooling over time": lambda: [
        nn.Conv1d(6, 5, 4, stride=1, padding=2, dilation=2), nn.ConvTranspose1d(5, 6, 4, stride=2, padding=1),
        nn.ReLU(), nn.MaxPool1d(2), nn.AvgPool1d(4, 2, 1), nn.AdaptiveAvgPool1d(3),
    ],
    "rectifiers": lambda: [
        *between(nn.LeakyReLU(0.2)), *between(nn.ReLU6()), *between(nn.ELU()), *between(nn.PReLU()),
        *between(nn.SELU()), *between(nn.Hardswish()), *between(nn.Hardsigmoid()),
    ],
    "smooth activations": lambda: [
        *between(nn.GELU()), *between(nn.SiLU()), *between(nn.Tanh()), *between(nn.Sigmoid()),
        *between(nn.GELU("tanh")), *between(nn.Softplus()), *between(nn.Mish()),
    ],
    "angles and products": lambda: [
        *between(Through(torch.atan)), *between(Through(lambda x: x.prod(2, keepdim=True) + x)),
        *between(Through(lambda x: torch.cat([x, torch.prod(x, 1).unsqueeze(1)], 1))),
    ],
    "sequences of another length": lambda: [
        nn.Conv1d(6, 4, 1), nn.Upsample(scale_factor=2, mode="linear"), nn.Conv1d(4, 4, 1), nn.Upsample(20),
    ],
    "softmax and layer norm": lambda: [
        *between(nn.Softmax(1)), *between(nn.LayerNorm(12)), *between(nn.LogSoftmax(2)),
        *between(nn.LayerNorm([6, 12], elementwise_affine=False)), *between(nn.LayerNorm([6, 12], bias=False)),
    ],
}  # fmt: skip
MODULES = {
    "a stacked LSTM in both directions": lambda: Through(
        lambda x, layer, out: out(torch.cat([layer(x)[0][:, -1], layer(x)[1][1].sum(0)], 1)),
        nn.LSTM(12, 5, 2, batch_first=True, bidirectional=True), nn.Linear(15, 4)),
    "an LSTM whose last cells decide": lambda: Through(
        lambda x, layer, out: out(layer(x)[1][1].sum(0)),
        nn.LSTM(12, 5, batch_first=True, bidirectional=True, bias=False), nn.Linear(5, 4)),
    "a stacked GRU in both directions": lambda: Through(
        lambda x, layer, out: out(torch.cat([layer(x)[0][:, -1], layer(x)[1].sum(0)], 1)),
        nn.GRU(12, 5, 2, batch_first=True, bidirectional=True, bias=False), nn.Linear(15, 4)),
    "a GRU with time first": lambda: Through(
        lambda x, layer, out: out(layer(x.transpose(0, 1))[1][0]), nn.GRU(12, 5), nn.Linear(5, 4)),
    "multi-head attention": lambda: Through(
        lambda x, layer, out: out(layer(x, x, x, need_weights=False)[0].mean(1)),
        nn.MultiheadAttention(12, 3, batch_first=True), nn.Linear(12, 4)),
    "torch's own encoder layer": lambda: Through(
        lambda x, layer, out: out(layer(x).mean(1)),
        nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True), nn.Linear(12, 4)),
    "causal attention": lambda: Through(
        lambda x, layer, out: out(
            functional.scaled_dot_product_attention(layer(x), layer(x), x, is_causal=True).mean(1)),
        nn.Linear(12, 12), nn.Linear(12, 4)),
    "bilinear forms": lambda: Through(
        lambda x, one, two, out: out(two(one(x, x.tanh()), x).mean(1)),
        nn.Bilinear(12, 12, 5), nn.Bilinear(5, 12, 6, bias=False), nn.Linear(6, 4)),
    "slices with steps": lambda: Through(
        lambda x, layer, out: out(torch.cat([layer(x)[:, ::2], layer(x)[:, 1::2].flip(1)], 2)[:, :, 3:17:3].flatten(1)),
        nn.Linear(12, 12), nn.Linear(15, 4)),
}  # fmt: skip

DENSE = {  # 240 inputs and outputs: large enough to be multiplied the other way round
    "one after another": lambda: nn.Sequential(
        nn.Linear(240, 240), nn.ReLU(), nn.Linear(240, 240, bias=False), nn.ReLU(), nn.Linear(240, 4)),
    "beside what is not transposed": lambda: Through(
        lambda x, one, two, norm, out: out(norm(one(x).relu()) + two(x).tanh() * one(x).relu()),
        nn.Linear(240, 240), nn.Linear(240, 240), nn.LayerNorm(240), nn.Linear(240, 4)),
    "as a result": lambda: nn.Sequential(nn.Linear(240, 240), nn.ReLU()),
    "between convolutions": lambda: nn.Sequential(
        nn.Linear(240, 240), nn.ReLU(), nn.Unflatten(1, (4, 60)), nn.Conv1d(4, 2, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(116, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", DENSE)
def test_large_dense_layers_have_the_gradients_of_torch(name):
    module = DENSE[name]()
    assert worst(errors(onnx_model(module, (240,)), module, (240,))) < BOUND


@pytest.mark.night
@pytest.mark.parametrize("name", IMAGE_LAYERS)
def test_layers_for_images_have_the_gradients_of_torch(name):
    module = stacked(*IMAGE_LAYERS[name](), shape=IMAGE)
    assert worst(errors(onnx_model(module, IMAGE), module, IMAGE)) < BOUND


@pytest.mark.parametrize(
    ("channels", "stride", "gradient"), [(128, 1, "Conv"), (64, 1, "ConvTranspose"), (128, 2, "ConvTranspose")]
)
def test_the_gradient_of_an_image_of_many_channels_is_a_plain_convolution(channels, stride, gradient):
    module = nn.Sequential(nn.Conv2d(3, channels, 1), nn.Conv2d(channels, 2, 3, stride), nn.Flatten(), nn.LazyLinear(4))
    module(torch.zeros((1, *IMAGE)))
    nodes = onnx.load_from_string(export(module, IMAGE).backward).graph.node
    assert {node.op_type for node in nodes if node.op_type.startswith("Conv")} == {gradient}


@pytest.mark.parametrize("name", VOLUME_LAYERS)
def test_layers_for_volumes_have_the_gradients_of_torch(name):
    module = stacked(*VOLUME_LAYERS[name](), shape=VOLUME)
    assert worst(errors(onnx_model(module, VOLUME), module, VOLUME)) < BOUND


def test_of_equal_maxima_of_a_volume_the_first_gets_the_gradient():
    module = nn.Sequential(nn.MaxPool3d(2), nn.Flatten(), nn.Linear(1, 2))
    x = np.zeros((1, 1, 2, 2, 2), np.float32)
    x[0, 0, 0, 1, 1] = x[0, 0, 1, 0, 0] = 1
    w, dz = initial_params(module), np.ones((1, 2), np.float32)
    dx = onnx_model(module, (1, 2, 2, 2)).input_gradient(w, x, dz)
    assert [tuple(p) for p in np.argwhere(dx[0, 0])] == [(0, 1, 1)]


def test_a_zero_in_a_product_has_its_gradient():
    module = Through(lambda x, layer: layer(x.prod(1, keepdim=True)), nn.Linear(1, 1))
    dx = onnx_model(module, (3,)).input_gradient(
        initial_params(module), np.array([[2.0, 0.0, 3.0]], np.float32), np.ones((1, 1), np.float32)
    )
    assert dx / module.layers[0].weight.item() == pytest.approx(np.array([[0, 6, 0]]))


@pytest.mark.parametrize("name", SEQUENCE_LAYERS)
def test_layers_for_sequences_have_the_gradients_of_torch(name):
    module = stacked(*SEQUENCE_LAYERS[name](), shape=SEQUENCE)
    assert worst(errors(onnx_model(module, SEQUENCE), module, SEQUENCE)) < BOUND


@pytest.mark.night
@pytest.mark.parametrize("name", MODULES)
def test_recurrence_and_attention_have_the_gradients_of_torch(name):
    module = MODULES[name]()
    assert worst(errors(onnx_model(module, SEQUENCE), module, SEQUENCE)) < BOUND


@pytest.mark.parametrize("layer", [nn.Embedding(90, 5, padding_idx=3), nn.EmbeddingBag(90, 5, mode="mean")])
def test_embeddings_have_the_gradients_of_torch(layer):
    flat = 30 if isinstance(layer, nn.Embedding) else 5
    module = Through(lambda x, e, o: o(e(x).flatten(1)), layer, nn.Linear(flat, 4))
    assert worst(errors(onnx_model(module, (6,), "int64"), module, (6,), tokens=True)) < BOUND


def test_of_equal_maxima_the_first_gets_the_gradient():
    module = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2))
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 0, 1] = x[0, 0, 1, 0] = 1
    w, dz = initial_params(module), np.ones((1, 2), np.float32)
    dx = onnx_model(module, (1, 4, 4)).input_gradient(w, x, dz)
    assert [tuple(p) for p in np.argwhere(dx[0, 0])] == [(0, 1), (0, 2), (2, 0), (2, 2)]


FAULTS = ["convolution_backward", "mm", "threshold_backward", "max_pool2d_with_indices_backward", "sum"]


@pytest.mark.parametrize("name", FAULTS)
def test_the_checker_sees_a_fault_in_a_single_rule(name, monkeypatch):
    for operator in [o for o in RULES if o.name().partition(".")[0] == f"aten::{name}"]:
        monkeypatch.setitem(RULES, operator, faulty(RULES[operator]))
    layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(48, 8), nn.ReLU()
    module = stacked(*layers, shape=IMAGE)
    assert worst(errors(onnx_model(module, IMAGE), module, IMAGE, tries=2)) > 100 * BOUND


def faulty(rule):
    def wrong(g, *args, **kwargs):
        result = rule(g, *args, **kwargs)
        one_percent = g.constant(1.01, torch.float32)
        if isinstance(result, str):
            return g("Mul", result, one_percent)
        return [n and g("Mul", n, one_percent) for n in result]

    return wrong


@pytest.mark.parametrize(
    "fault", [lambda g, n: g * n, lambda g, n: g * (1 if n == 1 else 1.001), lambda g, n: np.append(g[:-1], 0)]
)
def test_the_checker_sees_a_fault_that_depends_on_the_batch_size(fault):
    module = ZOO["mlp"]((1, 12, 12), 4)
    right = onnx_model(module, (1, 12, 12))

    class Wrong:
        logits, input_gradient = right.logits, right.input_gradient

        def vjp(self, w, x):
            z, pull = right.vjp(w, x)
            return z, lambda dz: fault(pull(dz), len(x))

    assert worst(errors(Wrong(), module, (1, 12, 12), tries=2)) > 100 * BOUND


def test_an_operator_without_a_rule_is_refused_with_its_name_and_the_line_that_uses_it():
    module = Through(lambda x, layer: torch.cdist(layer(x), layer(x)), nn.Linear(4, 4))
    with pytest.raises(ConfigError, match=rf"operator aten\.\S*cdist\S* at .*{Path(__file__).name} line \d+ "):
        export(module, (3, 4))


HERE = rf"at .*{Path(__file__).name} line \d+ \("


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (lambda x, layer: layer(x) if x.shape[0] == 7 else layer(x) * 2, f"fixes the batch size {HERE}"),
        (lambda x, layer: layer(x.reshape(int(x.shape[0]), -1)), f"fixes the batch size {HERE}"),
        (lambda x, layer: layer(x) if x.sum() > 0 else -layer(x), rf"does {HERE}.* depends on the values of a tensor"),
        (lambda x, layer: layer(x) * float(x.mean()), rf"does {HERE}.* depends on the values of a tensor"),
        (
            lambda x, layer: layer(x)[torch.nonzero(x[:, 0] < 9)[:, 0]],
            rf"a size in its code {HERE}.* values of a tensor",
        ),
        (lambda x, layer: layer(x) + torch.from_numpy(layer(x).detach().numpy()), rf"\.numpy\(\) .* {HERE}"),
        (lambda x, layer: layer(x) + 1 / (len(x) - len(x)), f"division by zero {HERE}"),
    ],
)
def test_what_no_graph_can_do_is_refused_in_one_line_that_names_the_place(forward, says):
    with pytest.raises(ConfigError, match=says) as refused:
        export(Through(forward, nn.Linear(4, 4)), (4,))
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.parametrize("used", [False, True])
def test_a_weight_that_is_computed_before_every_pass_is_exported(normed, used):
    module = nn.Sequential(nn.Flatten(), normed(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 3))
    if used:
        module(torch.ones(2, 4))
    assert worst(errors(onnx_model(module, (4,)), module, (4,))) < BOUND


def test_a_weight_that_hides_in_an_attribute_is_refused_with_the_remedy():
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 4))
    module[1].half = module[1].weight / 2
    with pytest.raises(ConfigError, match=r"1 keeps a tensor computed from its weights.*compute it in forward"):
        export(module, (4,))


def test_a_type_of_numbers_that_graphs_do_not_have_is_refused_with_the_line():
    module = Through(lambda x, layer: layer(x) * torch.arange(4, dtype=torch.uint8), nn.Linear(4, 4))
    with pytest.raises(ConfigError, match=rf"{HERE}.*numbers of type torch\.uint8"):
        export(module, (4,))


def test_a_model_whose_output_has_no_batch_is_refused():
    with pytest.raises(ConfigError, match="a batch of 2 gives"):
        export(Through(lambda x, layer: layer(x).sum(), nn.Linear(4, 4)), (4,))


@slow
@pytest.mark.parametrize(("name", "rate"), [
    ("resnet18", 0.05),
    ("mobilenet_v3_small", 0.05),
    ("shufflenet_v2_x0_5", 0.05),
    ("efficientnet_b0", 0.003),  # at 0.05 its loss grows tenfold, in torch as well
])  # fmt: skip
def test_torchvision_networks_learn_a_batch_by_heart(name, rate):
    module = getattr(import_torchvision().models, name)(num_classes=4)
    model, w = onnx_model(module, (3, 64, 64)), initial_params(module)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 3, 64, 64)).astype(np.float32), rng.integers(0, 4, 8)
    step, losses = Sgd(model.layout, rate), []
    for _ in range(12):
        z, pull = model.vjp(w, x)
        loss, dz = cross_entropy(z, y)
        losses.append(loss)
        w = step(w, pull(dz))
    assert losses[-1] < 0.7 * losses[0]


def test_a_dropout_mask_is_the_same_for_the_same_weights_and_batch_and_shapes_the_gradient():
    first, second = nn.Linear(5, 40), nn.Linear(40, 3)
    module = nn.Sequential(first, nn.Dropout(0.3), second)
    model, w = onnx_model(module, (5,)), initial_params(module)
    x = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    (mask,) = drawn(model._bundle.masks, lambda: w, x).values()
    twin = Through(lambda v, a, b: b(a(v) * torch.from_numpy(mask).to(v.dtype) / 0.7), first, second)
    z, pull = model.vjp(w, x)
    z64, pull64 = TorchModel(twin).vjp(w.astype(np.float64), x.astype(np.float64))
    assert relative(z, z64) < BOUND
    assert relative(pull(z), pull64(z.astype(np.float64))) < BOUND
    assert np.array_equal(model.vjp(w, x)[0], z)
    assert 0.5 < mask.mean() < 0.9
    assert not np.array_equal(drawn(model._bundle.masks, lambda: w, x + 1).popitem()[1], mask)


@pytest.mark.parametrize(
    ("rows", "width", "together"),
    [(5, 5, 5), (5, 7, 2), (5, 30, 1), (5, 40, 1), (3, 3, 3), (5, 9, 5), (3, 16, 1), (1, 1, 1)],  # blocks of 16 columns
)
def test_rows_of_a_kernel_share_a_product_as_long_as_that_saves_blocks(rows, width, together):
    assert _together(rows, width) == together
