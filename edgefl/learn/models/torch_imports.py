"""The way to torch: modules of ours that import it are imported only here, when they are needed."""

from importlib import import_module
from types import ModuleType

from edgefl.base.errors import ConfigError

NO_TORCH = "this needs PyTorch: pip install 'edgefl[coordinator]'"


def door(name: str) -> ModuleType:
    """A module of ours that imports torch, or the operator's hint to install it."""
    try:
        return import_module(f"edgefl.learn.models.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise ConfigError(NO_TORCH) from None
