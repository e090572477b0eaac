"""Networks of torchvision and of Hugging Face, each exported and held to torch: `architectures` of the Makefile here.

They are as their libraries make them, with random weights; those of Hugging Face and the vision transformers are
configured small, so every kind of layer is there, a few times. Dropout is off, since torch draws other masks.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from double_precision import gradient_in_double
from torch import Tensor, nn

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Vector, norm
from edgefl.learn.models.onnx.bundle import Bundle
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.torch_backend import TorchModel, initial_params
from edgefl.learn.models.torchvision_import import import_torchvision

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
STEPS, RATE, BATCH, TRIES = 3, 0.01, 4, 3
GRADIENT, WALK = 1e-4, 1e-3  # how far from torch in float64; or as far as torch in float32 is, times this:
PADDING = 20  # token numbers below it, a fifth of them
SLACK, MOST = 4, 1e-2  # and no further than that, which would be chance or chaos
EXACT, FEW = 1e-5, 4  # constants of a graph (BatchNorm's epsilon) are float32 even so; samples, which are slow there


@dataclass(frozen=True)
class Architecture:
    """How to make a network, and what one of its samples looks like."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    tokens: bool = False
    batch: int = BATCH  # the variance of few small images is nearly nothing: behind a BatchNorm, rounding then grows
    rate: float = RATE  # where a longer step leads to chaos, in torch as well


class Only(nn.Module):
    """A network of which one of several outputs is taken."""

    def __init__(self, network: nn.Module, output: str) -> None:
        super().__init__()
        self.network, self.output = network, output

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.network(x)[self.output]
        return result


class Padded(Only):
    """The same with an attention mask, which leaves out the low token numbers as if they were padding."""

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.network(x, attention_mask=(x >= PADDING).long())[self.output]
        return result


def _vision(name: str, **options: object) -> Callable[[], nn.Module]:
    return lambda: getattr(import_torchvision().models, name)(weights=None, num_classes=10, **options)


def _segmentation(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        models = import_torchvision().models.segmentation
        return Only(getattr(models, name)(weights=None, weights_backbone=None, num_classes=4), "out")

    return make


def _swin() -> nn.Module:
    swin = import_torchvision().models.swin_transformer
    network: nn.Module = swin.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10)
    return network


def _densenet() -> nn.Module:
    network: nn.Module = import_torchvision().models.DenseNet(8, (2, 2), 16, num_classes=10)
    return network


def _vit() -> nn.Module:
    vit = import_torchvision().models.vision_transformer
    network: nn.Module = vit.VisionTransformer(64, 16, 4, 4, 64, 128, num_classes=10)
    nn.init.normal_(network.get_submodule("heads.head").weight, std=0.1)  # zero, as torchvision makes it
    return network


def _hugging_face(name: str, output: str, *, padded: bool = False, **sizes: object) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import_torchvision()  # which transformers imports, if it is there
        import transformers  # noqa: PLC0415 - an extra of its own

        family = getattr(transformers, name)
        return (Padded if padded else Only)(family(family.config_class(**sizes)), output)

    return make


IMAGE = (3, 64, 64)
SMALL = (3, 32, 32)
TORCHVISION = {
    "resnet18": Architecture(_vision("resnet18"), IMAGE),
    "mobilenet_v2": Architecture(_vision("mobilenet_v2"), IMAGE, batch=16, rate=1e-5),
    "mobilenet_v3_small": Architecture(_vision("mobilenet_v3_small"), IMAGE),
    "efficientnet_b0": Architecture(_vision("efficientnet_b0"), IMAGE),
    "shufflenet_v2_x0_5": Architecture(_vision("shufflenet_v2_x0_5"), IMAGE, batch=16, rate=1e-5),
    "squeezenet1_1": Architecture(_vision("squeezenet1_1"), IMAGE),
    "densenet121": Architecture(_vision("densenet121"), IMAGE, batch=16),
    "DenseNet": Architecture(_densenet, SMALL, batch=16),
    "mnasnet0_5": Architecture(_vision("mnasnet0_5"), SMALL, rate=1e-5),
    "regnet_y_400mf": Architecture(_vision("regnet_y_400mf"), SMALL, rate=1e-5),
    "googlenet": Architecture(_vision("googlenet", aux_logits=False, init_weights=True), SMALL),
    "vgg11": Architecture(_vision("vgg11"), SMALL),
    "convnext_tiny": Architecture(_vision("convnext_tiny"), SMALL),
    "VisionTransformer": Architecture(_vit, IMAGE),
    "SwinTransformer": Architecture(_swin, IMAGE),
    "lraspp_mobilenet_v3_large": Architecture(_segmentation("lraspp_mobilenet_v3_large"), IMAGE),
    "fcn_resnet50": Architecture(_segmentation("fcn_resnet50"), SMALL),
    "deeplabv3_resnet50": Architecture(_segmentation("deeplabv3_resnet50"), SMALL),
    "deeplabv3_mobilenet_v3_large": Architecture(_segmentation("deeplabv3_mobilenet_v3_large"), IMAGE),
}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}  # no padding: with it, their code looks for it in the data
TEXT = (12,)
HUGGING_FACE = {
    "BertForSequenceClassification": Architecture(
        _hugging_face("BertForSequenceClassification", "logits", vocab_size=97, **LAYERS, **QUIET), TEXT, tokens=True),
    "BertForSequenceClassification, padded": Architecture(
        _hugging_face("BertForSequenceClassification", "logits", padded=True, vocab_size=97, **LAYERS, **QUIET), TEXT,
        tokens=True),
    "DistilBertForSequenceClassification": Architecture(
        _hugging_face("DistilBertForSequenceClassification", "logits", vocab_size=97, dim=32, n_layers=2, n_heads=4,
                      hidden_dim=64, attention_dropout=0.0), TEXT, tokens=True),
    "GPT2LMHeadModel": Architecture(
        _hugging_face("GPT2LMHeadModel", "logits", vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=16,
                      attn_pdrop=0.0, **ENDS), TEXT, tokens=True),
    "GPT2LMHeadModel, padded": Architecture(
        _hugging_face("GPT2LMHeadModel", "logits", padded=True, vocab_size=97, n_embd=32, n_layer=2, n_head=4,
                      n_positions=16, attn_pdrop=0.0, **ENDS), TEXT, tokens=True),
    "LlamaForCausalLM": Architecture(
        _hugging_face("LlamaForCausalLM", "logits", vocab_size=97, **LAYERS, num_key_value_heads=2,
                      max_position_embeddings=16, **ENDS), TEXT, tokens=True),
    "T5EncoderModel": Architecture(
        _hugging_face("T5EncoderModel", "last_hidden_state", vocab_size=97, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                      num_heads=4, dropout_rate=0.0), TEXT, tokens=True),
    "ViTForImageClassification": Architecture(
        _hugging_face("ViTForImageClassification", "logits", image_size=16, patch_size=4, **LAYERS, **QUIET),
        (3, 16, 16)),
    "Wav2Vec2ForSequenceClassification": Architecture(
        _hugging_face("Wav2Vec2ForSequenceClassification", "logits", **LAYERS, conv_dim=(16, 16, 16),
                      conv_kernel=(10, 3, 2), conv_stride=(5, 2, 2), num_feat_extract_layers=3,
                      num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.0,
                      attention_dropout=0.0), (400,)),
    "WhisperForAudioClassification": Architecture(
        _hugging_face("WhisperForAudioClassification", "logits", d_model=32, encoder_layers=2,
                      encoder_attention_heads=4, encoder_ffn_dim=64, num_mel_bins=8, max_source_positions=16,
                      vocab_size=97, decoder_start_token_id=1, pad_token_id=0, **ENDS), (8, 32)),
}  # fmt: skip
ALL = TORCHVISION | HUGGING_FACE


@dataclass(frozen=True)
class Verdict:
    """How far a network on onnxruntime is from torch in float64, and torch in float32 beside it."""

    parameters: int
    gradient: float = 0.0
    torch_gradient: float = 0.0
    walk: float = 0.0  # of the weights after some steps, as a share of the way they went
    torch_walk: float = 0.0
    exact: float | None = None  # our gradient, if its graphs are run in float64: only where float32 tells nothing
    refused: str = ""

    @property
    def agrees(self) -> bool:
        near = self.gradient < min(MOST, max(GRADIENT, SLACK * self.torch_gradient))
        return not self.refused and near and self.walk < min(MOST, max(WALK, SLACK * self.torch_walk))

    @property
    def chaotic(self) -> bool:
        """Whether torch in float32 is so far off that a comparison says nothing."""
        return self.torch_gradient > MOST / 10 or self.torch_walk > MOST


def judge(architecture: Architecture) -> Verdict:
    """Export the network and train it a few steps, here and in torch."""
    torch.manual_seed(1)
    module = quiet(architecture.make())
    parameters = sum(p.numel() for p in module.parameters())
    try:
        bundle = export(module, architecture.shape, dtype="int64" if architecture.tokens else "float32")
    except ConfigError as error:
        return Verdict(parameters, refused=str(error))
    ours, verdict = OnnxModel(bundle, batch=architecture.batch), Verdict(parameters)
    for seed in range(TRIES):  # rectifiers have kinks, and near one any two back-ends may take different sides
        verdict = Verdict(parameters, *compared(module, ours, architecture, seed))
        if verdict.agrees:
            break
    if verdict.chaotic and not verdict.agrees and not architecture.tokens:
        return replace(verdict, exact=exactly(module, bundle, architecture))
    return verdict


def exactly(module: nn.Module, bundle: Bundle, like: Architecture) -> float:
    """How far the gradient is from that of torch, both in float64."""
    rng, exact = np.random.default_rng(0), TorchModel(module)
    x, w = rng.standard_normal((FEW, *like.shape)), initial_params(module)
    z, pullback = exact.vjp(w.astype(np.float64), x)
    dz = (z - rng.standard_normal(z.shape)) / z[0].size
    right = pullback(dz)[: bundle.layout.trainable]
    return norm(gradient_in_double(bundle, w, x, dz) - right) / norm(right)


def compared(module: nn.Module, ours: OnnxModel, like: Architecture, seed: int) -> tuple[float, float, float, float]:
    """How far gradients and walks on onnxruntime, and in torch, are from those of torch in float64."""
    rng, full = np.random.default_rng(seed), (STEPS, like.batch, *like.shape)
    x = rng.integers(3, 90, full) if like.tokens else rng.standard_normal(full).astype(np.float32)
    w, exact = initial_params(module), TorchModel(module)
    goal = rng.standard_normal(exact.logits(w, x[0]).shape)
    (g64, w64), (g32, w32), (g, end) = (
        walked(model, w.astype(dtype), x if like.tokens else x.astype(dtype), goal.astype(dtype), like.rate)
        for model, dtype in ((exact, np.float64), (exact, np.float32), (ours, np.float32))
    )
    slope, far = norm(g64), norm(w64 - w)
    return norm(g - g64) / slope, norm(g32 - g64) / slope, norm(end - w64) / far, norm(w32 - w64) / far


def walked(model: TorchModel | OnnxModel, w: Vector, x: Vector, goal: Vector, rate: float) -> tuple[Vector, Vector]:
    """The first gradient of the squared distance to a goal, and the weights after a step down for each batch."""
    gradients, k = list[Vector](), model.layout.trainable
    for batch in x:
        z, pullback = model.vjp(w, batch)
        gradient = pullback((z - goal) / z[0].size)
        gradients = gradients or [gradient[:k]]
        w = np.concatenate([w[:k] - w.dtype.type(rate) * gradient[:k], w[k:] - gradient[k:]])
    return gradients[0], w


def quiet(module: nn.Module) -> nn.Module:
    """The module without chance."""
    for layer in module.modules():
        if isinstance(layer, nn.Dropout) or type(layer).__name__ == "StochasticDepth":
            layer.p = 0.0
    return module


def table(names: list[str]) -> Iterator[str]:
    """The page's table, line by line, as each network is judged."""
    yield "| network | parameters | gradient (torch) | after 3 steps (torch) | |"
    yield "|---|---:|---:|---:|---|"
    for name in names:
        v = judge(ALL[name])
        far = (
            f"{v.gradient:.0e} ({v.torch_gradient:.0e}) | {v.walk:.0e} ({v.torch_walk:.0e})" if not v.refused else " | "
        )
        words = v.refused or ("agrees" if v.agrees else "**differs**")
        if v.exact is not None:
            word = "agrees" if v.exact < EXACT else "**differs**"
            words = f"{word} in float64 ({v.exact:.0e}); float32 says nothing"
        yield f"| `{name}` | {v.parameters:,} | {far} | {words} |"


def main() -> None:
    """Judge these networks, or all, and put the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="some of them; then the page stays as it is")
    names = parser.parse_args().names
    torch.set_num_threads(1)
    lines = []
    for line in table(names or list(ALL)):
        print(line, flush=True)  # noqa: T201
        lines.append(line)
    if not names:
        start, end = "<!-- architectures -->\n", "<!-- end -->"
        text = re.sub(
            f"{start}.*?{end}", lambda _: start + "\n".join(lines) + f"\n{end}", PAGE.read_text(), flags=re.DOTALL
        )
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
