"""What the coordinator computes with: `compute.device`, the processor by default, or a GPU.

Code that makes tensors is handed the device that this module returns; nothing else decides where tensors live.
"""

from edgefl.base.errors import ConfigError, nearest
from edgefl.learn.models.torch_imports import door
from edgefl.learn.products import ON_CPU, Products
from edgefl.system import gpu

CPU = "cpu"


def chosen(device: str) -> str:
    """Return the torch device that `compute.device` means on this machine; without a GPU torch is not asked."""
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"unknown device '{device}'; {nearest(device, ('auto', 'cpu', 'cuda'))}")
    if device == "cpu" or (device == "auto" and not gpu.cuda_devices()):
        return CPU
    there = bool(door("torch_backend").torch.cuda.is_available())
    if device == "cuda" and not there:
        raise ConfigError("device 'cuda' was asked for, but torch sees no GPU; use 'auto' or 'cpu'")
    return "cuda" if there else CPU


def products(device: str) -> Products:
    """Who multiplies long vectors for the stages: numpy, or torch on the GPU."""
    where = chosen(device)
    if where == CPU:
        return ON_CPU
    on_gpu: Products = door("torch_products").products(where)
    return on_gpu
