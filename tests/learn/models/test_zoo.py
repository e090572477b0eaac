import numpy as np
import pytest
import torch

from edgefl.base.errors import ConfigError
from edgefl.learn.models.torch_backend import TorchModel, initial_params, takes_tokens
from edgefl.learn.models.zoo import ZOO, text

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
SMALL = {
    "softmax": (5,),
    "mlp": (2, 3),
    "mlp_bn": (7,),
    "lenet5": (1, 12, 13),
    "cnn": (1, 8, 8),
    "cnn_small": (2, 16, 17),
    "cnn_fedreg": (1, 20, 20),
    "sensor_cnn": (3, 9),
    "resnet9": (3, 8, 8),
    "text": (6,),
    "lstm": (5,),
    "transformer": (5,),
}
STEP = 1e-8  # small enough to cross no kink of a rectifier
CASES = [*SMALL.items(), ("lstm", (3, 6)), ("transformer", (3, 6))]
REAL = [(name, shape) for name, shape in CASES if name not in ("text", "lstm", "transformer") or len(shape) == 2]


def seeded_module(name, shape, classes=3):
    torch.manual_seed(1)
    return ZOO[name](shape, classes)


def batch(module, shape, n, rng):
    return rng.integers(0, 4096, (n, *shape)) if takes_tokens(module, shape) else rng.normal(size=(n, *shape))


def trained_parameters(name, shape, classes=10):
    return sum(p.numel() for p in seeded_module(name, shape, classes).parameters())


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_every_gradient_agrees_with_finite_differences(name, shape):
    rng = np.random.default_rng(0)
    module = seeded_module(name, shape)
    model, w = TorchModel(module), initial_params(module).astype(np.float64)
    x, dz = batch(module, shape, 4, rng), rng.normal(size=(4, 3))
    gradient = model.vjp(w, x)[1](dz)
    for _ in range(2):
        v = np.zeros_like(w)
        k = model.layout.trainable
        v[:k] = rng.normal(size=k) * STEP
        slope = np.sum((model.vjp(w + v, x)[0] - model.vjp(w - v, x)[0]) * dz) / 2
        assert gradient @ v == pytest.approx(slope, rel=1e-5, abs=1e-14)


@pytest.mark.parametrize(("name", "shape"), REAL)
def test_every_input_gradient_agrees_with_finite_differences(name, shape):
    rng = np.random.default_rng(0)
    module = seeded_module(name, shape)
    model, w = TorchModel(module), initial_params(module).astype(np.float64)
    x, dz, v = rng.normal(size=(2, *shape)), rng.normal(size=(2, 3)), rng.normal(size=(2, *shape)) * STEP
    slope = np.sum((model.logits(w, x + v) - model.logits(w, x - v)) * dz) / 2
    assert np.sum(model.input_gradient(w, x, dz) * v) == pytest.approx(slope, rel=1e-5, abs=1e-14)


def test_every_name_of_the_zoo_has_a_small_case():
    assert set(SMALL) == set(ZOO)


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("softmax", MNIST, 7_850),
        ("mlp", MNIST, 199_210),
        ("mlp_bn", MNIST, 178_710),
        ("lenet5", MNIST, 61_706),
        ("lenet5", CIFAR, 62_006),
        ("cnn", MNIST, 1_663_370),
        ("cnn", CIFAR, 2_156_490),
        ("cnn_fedreg", MNIST, 228_010),
        ("cnn_small", MNIST, 208 + 3_216 + 256 * 64 + 64 + 650),
        ("text", (20,), 4096 * 64 + 650),
    ],
)
def test_parameter_counts_are_those_of_the_papers(name, shape, count):
    assert trained_parameters(name, shape) == count


def test_the_text_model_takes_another_vocabulary():
    assert text((5,), 2, vocabulary=10).embedding.num_embeddings == 10


@pytest.mark.parametrize("name", [n for n in ZOO if n not in ("text", "lstm", "transformer")])
def test_a_network_does_not_touch_its_input(name):
    module = seeded_module(name, SMALL[name])
    x = torch.randn(2, *SMALL[name])
    kept = x.clone()
    module(x)
    assert torch.equal(x, kept)


@pytest.mark.parametrize(
    ("name", "shape", "needs"),
    [
        ("cnn", (64,), "images"),
        ("cnn", (1, 3, 3), "4x4"),
        ("cnn_small", (1, 8, 8), "16x16"),
        ("cnn_fedreg", (1, 19, 28), "20x20"),
        ("lenet5", (1, 8, 8), "12x12"),
        ("resnet9", (3, 7, 7), "8x8"),
        ("sensor_cnn", (9,), "windows"),
        ("sensor_cnn", (9, 3), "4 readings"),
        ("text", (9, 128), "token ids"),
        ("lstm", MNIST, "token ids"),
        ("transformer", (), "token ids"),
        ("mlp", (), "at least one number"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused_by_name_shape_and_need(name, shape, needs):
    with pytest.raises(ConfigError) as e:
        ZOO[name](shape, 10)
    assert f"'{name}'" in str(e.value)
    assert str(shape) in str(e.value)
    assert needs in str(e.value)
