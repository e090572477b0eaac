import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from edgefl.base.errors import ConfigError
from edgefl.learn.losses import cross_entropy
from edgefl.learn.models.torch_backend import TorchModel, initial_params, layout_of, takes_tokens
from edgefl.learn.models.zoo import ZOO
from edgefl.learn.training.local import Sgd


def seeded_model(name="mlp_bn", shape=(6,), classes=3):
    torch.manual_seed(2)
    module = ZOO[name](shape, classes)
    return module, TorchModel(module), initial_params(module)


def samples(n=8, width=6, classes=3):
    rng = np.random.default_rng(5)
    return rng.normal(size=(n, width)).astype(np.float32), rng.integers(0, classes, n)


def test_the_layout_has_parameters_first_and_statistics_last_and_no_counters():
    layout = layout_of(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3)))
    assert layout.names == ("0.weight", "0.bias", "1.weight", "1.bias", "0.running_mean", "0.running_var")
    assert (layout.trainable, layout.size, layout.buffers) == (13, 17, 2)


def test_initial_params_are_the_weights_of_the_module():
    module = nn.Linear(2, 1).double()
    w = initial_params(module)
    assert w.dtype == np.float32
    assert w.tolist() == pytest.approx([*module.weight[0].tolist(), module.bias.item()])


def test_a_linear_model_computes_what_one_can_compute_by_hand():
    model = TorchModel(nn.Linear(2, 1))
    w, x = np.array([2.0, 3.0, 1.0], np.float32), np.array([[1.0, 10.0]], np.float32)
    z, pullback = model.vjp(w, x)
    assert z.tolist() == [[33.0]]
    assert pullback(np.array([[2.0]], np.float32)).tolist() == [2.0, 20.0, 2.0]
    assert model.logits(w, x).tolist() == [[33.0]]
    assert model.input_gradient(w, x, np.array([[2.0]], np.float32)).tolist() == [[4.0, 6.0]]


def test_the_gradient_is_a_fresh_contiguous_float32_vector():
    _, model, w = seeded_model()
    x, y = samples()
    z, pullback = model.vjp(w, x)
    dz = cross_entropy(z, y)[1]
    a, b = pullback(dz), pullback(dz)
    assert a.dtype == np.float32
    assert a.shape == w.shape
    assert a.flags.c_contiguous
    assert a.flags.writeable
    assert not np.shares_memory(a, b)
    assert np.array_equal(a, b)


def test_it_agrees_with_plain_torch():
    module, model, w = seeded_model("mlp")
    x, y = samples()
    z, pullback = model.vjp(w, x)
    got = pullback(cross_entropy(z, y)[1])
    functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y)).backward()
    want = np.concatenate([p.grad.numpy().ravel() for p in module.parameters()])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-7)


def test_a_pullback_survives_other_calls_and_writing_to_what_it_was_made_from():
    _, model, w = seeded_model()
    x, y = samples()
    z, pullback = model.vjp(w, x)
    dz = cross_entropy(z, y)[1]
    want = pullback(dz)

    w2, x2 = w.copy(), x.copy()
    z2, pullback = model.vjp(w2, x2)
    model.vjp(w * 2, x + 1)[1](dz)
    model.logits(w * 3, x)
    model.input_gradient(w * 3, x, dz)
    w2[:], x2[:], z2[:] = 7, 7, 7
    assert np.array_equal(pullback(dz), want)


def test_a_pullback_survives_writing_to_outputs_that_its_derivative_needs():
    model = TorchModel(nn.Sequential(nn.Linear(1, 1, bias=False), nn.Sigmoid()))
    z, pullback = model.vjp(np.zeros(1, np.float32), np.ones((1, 1), np.float32))
    z[:] = 0
    assert pullback(np.ones((1, 1), np.float32)).tolist() == [0.25]  # s (1 - s) at s = 0.5


@pytest.fixture
def eager_threads():
    """Threads that take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
def test_calls_from_several_threads_do_not_mix_their_weights():
    module = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(20)))
    model, x = TorchModel(module), np.ones((1, 1), np.float32)
    scales = [0.5, 1.0, 2.0, -1.0] * 25
    with ThreadPoolExecutor(4) as pool:
        outputs = list(pool.map(lambda a: model.logits(np.full(20, a, np.float32), x).item(), scales))
    assert outputs == [a**20 for a in scales]


def test_repeats_are_identical_to_the_last_bit_in_this_process_and_in_another():
    program = (
        "import numpy as np, torch\n"
        "from edgefl.learn.models.zoo import ZOO\n"
        "from edgefl.learn.models.torch_backend import TorchModel, initial_params\n"
        "torch.manual_seed(3)\n"
        "m = torch.nn.Sequential(ZOO['cnn']((1, 8, 8), 20), torch.nn.Dropout(0.5), torch.nn.Linear(20, 3))\n"
        "model, w = TorchModel(m), initial_params(m)\n"
        "x = np.random.default_rng(0).normal(size=(16, 1, 8, 8)).astype(np.float32)\n"
        "z, pullback = model.vjp(w, x)\n"
        "import hashlib\n"
        "digest = hashlib.sha256(z.tobytes() + pullback(z).tobytes() + model.logits(w, x).tobytes()).hexdigest()\n"
    )
    seen = []
    for _ in range(2):
        names = {}
        exec(program, names)
        seen.append(names["digest"])
    other = subprocess.run(
        [sys.executable, "-c", program + "print(digest)"], capture_output=True, text=True, check=True
    )
    assert [*seen, other.stdout.strip()] == [seen[0]] * 3


def test_batch_norm_statistics_after_a_step_are_those_of_torch():
    module, model, w = seeded_model()
    x, y = samples()
    plain = deepcopy(module).train()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    step = Sgd(model.layout, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(plain(torch.tensor(x)), torch.tensor(y)).backward()
        optimizer.step()
        z, pullback = model.vjp(w, x)
        w = step(w, pullback(cross_entropy(z, y)[1]))
    np.testing.assert_allclose(w, initial_params(plain), rtol=1e-4, atol=1e-6)
    plain.eval()
    np.testing.assert_allclose(model.logits(w, x), plain(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_the_move_of_a_statistic_is_the_old_value_minus_the_new_one():
    model = TorchModel(nn.BatchNorm1d(1))
    w = np.array([1, 0, 4, 1], np.float32)  # weight, bias, running mean, running variance
    x = np.array([[1.0], [3.0]], np.float32)  # mean 2, unbiased variance 2
    g = model.vjp(w, x)[1](np.zeros((2, 1), np.float32))
    assert g.tolist() == pytest.approx([0, 0, 0.1 * (4 - 2), 0.1 * (1 - 2)])


def test_a_batch_of_one_sample_moves_no_statistic():
    _, model, w = seeded_model()
    x, _ = samples(1)
    z, pullback = model.vjp(w, x)
    g = pullback(np.ones_like(z))
    assert np.array_equal(z, model.logits(w, x))
    assert np.any(g[: model.layout.trainable])
    assert not np.any(g[model.layout.trainable :])


def test_evaluation_does_not_depend_on_the_other_samples_nor_on_slicing():
    _, model, w = seeded_model()
    x, _ = samples(1100)
    z = model.logits(w, x)
    assert z.shape == (1100, 3)
    np.testing.assert_allclose(z[600:603], model.logits(w, x[600:603]), rtol=1e-5, atol=1e-6)
    assert model.logits(w, x[:0]).shape == (0, 3)


class Hidden(nn.Module):
    """Dropout that no list of layers shows."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(functional.dropout(x, 0.5, self.training))


@pytest.mark.parametrize("module", [nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)), Hidden()])
def test_dropout_depends_on_weights_and_batch_and_on_nothing_else(module):
    x, _ = samples()
    w = initial_params(module)
    first, second = TorchModel(module), TorchModel(module)
    torch.manual_seed(1)
    a, pullback = first.vjp(w, x)
    first.vjp(w, x + 1)
    torch.manual_seed(2)
    b = second.vjp(w, x)[0]
    assert np.array_equal(a, b)
    assert np.array_equal(a, first.vjp(w, x)[0])
    assert np.array_equal(pullback(a), second.vjp(w, x)[1](b))
    assert not np.allclose(a, first.logits(w, x))
    moved = w.copy()
    moved[0] += 1e-3
    assert not np.allclose(a, first.vjp(moved, x)[0], atol=1e-2)  # another mask, not just other weights


def test_training_leaves_the_generator_of_torch_alone():
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))
    before = torch.get_rng_state()
    TorchModel(module).vjp(initial_params(module), samples()[0])
    assert torch.equal(before, torch.get_rng_state())


def test_the_callers_module_is_left_as_it_was():
    module, model, w = seeded_model()
    before = {n: t.clone() for n, t in module.state_dict().items()}
    model.vjp(w * 2, samples()[0])
    assert module.training
    assert all(torch.equal(t, before[n]) for n, t in module.state_dict().items())


def test_float64_weights_give_float64_and_the_next_float32_call_is_unharmed():
    module = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    model, w = TorchModel(module), initial_params(module)
    x, _ = samples()
    want = model.logits(w, x)
    z, pullback = model.vjp(w.astype(np.float64), x.astype(np.float64))
    assert (z.dtype, pullback(z).dtype) == (np.float64, np.float64)
    assert model.input_gradient(w.astype(np.float64), x, z).dtype == np.float64
    assert np.array_equal(model.logits(w, x), want)


def test_frozen_parameters_are_not_part_of_the_vector():
    module = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    assert layout_of(module).names == ("1.weight", "1.bias")


class Tied(nn.Module):
    """The same matrix there and back."""

    def __init__(self):
        super().__init__()
        self.there = nn.Linear(2, 2, bias=False)
        self.back = nn.Linear(2, 2, bias=False)
        self.back.weight = self.there.weight

    def forward(self, x):
        return self.back(self.there(x))


def test_a_tied_parameter_travels_once_and_gathers_both_gradients():
    model = TorchModel(Tied())
    w = np.array([3, 0, 0, 1], np.float32)
    z, pullback = model.vjp(w, np.array([[1, 0]], np.float32))
    assert z.tolist() == [[9, 0]]
    assert pullback(np.array([[1, 0]], np.float32))[0] == 6  # d(a * a) / da


def test_an_lstm_follows_the_weights_it_is_given():
    _, model, w = seeded_model("lstm", (2, 5))
    x = np.ones((1, 2, 5), np.float32)
    other = w.copy()
    model.layout.layers(other)["lstm.weight_hh_l0"][:] += 1
    assert not np.allclose(model.logits(w, x), model.logits(other, x))


class Counting(nn.Module):
    """The square of its parameter, and a statistic of its own, written to in place."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        z = x * self.a * self.a
        if self.training:
            self.seen.add_(len(x))
        return z


def test_a_home_made_statistic_moves_too():
    z, pullback = TorchModel(Counting()).vjp(np.array([3, 10], np.float32), np.ones((2, 1), np.float32))
    assert z.tolist() == [[9], [9]]
    assert pullback(np.ones((2, 1), np.float32)).tolist() == [2 * 6, 10 - 12]


def test_a_parameter_that_is_not_used_has_gradient_zero():
    module = Tied()
    module.idle = nn.Parameter(torch.ones(3))
    model = TorchModel(module)
    z, pullback = model.vjp(initial_params(module), np.ones((1, 2), np.float32))
    assert pullback(z)[next(iter(model.layout))].tolist() == [0, 0, 0]
    assert pullback(z).shape == (7,)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_token_ids_stay_integers_and_have_no_gradient(dtype):
    module, model, w = seeded_model("text", (4,))
    x = np.array([[1, 2, 3, 4000]], dtype)
    assert takes_tokens(module, (4,))
    assert np.array_equal(model.vjp(w, x)[0], model.logits(w, x))
    with pytest.raises(ConfigError, match="token ids"):
        model.input_gradient(w, x, np.ones((1, 3), np.float32))


def test_arrays_that_cannot_be_written_or_have_odd_strides_are_welcome():
    _, model, w = seeded_model("mlp")
    x, _ = samples()
    want = model.vjp(w, x)[1](np.ones((8, 3), np.float32))
    w.flags.writeable = False
    turned = x[::-1].copy()[::-1]
    dz = np.ones((8, 3), np.float32)[::-1]
    dz.flags.writeable = False
    assert np.array_equal(model.vjp(w, turned)[1](dz), want)


@pytest.mark.parametrize("w", [np.zeros(3, np.float32), np.zeros((1, 21), np.float32), np.zeros(21, np.float16)])
def test_weights_of_another_size_or_type_are_refused(w):
    model = TorchModel(nn.Linear(6, 3))
    with pytest.raises(ValueError, match="expected"):
        model.logits(w, samples()[0])


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.ReLU(), "no trainable parameter"),
        (nn.Linear(2, 2).requires_grad_(False), "no trainable parameter"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=None)), "1 has momentum=None"),
        (nn.BatchNorm1d(2, track_running_stats=False), "track_running_stats"),
        (nn.LazyLinear(2), "lazy"),
    ],
)
def test_a_module_that_cannot_be_trained_this_way_is_refused_in_one_line(module, words):
    with pytest.raises(ConfigError, match=words) as e:
        TorchModel(module)
    assert "\n" not in str(e.value)
