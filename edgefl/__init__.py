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

if TYPE_CHECKING:
    from edgefl import errors, events
    from edgefl.api.compared import Comparison
    from edgefl.api.comparing import compare
    from edgefl.api.fleet import Fleet
    from edgefl.api.folder import load
    from edgefl.api.history import History
    from edgefl.api.run import Run
    from edgefl.api.running import Running
    from edgefl.api.simulating import simulate
    from edgefl.api.sweeping import Sweep, sweep

__version__ = "0.1.0"

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
    "Comparison": "edgefl.api.compared",
    "Fleet": "edgefl.api.fleet",
    "History": "edgefl.api.history",
    "Run": "edgefl.api.run",
    "Running": "edgefl.api.running",
    "Sweep": "edgefl.api.sweeping",
    "compare": "edgefl.api.comparing",
    "load": "edgefl.api.folder",
    "simulate": "edgefl.api.simulating",
    "sweep": "edgefl.api.sweeping",
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
