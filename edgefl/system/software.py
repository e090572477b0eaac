"""Which software a run was made with: what its figures and its model may depend on."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from edgefl.base.version import __version__

PACKAGES = ("numpy", "onnxruntime", "torch", "onnx", "paho-mqtt", "cryptography", "pydantic")


@cache
def versions() -> dict[str, str]:
    """By name; what is not installed is not there. Nothing is imported for it."""
    known = {"edgefl": __version__, "python": platform.python_version(), "machine": platform.platform(terse=True)}
    return known | {name: number for name in PACKAGES if (number := _version(name))}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
