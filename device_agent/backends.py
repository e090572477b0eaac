"""What this device trains with."""

from collections.abc import Callable
from importlib.util import find_spec

from edgefl.config import LocalCompute
from edgefl.errors import ConfigError
from edgefl.models.base import Model
from edgefl.models.build import build
from edgefl.protocol.messages import Manifest

MakeModel = Callable[[Manifest], Model]


def choose(compute: LocalCompute) -> str:
    """The name of the back-end this device will use, or a clear word about what is missing."""
    if find_spec("torch") is None:
        raise ConfigError(
            f"compute.backend = '{compute.backend}': this device has no PyTorch; pip install 'edgefl[coordinator]'"
        )
    return "torch"


def maker(compute: LocalCompute) -> MakeModel:
    """The function that turns a manifest into a model; the same network is built only once."""
    built: dict[tuple[object, ...], Model] = {}

    def make(manifest: Manifest) -> Model:
        key = (manifest.network, manifest.sample, manifest.classes, manifest.layout)
        if key not in built:
            model, _ = build(
                manifest.network,
                manifest.sample,
                manifest.classes,
                manifest.seed,
                threads=compute.threads,
                device=compute.device,
            )
            if model.layout != manifest.layout.layout():
                raise ConfigError(
                    f"network '{manifest.network}' has other tensors here than at the coordinator:"
                    " install the same version of edgefl and of your model's package on both"
                )
            built.clear()
            built[key] = model
        return built[key]

    return make
