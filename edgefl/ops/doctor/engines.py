"""What trains: onnxruntime, and torch where it is wanted. Each is tried in a process of its own.

A wheel that was built for another processor ends with an illegal instruction, and takes its process with it; so the
doctor does not import what it examines.
"""

import json
import platform
import signal
import subprocess
from collections.abc import Mapping

from edgefl.ops.doctor.finding import Finding, ok, warning, wrong
from edgefl.ops.doctor.probe import MISSING
from edgefl.system.processes import python

PATIENCE = 180.0  # seconds; importing torch from an SD card takes most of a minute
PINS = {
    ("onnxruntime", "aarch64"): "onnxruntime>=1.23.2,<1.24",
    ("torch", "aarch64"): "torch==2.9.1",  # the last one for the processor alone that runs on a Raspberry Pi 4
    ("torch", ""): "torch>=2.13,<2.14",  # the wheels of this range are for the processor; newer ones want CUDA
    ("onnxruntime", ""): "onnxruntime>=1.23.2,<2",
}


def onnxruntime() -> Finding:
    """Whether a training step works: every device makes them, and the coordinator evaluates with it."""
    return engine("onnxruntime", needed=True)


def torch(*, needed: bool) -> Finding:
    """Whether torch works. The coordinator needs it; a device only if its file says backend = 'torch'."""
    return engine("torch", needed=needed)


def engine(name: str, *, needed: bool, environment: Mapping[str, str] | None = None) -> Finding:
    """Whether `name` imports and makes a tiny training step."""
    aside = "" if needed else "; a device does not need it"
    command = python("edgefl.ops.doctor.probe", name)
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment
        )
    except subprocess.TimeoutExpired:
        return _bad(name, f"no training step within {PATIENCE:.0f} s{aside}", needed=needed)
    if done.returncode == 0:
        told = json.loads(done.stdout)
        return ok(name, f"{told['version']}, a training step works")
    if done.returncode == MISSING:
        text = f"not installed{aside}"
        return _bad(name, text, needed=True) if needed else ok(name, text)
    return _bad(name, _how_it_ended(done) + aside, needed=needed)


def _how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        number = -done.returncode
        return f"a training step ends with {signal.Signals(number).name} ({signal.strsignal(number)})"
    lines = done.stderr.strip().splitlines() or ["it said nothing"]
    return f"a training step fails ({lines[-1]})"


def _bad(name: str, text: str, *, needed: bool) -> Finding:
    here = platform.machine()
    pin = PINS.get((name, "aarch64" if here == "arm64" else here)) or PINS[name, ""]
    return (wrong if needed else warning)(name, text, f"pip install '{pin}'")
