"""What this device trains with: onnxruntime from the coordinator's graphs, or PyTorch where the operator wants it."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeAlias

from edgefl.config import LocalCompute
from edgefl.errors import ConfigError
from edgefl.models.base import Model
from edgefl.models.build import build
from edgefl.models.onnx.bundle import unpack
from edgefl.models.onnx_backend import OnnxModel
from edgefl.protocol.messages import GRAPHS, Manifest, read

MakeModel: TypeAlias = Callable[[Manifest, bytes | bytearray | None], Model]

GRAPHS_LIMIT = 256 << 20


def choose(compute: LocalCompute) -> str:
    """The name of the back-end this device will use, or a clear word about what is missing."""
    if compute.backend != "torch":
        return "onnx"
    if find_spec("torch") is None:
        raise ConfigError("compute.backend = 'torch', but PyTorch is not installed: pip install torch, or use 'onnx'")
    return "torch"


def maker(compute: LocalCompute) -> MakeModel:
    """The function that turns a manifest and its graphs into a model; the same network is built only once."""
    built: dict[tuple[object, ...], Model] = {}

    def make(manifest: Manifest, graphs: bytes | bytearray | None) -> Model:
        key = (
            manifest.job,
            manifest.network,
            manifest.sample,
            manifest.classes,
            manifest.layout,
            hash(bytes(graphs or b"")),
        )
        if key not in built:
            model = _onnx(graphs, compute) if graphs and compute.backend != "torch" else _torch(manifest, compute)
            if model.layout != manifest.layout.layout():
                raise ConfigError(
                    f"network '{manifest.network}' has other tensors here than at the coordinator:"
                    " install the same version of edgefl and of your model's package on both"
                )
            built.clear()
            built[key] = model
        return built[key]

    return make


def _onnx(graphs: bytes | bytearray, compute: LocalCompute) -> Model:
    _, opened = read(GRAPHS, graphs, GRAPHS_LIMIT)
    return OnnxModel(unpack(bytes(opened.body)), threads=compute.threads)


def _torch(manifest: Manifest, compute: LocalCompute) -> Model:
    if find_spec("torch") is None:
        raise ConfigError(
            f"job '{manifest.job}' wants devices to train with PyTorch (task.backend = 'torch'), which is not installed"
            " here: pip install torch, or set task.backend = 'onnx' in the run file"
        )
    return build(
        manifest.network,
        manifest.sample,
        manifest.classes,
        manifest.seed,
        threads=compute.threads,
        device=compute.device,
    )[0]
