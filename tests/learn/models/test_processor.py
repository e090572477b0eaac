"""Another device than the processor: the same code with the device switched gives the same, and nothing stays behind.

There is no GPU here. So the whole path is played on "cpu:0", which torch computes as it does on any device it is told;
and on a made-up "cuda", whose tensors have shapes but no numbers: torch refuses there what it would refuse on a GPU.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from edgefl.base.errors import ConfigError
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.network import wants_torch
from edgefl.learn.models import processor, torch_backend, torch_blocks, torch_products
from edgefl.learn.models.build import build_module
from edgefl.learn.models.torch_backend import TorchModel
from edgefl.learn.products import ON_CPU, inner, recover
from edgefl.sim.loop import simulate
from edgefl.system import gpu

OTHER = "cpu:0"
STAGES = {
    "sgc": [{"name": "mean"}, {"name": "sgc"}],
    "memory": [{"name": "mean"}, {"name": "memory"}],
    "distillation": [{"name": "mean"}, {"name": "ensemble", "steps": 20, "every": 10}],
    "training": [{"name": "mean"}, {"name": "finetune", "max_epochs": 2}],
}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device that a run file can name is another one than the processor."""
    monkeypatch.setattr(processor, "chosen", lambda _: OTHER)


def run(stages: list[dict[str, Any]]) -> RunFile:
    return RunFile.model_validate(
        {
            "run": {"name": "gpu", "rounds": 2, "seed": 4},
            "task": {
                "data": "synthetic",
                "model": "softmax",
                "public": 0.05,
                "partition": {"kind": "dirichlet", "omega": 0.3, "devices": 3},
            },
            "algorithm": {"name": "fedavg", "batches": 3},
            "aggregation": stages,
        }
    )


def played(stages: list[dict[str, Any]]) -> tuple[jobs.Job, jobs.RunState]:
    job, held = jobs.prepare(run(stages))
    return job, simulate(job, dict(zip(jobs.device_names(3), held.devices, strict=True)))


@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
def test_a_run_on_another_device_ends_as_it_does_on_the_processor(
    stages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, here = played(stages)
    monkeypatch.setattr(processor, "chosen", lambda _: OTHER)
    job, there = played(stages)
    assert isinstance(job.model, TorchModel)
    assert job.model._device == torch.device(OTHER)
    np.testing.assert_allclose(there.params, here.params, rtol=1e-3, atol=1e-5)
    assert there.evaluation is not None
    assert here.evaluation is not None
    assert abs(there.evaluation.loss - here.evaluation.loss) < 1e-4


def test_the_processor_is_the_default_and_auto_without_a_gpu_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "cuda_devices", lambda: 0)
    monkeypatch.setattr(processor, "door", lambda _: pytest.fail("torch was asked"))
    plain = run(STAGES["sgc"])
    assert [processor.chosen(plain.compute.device), processor.chosen("auto")] == ["cpu", "cpu"]
    assert not wants_torch(plain)
    assert processor.products("auto") is ON_CPU


def test_cuda_where_there_is_none_is_the_operators_mistake() -> None:
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        processor.products("cuda")


def test_a_machine_without_the_driver_has_no_gpu() -> None:
    assert gpu.cuda_devices("libnobody.so.1") == 0


@pytest.mark.parametrize(("k", "size", "numbers"), [(1, 5, 8), (3, 40, 30), (7, 1000, 900)])
def test_products_are_those_of_numpy(k: int, size: int, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_products, "NUMBERS", numbers)  # so that there are several blocks
    rng = np.random.default_rng(k)
    rows = [rng.normal(size=size).astype(np.float32) for _ in range(k)]
    p, z = rng.normal(size=size).astype(np.float32), np.maximum(rng.normal(size=k), 0)
    other = torch_products.products(OTHER)
    for lead in (None, 1):
        np.testing.assert_allclose(other.inner(rows, lead), inner(rows, lead), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(other.recover(p, rows, z), recover(p, rows, z), rtol=1e-6)
    assert other.recover(p, rows, np.zeros(k)) is p


@pytest.fixture
def lenet() -> TorchModel:
    return TorchModel(build_module("lenet5", (1, 28, 28), 10, seed=0))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A GPU of shapes alone. What is read from it is zeros, and must have come back to the processor before."""

    def numbers(tensor: torch.Tensor) -> Any:
        assert tensor.device.type == "cpu", "read from the GPU without .cpu()"
        return np.zeros(tuple(tensor.shape), np.float64 if tensor.dtype is torch.float64 else np.float32)

    def tensor(data: Any, *, dtype: torch.dtype | None = None, device: Any = "cpu") -> torch.Tensor:
        return torch.empty(np.shape(data), dtype=dtype or torch.float32, device=device)

    monkeypatch.setattr(FakeTensor, "numpy", numbers, raising=False)
    monkeypatch.setattr(torch, "tensor", tensor)  # the real one would look for the driver
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield "cuda"


def test_a_network_on_a_gpu_leaves_nothing_on_the_processor(lenet: TorchModel, cuda: str) -> None:
    model, w, x = lenet, np.zeros(lenet.layout.size, np.float32), np.ones((4, 1, 28, 28), np.float32)
    model._device = torch.device(cuda)
    assert model.logits(w, x).shape == (4, 10)  # autograd wants the driver: gradients are played on "cpu:0" alone


def test_products_on_a_gpu_leave_nothing_on_the_processor(cuda: str) -> None:
    rows = [np.ones(9, np.float32)] * 3
    there = torch_products.products(cuda)
    assert there.inner(rows, 2).shape == (2, 3)
    assert there.recover(rows[0], rows, np.ones(3)).shape == (9,)


MAKERS = {"tensor", "zeros", "ones", "empty", "full", "arange", "eye", "rand", "randn", "as_tensor", "linspace"}


@pytest.mark.parametrize("module", [torch_backend, torch_blocks, torch_products])
def test_no_tensor_is_made_without_a_device(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    made = [c for c in calls if c.func.attr in MAKERS and ast.unparse(c.func.value) == "torch"]
    assert not [ast.unparse(call) for call in made if "device" not in {word.arg for word in call.keywords}]
    assert not [ast.unparse(c) for c in calls if c.func.attr in {"from_numpy", "cuda"}]
