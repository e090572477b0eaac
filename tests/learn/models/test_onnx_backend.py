"""The onnxruntime back-end: it keeps the promises of `Model` and needs no torch."""

import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from edgefl.base.errors import ConfigError, RemoteError, WireError
from edgefl.learn.losses import cross_entropy
from edgefl.learn.models.onnx.bundle import pack, unpack
from edgefl.learn.models.onnx_backend import SLICE, OnnxModel
from edgefl.learn.models.onnx_bindings import Bindings
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.torch_backend import TorchModel, initial_params
from edgefl.learn.models.zoo import ZOO
from edgefl.learn.training.local import Sgd

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8),
        nn.Dropout(0.2),
        nn.Linear(8, 3),
    )  # fmt: skip


@pytest.fixture(scope="module")
def bundle(module):
    return export(module, SHAPE)


@pytest.fixture
def model(bundle):
    return OnnxModel(bundle)


@pytest.fixture
def w(module):
    return initial_params(module)


def batch(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, *SHAPE)).astype(np.float32), rng.integers(0, 3, n)


def test_the_layout_is_that_of_the_torch_back_end(model, module):
    assert model.layout == TorchModel(module).layout
    assert model.layout.buffers == 2


def test_a_pullback_stays_valid_when_another_pass_runs_in_between(model, w):
    x, _ = batch(5)
    z, pull = model.vjp(w, x)
    before = pull(np.ones_like(z))
    other, pull_other = model.vjp(w + 1, batch(5, seed=1)[0])
    pull_other(np.ones_like(other))
    assert np.array_equal(pull(np.ones_like(z)), before)


def test_pullbacks_of_batches_of_different_sizes_wait_for_each_other(model, w):
    passes = [model.vjp(w, batch(n, seed=n)[0]) for n in (3, 8, 3, 5)]
    waited = [pull(np.ones_like(z)) for z, pull in reversed(passes)][::-1]
    for n, gradient in zip((3, 8, 3, 5), waited, strict=True):
        z, pull = model.vjp(w, batch(n, seed=n)[0])
        assert np.array_equal(pull(np.ones_like(z)), gradient)


def test_the_statistics_move_as_torch_moves_them(model, module, w):
    x, _ = batch(6)
    k = model.layout.trainable
    z, pull = model.vjp(w, x)
    moved = pull(np.zeros_like(z))[k:]
    theirs = TorchModel(module).vjp(w, x)[1](np.zeros_like(z))[k:]
    assert np.allclose(moved, theirs, atol=1e-7)
    assert np.abs(moved).min() > 0


def test_a_single_sample_runs_in_evaluation_mode_and_moves_no_statistic(model, w):
    x, _ = batch(1)
    z, pull = model.vjp(w, x)
    assert np.array_equal(pull(z)[model.layout.trainable :], np.zeros(8))
    assert np.allclose(z, model.logits(w, x), atol=1e-6)


def test_a_walk_of_steps_ends_at_the_same_bits_in_two_models(bundle, w):
    ends = []
    for _ in range(2):
        model, at = OnnxModel(bundle), w
        step = Sgd(model.layout, 0.1, momentum=0.9)
        for i in range(5):
            x, y = batch(4, seed=i)
            z, pull = model.vjp(at, x)
            at = step(at, pull(cross_entropy(z, y)[1]))
        ends.append(at)
    assert np.array_equal(*ends)


def test_many_samples_are_evaluated_in_slices_and_come_back_in_order(model, w):
    x, _ = batch(600)
    whole = model.logits(w, x)
    assert whole.shape == (600, 3)
    assert np.allclose(whole[590:], model.logits(w, x[590:]), atol=1e-5)


def test_wrong_arguments_are_told_apart(model, w):
    x, _ = batch(2)
    with pytest.raises(ValueError, match="samples of shape"):
        model.logits(w, x[:, :, :4])
    with pytest.raises(ValueError, match="vector of"):
        model.logits(w[:-1], x)
    with pytest.raises(ValueError, match="float32"):
        model.logits(w.astype(np.float64), x)
    with pytest.raises(ValueError, match="gradient of shape"):
        model.vjp(w, x)[1](np.ones((2, 4), np.float32))


def test_tokens_have_no_gradient():
    net = ZOO["text"]((5,), 3)
    model = OnnxModel(export(net, (5,), dtype="int64"))
    with pytest.raises(ConfigError, match="token ids"):
        model.input_gradient(initial_params(net), np.zeros((2, 5), np.int64), np.zeros((2, 3), np.float32))


def test_a_weight_that_is_never_used_has_gradient_zero():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            return self.used(x)

    net = Lazy()
    model, w = OnnxModel(export(net, (4,))), initial_params(net)
    z, pull = model.vjp(w, np.ones((3, 4), np.float32))
    named = model.layout.layers(pull(np.ones_like(z)))
    assert not named["idle.weight"].any()
    assert named["used.weight"].all()


def test_a_bundle_survives_the_journey(bundle, w):
    copy = unpack(pack(bundle))
    assert copy == bundle
    x, _ = batch(3)
    assert np.array_equal(OnnxModel(copy).vjp(w, x)[0], OnnxModel(bundle).vjp(w, x)[0])


def test_a_bundle_that_was_changed_or_cut_is_refused(bundle):
    data = pack(bundle)
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    for bad in (bytes(changed), data[:-1], b"", bytes(40)):
        with pytest.raises(WireError) as error:
            unpack(bad)
        assert error.value.code in ("wire.hash", "wire.malformed")


def test_exporting_twice_gives_the_same_hash(module, bundle):
    assert export(module, SHAPE).sha256 == bundle.sha256


def test_a_graph_that_needs_more_memory_than_allowed_is_never_loaded(bundle, w):
    with pytest.raises(RemoteError) as error:
        OnnxModel(bundle, memory=1000).logits(w, batch(1)[0])
    assert error.value.code == "model.too_large"


@pytest.mark.parametrize("bound", [4, 16])
def test_onnxruntime_writes_no_result_of_another_shape_than_the_memory_bound_for_it(bound):
    """What is bound is checked before; this is what it would take to get past that, and it must still be safe."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("ConstantOfShape", ["s"], ["y"], value=numpy_helper.from_array(np.full(1, 7, np.float32)))],
        "g", [value("s", TensorProto.INT64, [1])], [value("y", TensorProto.FLOAT, ["N"])],
    )  # fmt: skip
    graph = helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    memory, binding = np.zeros(64, np.float32), session.io_binding()
    binding.bind_cpu_input("s", np.array([8]))
    binding.bind_output("y", "cpu", 0, np.float32, [bound], memory.ctypes.data)
    with pytest.raises(RuntimeError, match="shape"):
        session.run_with_iobinding(binding)
    assert not memory.any()


def need(bundle, graph, rows):
    return Bindings(bundle, 1 << 30).signature(graph, rows).need


def test_the_guard_allows_as_many_samples_as_are_really_run(bundle, w):
    fits = need(bundle, "forward", 3)
    model = OnnxModel(bundle, memory=fits, batch=1)
    assert model.logits(w, batch(3)[0]).shape == (3, 3)
    with pytest.raises(RemoteError, match="for a batch of 4") as refused:
        model.logits(w, batch(4)[0])
    assert refused.value.code == "model.too_large"


def test_a_test_set_of_any_size_needs_the_memory_of_one_slice(bundle, w):
    model = OnnxModel(bundle, memory=need(bundle, "forward", SLICE), batch=1)
    assert len(model.logits(w, batch(3 * SLICE + 1)[0])) == 3 * SLICE + 1


def test_a_batch_larger_than_the_job_said_is_checked_before_it_runs(bundle, w):
    model = OnnxModel(bundle, memory=need(bundle, "training", 8), batch=2)
    model.vjp(w, batch(8)[0])
    with pytest.raises(RemoteError, match="for a batch of 9"):
        model.vjp(w, batch(9)[0])


def test_a_device_needs_neither_torch_nor_onnx(bundle, w, tmp_path):
    (tmp_path / "bundle").write_bytes(pack(bundle))
    np.save(tmp_path / "w.npy", w)
    code = (
        "import sys; sys.modules['torch'] = sys.modules['onnx'] = None\n"
        "import numpy as np, pathlib\n"
        "from edgefl.learn.models.onnx.bundle import unpack\n"
        "from edgefl.learn.models.onnx_backend import OnnxModel\n"
        "model = OnnxModel(unpack(pathlib.Path('bundle').read_bytes()))\n"
        "z, pull = model.vjp(np.load('w.npy'), np.ones((2, 1, 8, 8), np.float32))\n"
        "print(pull(z).size)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) == w.size
