"""The errors that edgefl raises, under their public name.

>>> import edgefl
>>> issubclass(edgefl.errors.ConfigError, edgefl.errors.EdgeflError)
True
"""

from edgefl.base.errors import (
    ELSEWHERE,
    IN_THE_LOG,
    MODES,
    OURS,
    CodeRefused,
    ConfigError,
    Diverged,
    EdgeflError,
    Finished,
    Interrupted,
    RemoteError,
    RunError,
    StoreError,
    WireError,
    coded,
    nearest,
)

__all__ = [
    "ELSEWHERE",
    "IN_THE_LOG",
    "MODES",
    "OURS",
    "CodeRefused",
    "ConfigError",
    "Diverged",
    "EdgeflError",
    "Finished",
    "Interrupted",
    "RemoteError",
    "RunError",
    "StoreError",
    "WireError",
    "coded",
    "nearest",
]
