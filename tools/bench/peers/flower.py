"""Whether there is a Flower to compare with, and in which interpreter."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from edgefl.base.errors import ConfigError

_ASK = """
import importlib.metadata as packages, importlib.util, json
versions = {}
for name, package in (("flwr", "flwr"), ("grpc", "grpcio"), ("torch", "torch")):
    versions[name] = packages.version(package) if importlib.util.find_spec(name) else None
print(json.dumps(versions))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python, and which versions of what we compare with it has; None: not there."""

    python: str
    flwr: str | None
    grpc: str | None
    torch: str | None


def interpreter(python: Path | None = None) -> Interpreter:
    """The one that was named, or else our own."""
    program = str(python or sys.executable)
    try:
        answer = subprocess.run([program, "-c", _ASK], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(f"--flower {program}: this is no Python that can be started ({error})") from None
    versions = json.loads(answer.stdout)
    if python is not None and versions["flwr"] is None:
        raise ConfigError(f"--flower {program}: flwr is not installed there; {program} -m pip install flwr")
    return Interpreter(program, **versions)
