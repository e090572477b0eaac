import subprocess
import sys

import numpy as np
import pytest
import torch

from edgefl.base.errors import ConfigError
from edgefl.learn.models import build as building
from edgefl.learn.models.build import build_module
from edgefl.learn.models.torch_imports import NO_TORCH
from edgefl.system import user_code

USER_CODE = """
import torch
from torch import nn

WIDTH = 3

def sized(shape, classes):
    return nn.Linear(shape[0], classes)

def fixed():
    return nn.Linear(4, 3)

class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(x).squeeze(1)

class Lost(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)

    def forward(self, x):
        return super().forward(x).detach()

def words(shape, classes):
    return nn.Sequential(nn.Embedding(10, 5), nn.Flatten(), nn.Linear(5 * shape[0], classes))

def nothing(shape, classes):
    return None
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A user's module in the current directory; its name."""
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(USER_CODE)
    (tmp_path / f"{name}_broken.py").write_text("def (:")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path)])
    return name


def build(model, *about, **options):
    """A model that the operator's run file names."""
    user_code.allow(model)
    return building.build(model, *about, **options)


def test_the_same_seed_gives_the_same_weights_and_leaves_the_generator_alone():
    before = torch.get_rng_state()
    (_, a), (_, b), (_, c) = (build("mlp", (6,), 3, seed) for seed in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert torch.equal(before, torch.get_rng_state())


def test_module_and_weights_belong_together():
    model, w = build("cnn", (1, 8, 8), 10, 4, device="cpu")
    module = build_module("cnn", (1, 8, 8), 10, 4).eval()
    x = np.random.default_rng(0).normal(size=(3, 1, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(model.logits(w, x), module(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_no_classes_means_one_real_output():
    model, w = build("softmax", (6,), 0, 1)
    assert model.logits(w, np.zeros((2, 6), np.float32)).shape == (2, 1)


def test_a_seed_of_any_size_will_do():
    assert np.array_equal(build("softmax", (2,), 2, 2**70 + 5)[1], build("softmax", (2,), 2, 2**70 + 5)[1])
    assert build("softmax", (2,), 2, -1)[1].shape == (6,)


def test_a_users_factory_gets_shape_and_classes_if_it_takes_them(mine):
    model, w = build(f"{mine}:sized", (4,), 3, 1)
    assert w.shape == (15,)
    assert model.logits(w, np.zeros((2, 4), np.float32)).shape == (2, 3)


def test_a_users_factory_without_arguments_is_called_without(mine):
    assert build(f"{mine}:fixed", (4,), 3, 1)[1].shape == (15,)


def test_a_users_model_for_token_ids_is_tried_with_token_ids(mine):
    assert build(f"{mine}:words", (4,), 3, 1)[1].shape == (50 + 63,)


def test_a_model_of_torchvision_can_be_named():
    with pytest.raises(ConfigError, match=r"a batch of 2 gives \(2, 1000\), expected \(2, 10\)"):
        build("torchvision.models:squeezenet1_1", (3, 32, 32), 10, 1)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("cnm", "unknown model 'cnm'; did you mean 'cnn'"),
        ("zebra", "known: cnn, "),
        ("no_such_package:net", "cannot import 'no_such_package'"),
        (":net", "cannot import ''"),
        ("{mine}_broken:net", "cannot import"),
        ("{mine}:sised", "did you mean 'sized'"),
        ("{mine}:WIDTH", "WIDTH is of type int"),
        ("{mine}:nothing", "gave NoneType, not"),
        ("{mine}:Flat", r"shape \(4,\): a batch of 2 gives \(2,\), expected \(2, 3\)"),
        ("{mine}:Lost", "fails: .*grad"),
        ("cnn", r"'cnn' cannot take samples of shape \(4,\)"),
    ],
)
def test_a_wrong_model_is_refused_in_one_line(mine, model, words):
    with pytest.raises(ConfigError, match=words) as e:
        build(model.format(mine=mine), (4,), 3, 1)
    assert "\n" not in str(e.value)


def test_a_factory_that_does_not_fit_the_data_names_model_shape_and_reason(mine):
    with pytest.raises(ConfigError, match=rf"'{mine}:fixed' on samples of shape \(5,\) fails: .*shape"):
        build(f"{mine}:fixed", (5,), 3, 1)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("return undefined", "NameError: name 'undefined' is not defined"),
        ("raise KeyError('conv')", "KeyError: 'conv'"),
        ("raise ValueError('too\\nlong')", "too"),
    ],
)
def test_a_factory_that_fails_is_one_line_with_its_place(tmp_path, monkeypatch, code, says):
    (tmp_path / "failing_factory.py").write_text(f"def net(shape, classes):\n    {code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_factory", raising=False)
    with pytest.raises(ConfigError) as refused:
        build("failing_factory:net", (4,), 3, 1)
    place = f"{tmp_path}/failing_factory.py line 2 ({code})"
    assert str(refused.value) == f"model 'failing_factory:net': its factory fails at {place}: {says}"


def test_a_factory_may_import_torchvision_itself(tmp_path, monkeypatch):
    (tmp_path / "visual.py").write_text(
        "from torch import nn\n"
        "calls = []\n"
        "def net(shape, classes):\n"
        "    calls.append(shape)\n"
        "    if len(calls) == 1:  # what torchvision says beside a CPU torch, unless it was helped\n"
        "        raise RuntimeError('operator torchvision::nms does not exist')\n"
        "    return nn.Linear(*shape, classes)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert build("visual:net", (4,), 3, 1)[1].shape == (15,)
    assert "torchvision" in sys.modules


def test_an_unknown_device_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'cuda'"):
        build("softmax", (2,), 2, 1, device="cude")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="no GPU"):
        build("softmax", (2,), 2, 1, device="cuda")


def test_without_torch_the_module_imports_and_building_says_what_to_install():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from edgefl.base.errors import ConfigError\n"
        "from edgefl.learn.models.build import build\n"
        "try:\n"
        "    build('mlp', (2,), 2, 1)\n"
        "except ConfigError as e:\n"
        "    print(e)\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == NO_TORCH
