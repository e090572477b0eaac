"""Federated learning for real edge devices. Importing this package never imports torch.

    simulate    play a run on this machine, with your model, data and algorithm     -> History
    compare     several algorithms, several seeds                                   -> Comparison
    sweep       the best settings of several, chosen on validation data             -> Sweep
    load        a run from its folder                                               -> History
    Run         a run described once, for all of the above, or to be written as a run file
    Fleet       the devices of a simulated run
    Running     what a callback can ask of its run
    events      what callbacks are told; errors: what may be raised

Each is imported when it is first asked for (docs/python.md).
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgefl.base.version import __version__ as __version__

if TYPE_CHECKING:
    from edgefl.base import errors, events
    from edgefl.lab.api.compared import Comparison
    from edgefl.lab.api.comparing import compare
    from edgefl.lab.api.fleet import Fleet
    from edgefl.lab.api.folder import load
    from edgefl.lab.api.history import History
    from edgefl.lab.api.run import Run
    from edgefl.lab.api.running import Running
    from edgefl.lab.api.simulating import simulate
    from edgefl.lab.api.sweeping import Sweep, sweep


__all__ = [
    "Comparison",
    "Fleet",
    "History",
    "Run",
    "Running",
    "Sweep",
    "compare",
    "errors",
    "events",
    "load",
    "simulate",
    "sweep",
]

# From 1.29 on, onnxruntime tells its maker about every model and session unless this is set before it is imported:
# graph and weight hashes, file names, an identifier of the device. Nothing leaves our devices unasked.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_PLACES = {
    "Comparison": "edgefl.lab.api.compared",
    "Fleet": "edgefl.lab.api.fleet",
    "History": "edgefl.lab.api.history",
    "Run": "edgefl.lab.api.run",
    "Running": "edgefl.lab.api.running",
    "Sweep": "edgefl.lab.api.sweeping",
    "compare": "edgefl.lab.api.comparing",
    "load": "edgefl.lab.api.folder",
    "simulate": "edgefl.lab.api.simulating",
    "sweep": "edgefl.lab.api.sweeping",
}


def __getattr__(name: str) -> Any:
    """What is offered here, imported now."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name in __all__:
        return import_module(f"edgefl.{name}")
    raise AttributeError(f"module 'edgefl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
