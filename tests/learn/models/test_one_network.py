"""One network on both sides: what is frozen or constant is the same at the coordinator and on devices, for any seed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from edgefl.base.errors import ConfigError
from edgefl.delivery.deploy import save_onnx
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.learn.models.agreement import OUTPUTS, gradient_gap, output_gap, shifted
from edgefl.learn.models.build import build
from edgefl.learn.models.onnx.bundle import unpack
from edgefl.learn.models.torch_backend import initial_params
from edgefl.sim.loop import simulate
from edgefl.sim.rehearsal import rehearse
from edgefl.system import user_code

NETWORKS = '''
import random
import numpy as np
import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.base = nn.Linear(shape[-1] * shape[-2], classes).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(4, self.base.in_features) / 8)
        self.b = nn.Parameter(torch.zeros(classes, 4))

    def forward(self, x):
        x = x.flatten(1)
        return self.base(x) + x @ self.a.T @ self.b.T


def frozen_trunk(shape, classes):
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(shape[-1] * shape[-2], 64), nn.ReLU()).requires_grad_(False)
    head = nn.Linear(64, classes)
    nn.init.zeros_(head.weight)  # whatever stands before it, the outputs of the fresh network are the same
    nn.init.zeros_(head.bias)
    return nn.Sequential(trunk, head)


def frozen_norm(shape, classes):
    norm = nn.BatchNorm1d(shape[-1] * shape[-2])
    nn.init.normal_(norm.weight)
    return nn.Sequential(nn.Flatten(), norm.requires_grad_(False), nn.Linear(norm.num_features, classes))


class RandomFeatures(nn.Module):
    """Drawn by whatever generator the author liked, and kept where state_dict does not look."""

    def __init__(self, shape, classes):
        super().__init__()
        width = shape[-1] * shape[-2]
        self.by_torch = torch.randn(width, 16) / 4
        self.by_numpy = torch.tensor(np.random.randn(width, 16).astype("f4")) / 4
        self.by_python = torch.tensor([[random.gauss(0, 1) for _ in range(16)] for _ in range(width)]) / 4
        self.head = nn.Linear(48, classes)

    def forward(self, x):
        x = x.flatten(1)
        return self.head(torch.cos(torch.cat([x @ self.by_torch, x @ self.by_numpy, x @ self.by_python], 1)))


class OwnGenerator(RandomFeatures):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        fresh = torch.Generator()
        fresh.seed()
        self.by_torch = torch.randn(self.by_torch.shape, generator=fresh)


class Noisy(nn.Sequential):
    def forward(self, x):
        return super().forward(x + torch.randn_like(x))


def with_dropout(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(shape[-1] * shape[-2], classes))


def noisy(shape, classes):
    return Noisy(nn.Flatten(), nn.Linear(shape[-1] * shape[-2], classes))


def quiet_difference(shape, classes):
    fresh = torch.Generator()
    fresh.seed()
    frozen = nn.Linear(shape[-1] * shape[-2], 16).requires_grad_(False)
    frozen.weight.copy_(torch.randn(frozen.weight.shape, generator=fresh))
    head = nn.Linear(16, classes)
    nn.init.zeros_(head.weight)
    return nn.Sequential(nn.Flatten(), frozen, head)
'''
FROZEN = ["LoRA", "frozen_trunk", "frozen_norm", "RandomFeatures"]
OTHERS = ["OwnGenerator", "quiet_difference", "noisy", "with_dropout"]


@pytest.fixture(autouse=True)
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "partly_frozen.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "partly_frozen", raising=False)
    user_code.allow([f"partly_frozen:{network}" for network in (*FROZEN, *OTHERS)])


def run(network: str, **task: object) -> RunFile:
    return RunFile.model_validate(
        {
            "run": {"name": "frozen", "rounds": 8, "seed": 7},
            "task": {"model": f"partly_frozen:{network}", "partition": {"kind": "iid", "devices": 2}, **task},
            "algorithm": {"name": "fedavg", "lr": 0.5},
        }
    )


@pytest.mark.parametrize("network", FROZEN)
def test_devices_have_the_coordinators_network_whatever_the_seed(network: str, tmp_path: Path) -> None:
    job, held = jobs.prepare(run(network))
    x, w = held.test.x[:16], shifted(job.model, job.start)
    assert output_gap(job.model, job.device_model, w, x) < OUTPUTS
    assert gradient_gap(job.model, job.device_model, w, x) < OUTPUTS
    on_a_device, _ = build(job.run.task.model, job.sample, job.classes, job.run.run.seed)  # one with PyTorch
    assert output_gap(on_a_device, job.model, w, x) < OUTPUTS
    assert save_onnx(tmp_path / "m.onnx", unpack(job.graphs), on_a_device, w, x=x, facts={}) < OUTPUTS
    ours, torchs = job.model.tensors(w), on_a_device.tensors(w)  # what is frozen, too
    assert ours.keys() == torchs.keys()
    assert all(np.array_equal(ours[name], torchs[name]) for name in ours)


def test_a_network_on_a_frozen_trunk_learns_with_any_seed() -> None:
    job, held = jobs.prepare(run("frozen_trunk"))
    run_state = simulate(job, dict(zip(jobs.device_names(2), held.devices, strict=True)))
    assert run_state.best > 0.8


def test_what_is_trained_begins_as_torch_makes_it_with_the_runs_seed() -> None:
    import partly_frozen

    job, _ = jobs.prepare(run("with_dropout"))
    torch.manual_seed(7)
    np.testing.assert_array_equal(job.start, initial_params(partly_frozen.with_dropout(job.sample, job.classes)))


@pytest.mark.parametrize(
    ("network", "backend"),
    [("OwnGenerator", "onnx"), ("OwnGenerator", "torch"), ("quiet_difference", "onnx"), ("noisy", "torch")],
)
def test_a_network_that_comes_out_differently_each_time_is_refused_by_name(network: str, backend: str) -> None:
    for prepared in (jobs.prepare, rehearse):
        with pytest.raises(ConfigError, match=rf"model 'partly_frozen:{network}': its outputs on devices differ .* %"):
            prepared(run(network, backend=backend))


def test_dropout_is_no_difference() -> None:
    assert jobs.prepare(run("with_dropout"))[0].graphs


@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_a_network_that_reads_tokens_is_compared_on_tokens_where_there_are_no_data(backend: str) -> None:
    task = {"model": "text", "data": None, "sample": [12], "classes": 3, "backend": backend}
    table = {"run": {"name": "words"}, "task": task, "rounds": {"cohort": 2}}
    job, _ = jobs.prepare(RunFile.model_validate(table))
    tokens = np.ones((4, 12), np.int64)
    assert output_gap(job.model, job.device_model, job.start, tokens) < OUTPUTS
