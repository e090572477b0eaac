"""What this device trains with: onnxruntime from the coordinator's graphs, or PyTorch where the operator wants it.

A manifest never chooses code: with `backend = "onnx"` nothing it names is imported, and with PyTorch only networks of
our own and factories that the agent file lists. What does not fit is a declined task, not the end of the agent.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeAlias

from edgefl.base.errors import ConfigError, RemoteError
from edgefl.job.config.local_compute import LocalCompute
from edgefl.learn.models.base import Model
from edgefl.learn.models.onnx.bundle import unpack
from edgefl.learn.tasks.kinds import checked
from edgefl.wire.messages import GRAPHS, Manifest, read

MakeModel: TypeAlias = Callable[[Manifest, bytes | bytearray | None], Model]

GRAPHS_LIMIT = 256 << 20
BATCH = 64  # where no key says how many samples a step takes


def choose(compute: LocalCompute) -> str:
    """The name of the back-end this device will use, or a clear word about what is missing."""
    if compute.backend != "torch":
        return "onnx"
    if find_spec("torch") is None:
        raise ConfigError("compute.backend = 'torch', but PyTorch is not installed: pip install torch, or use 'onnx'")
    return "torch"


def maker(compute: LocalCompute, samples: Callable[[], int] | None = None) -> MakeModel:
    """The function that turns a manifest and its graphs into a model; the same network is built only once.

    A batch is never larger than the device's `samples`, so graphs need not fit for more: unless there are more now.
    """
    built: dict[tuple[object, ...], Model] = {}

    def make(manifest: Manifest, graphs: bytes | bytearray | None) -> Model:
        batch = _batch(manifest, samples() if samples else None)
        key = (
            batch,
            manifest.job,
            manifest.network,
            manifest.sample,
            manifest.outputs,
            manifest.rows,
            manifest.layout,
            hash(bytes(graphs or b"")),
        )
        if key not in built:
            if graphs and compute.backend != "torch":
                model = _onnx(graphs, manifest, compute, batch)
            else:
                model = _torch(manifest, compute)
            if model.layout != manifest.layout.layout():
                raise RemoteError(
                    "model.layout",
                    f"network '{manifest.network}' has other tensors here than at the coordinator:"
                    " install the same version of edgefl and of your model's package on both",
                    free_of_data=True,
                )
            built.clear()
            built[key] = model
        return built[key]

    return make


def _onnx(graphs: bytes | bytearray, manifest: Manifest, compute: LocalCompute, batch: int) -> Model:
    """Graphs that are not what they say, or that need more memory than is allowed, are refused by RemoteError."""
    from edgefl.learn.models.onnx_backend import OnnxModel  # noqa: PLC0415 - onnxruntime, which an agent with a box never loads

    _, opened = read(GRAPHS, graphs, GRAPHS_LIMIT)
    bundle = unpack(bytes(opened.body))
    if bundle.shape != manifest.sample:
        raise RemoteError(
            "model.shape",
            f"graphs for samples of shape {list(bundle.shape)}, the job's are {list(manifest.sample)}",
            free_of_data=True,
        )
    return OnnxModel(
        bundle,
        threads=compute.threads,
        memory=compute.memory_mb << 20,
        batch=batch,
        outputs=manifest.outputs,
        frugal=True,
    )


def _batch(manifest: Manifest, samples: int | None) -> int:
    """How many samples a step of this job takes at most."""
    asked = manifest.algorithm.get("batch")
    known = [size for size in (asked, samples) if isinstance(size, int) and size > 0]
    return min(known, default=BATCH)


def _torch(manifest: Manifest, compute: LocalCompute) -> Model:
    from edgefl.learn.models.build import build  # noqa: PLC0415 - only with PyTorch

    _allowed(manifest, compute)
    try:
        return build(
            manifest.network,
            manifest.sample,
            manifest.outputs,
            manifest.seed,
            threads=compute.threads,
            device=compute.device,
            form=checked(manifest.form),
        )[0]
    except ConfigError as error:  # the job's network, not this device's file
        raise RemoteError("model.network", str(error), told=error.told) from error


def _allowed(manifest: Manifest, compute: LocalCompute) -> None:
    """Whether this device may build the manifest's network; nothing is imported to find out."""
    who = f"job '{manifest.job}' wants devices to train with PyTorch (task.backend = 'torch')"
    if compute.backend == "onnx":
        raise RemoteError(
            "model.no_graphs",
            f"{who} and sends no graphs, but this device has compute.backend = 'onnx':"
            " set task.backend = 'onnx' in the run file, or compute.backend = 'auto' here",
            free_of_data=True,
        )
    if find_spec("torch") is None:
        raise RemoteError(
            "model.no_torch",
            f"{who}, which is not installed here: pip install torch, or set task.backend = 'onnx' in the run file",
            free_of_data=True,
        )
    if ":" in manifest.network and manifest.network not in compute.factories:
        raise RemoteError(
            "model.factory",
            f"this device does not run '{manifest.network}' because a message says so:"
            f" if it is meant, add it to compute.factories in the agent file",
            free_of_data=True,
        )
