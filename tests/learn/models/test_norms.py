"""Norm layers are known by the kind of their module, wherever their tensors are, and in graphs as in torch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import edgefl
from edgefl.base.errors import WireError
from edgefl.base.vector import Layout
from edgefl.learn.algorithms.fedbn import FedBN
from edgefl.learn.models.norms import normalises
from edgefl.learn.models.onnx.bundle import pack, unpack
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.torch_backend import layout_of

WIDTH = 4


class Scaled(nn.RMSNorm):
    """A class of a user's own, derived from torch's."""


class MyRMSNorm(nn.Module):
    """One that is not derived, as most programs had before torch had its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.gain


class Position(nn.Module):
    """No norm: a row of weights, a bias of its shape, and a table that is no statistic."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("table", torch.linspace(-1, 1, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.bias + self.table


class Rows(nn.Module):
    """Gives a layer rows of so many axes as it wants, (n, channels, ...), and back."""

    def __init__(self, layer: nn.Module, axes: int) -> None:
        super().__init__()
        self.layer, self.axes = layer, axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.unflatten(1, (2, *[1] * (self.axes - 1), -1))).flatten(1)


NORMS = {
    "BatchNorm": (lambda: nn.BatchNorm1d(WIDTH), ("weight", "bias", "running_mean", "running_var")),
    "BatchNorm2d": (lambda: Rows(nn.BatchNorm2d(2), 2), ("weight", "bias", "running_mean", "running_var")),
    "LayerNorm": (lambda: nn.LayerNorm(WIDTH), ("weight", "bias")),
    "LayerNorm without bias": (lambda: nn.LayerNorm(WIDTH, bias=False), ("weight",)),
    "LayerNorm over two axes": (lambda: Rows(nn.LayerNorm([2, 2]), 1), ("weight", "bias")),
    "RMSNorm": (lambda: nn.RMSNorm(WIDTH), ("weight",)),
    "GroupNorm": (lambda: nn.GroupNorm(2, WIDTH), ("weight", "bias")),
    "InstanceNorm": (lambda: Rows(nn.InstanceNorm1d(2, affine=True), 1), ("weight", "bias")),
    "a class derived from torch's": (lambda: Scaled(WIDTH), ("weight",)),
    "a class of one's own that says it": (lambda: MyRMSNorm(WIDTH), ("gain",)),
}


def network(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), NORMS[kind][0](), Position(WIDTH), nn.Linear(WIDTH, 2))


def expected(kind: str) -> set[str]:
    make, own = NORMS[kind]
    inner = "layer." if isinstance(make(), Rows) else ""
    return {f"1.{inner}{name}" for name in own}


@pytest.mark.parametrize("kind", NORMS)
def test_its_tensors_are_known_with_torch_and_from_the_graphs(kind: str):
    layout = layout_of(network(kind))
    assert set(layout.norms) == expected(kind)
    bundle = unpack(pack(export(network(kind), (WIDTH,))))
    assert bundle.layout.norms == layout.norms
    assert FedBN().mask(bundle.layout).sum() == sum(
        part.stop - part.start for name, part in zip(layout.names, layout, strict=True) if name in expected(kind)
    )


@pytest.mark.night
@pytest.mark.parametrize("kind", NORMS)
def test_in_a_simulation_with_fedbn_it_stays_on_the_devices_and_the_rest_is_shared(kind: str):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, WIDTH)).astype(np.float32)
    module = network(kind)
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    history = edgefl.simulate(
        module, (x, (x[:, 0] > 0).astype(int)), algorithm="fedbn:lr=0.1", fleet=3, rounds=2,
        settings={"evaluation.on": "both"},
    )  # fmt: skip
    stayed = {name for name, tensor in history.state_dict().items() if torch.equal(tensor, start[name])}
    assert expected(kind) == {name for name in stayed if not name.endswith(("num_batches_tracked", "table"))}


@pytest.mark.parametrize("kind", ["RMSNorm", "LayerNorm without bias", "BatchNorm", "InstanceNorm"])
def test_a_device_without_torch_keeps_it(kind: str, tmp_path: Path):
    (tmp_path / "graphs").write_bytes(pack(export(network(kind), (WIDTH,))))
    code = (
        "import sys; sys.modules['torch'] = sys.modules['onnx'] = None\n"
        "import pathlib\n"
        "from edgefl.learn.algorithms.fedbn import FedBN\n"
        "from edgefl.learn.models.onnx.bundle import unpack\n"
        "from edgefl.learn.models.onnx_backend import OnnxModel\n"
        "layout = OnnxModel(unpack(pathlib.Path('graphs').read_bytes())).layout\n"
        "print(*FedBN().chosen(layout))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected(kind)


@pytest.mark.parametrize(
    ("name", "is_norm"),
    [
        *((name, True) for name in ("RMSNormGated", "LayerNormNoBias", "RMSNorm_fp32", "NormLayer", "MyNorm2d")),
        *((name, True) for name in ("LlamaRMSNorm", "BatchNormalization")),
        *((name, False) for name in ("Normalize", "InputNormaliser", "LogNormal", "WeightNormLinear", "SpectralNorm")),
        *((name, False) for name in ("Norway", "Linear")),
    ],
)
def test_a_class_of_ones_own_is_known_by_its_name(name: str, is_norm: bool):
    assert normalises(type(name, (nn.Module,), {})()) == is_norm


def test_which_tensors_stay_on_the_devices_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    FedBN().fits(layout_of(network("LayerNorm")))
    assert caplog.messages == ["stay on the devices tensors=1.weight,1.bias"]


def test_what_normalises_weights_and_not_values_is_no_norm_layer():
    torch.manual_seed(0)
    module = nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 3)), nn.Linear(3, 2))
    assert layout_of(module).norms == ()


def test_a_tied_weight_is_known_under_its_first_name():
    first, second = nn.RMSNorm(3), nn.RMSNorm(3)
    second.weight = first.weight
    assert layout_of(nn.Sequential(first, nn.Linear(3, 3), second)).norms == ("0.weight",)


def test_graphs_that_name_a_norm_layer_which_is_not_there_are_refused():
    bundle = export(network("RMSNorm"), (WIDTH,))
    object.__setattr__(bundle.layout, "norms", ("tail.weight",))
    object.__setattr__(bundle, "sha256", "")
    bundle.__post_init__()
    with pytest.raises(WireError, match="norm layers of tensors that are not there"):
        unpack(pack(bundle))


def test_two_layouts_are_the_same_whoever_knows_of_norm_layers():
    assert Layout(("w",), ((1,),), norms=("w",)) == Layout(("w",), ((1,),))
