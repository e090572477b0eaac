"""Some training steps of LeNet-5 from exported graphs, as an agent takes them.

step.py graphs BUNDLE             export the network; needs torch
step.py train BUNDLE WEIGHTS      train it; needs no torch, and imports all that an agent imports
step.py compare WEIGHTS WEIGHTS   how far apart two results are
"""
# ruff: noqa: PLC0415, T201 - a script: it prints, and imports only what its word needs

import platform
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

NETWORK, SAMPLE, CLASSES, BATCH, STEPS, RATE = "lenet5", (1, 28, 28), 10, 32, 3, 0.1
CLOSE = 1e-5  # relative: both compute in float32, with other instructions


def graphs(bundle: Path) -> None:
    """Export the network, on the coordinator's side."""
    from edgefl.learn.models.build import build_module
    from edgefl.learn.models.onnx.bundle import pack
    from edgefl.learn.models.onnx_export import export

    exported = export(build_module(NETWORK, SAMPLE, CLASSES, seed=0), SAMPLE)
    bundle.write_bytes(pack(exported))
    print(f"exported {NETWORK}: {bundle.stat().st_size} bytes of graphs, sha256 {exported.sha256[:16]}")


def train(bundle: Path, weights: Path) -> None:
    """Take the steps, on the device's side."""
    began = perf_counter()
    import onnxruntime

    import device_agent.start  # noqa: F401 - everything an agent imports must load here
    from edgefl.learn.losses import cross_entropy
    from edgefl.learn.models.onnx.bundle import unpack
    from edgefl.learn.models.onnx_backend import OnnxModel

    print(
        f"machine {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__},"
        f" onnxruntime {onnxruntime.__version__}, imported in {perf_counter() - began:.1f} s"
    )
    model, rng = OnnxModel(unpack(bundle.read_bytes()), frugal=True), np.random.default_rng(7)
    w = rng.standard_normal(model.layout.size, np.float32) * np.float32(0.05)
    for number in range(1, STEPS + 1):
        x, y = rng.standard_normal((BATCH, *SAMPLE), np.float32), rng.integers(0, CLASSES, BATCH)
        began = perf_counter()
        z, pullback = model.vjp(w, x)
        loss, dz = cross_entropy(z, y)
        w = w - np.float32(RATE) * pullback(dz)
        print(f"step {number}: loss {loss:.6f}, {perf_counter() - began:.2f} s")
    np.save(weights, w)


def compare(ours: Path, theirs: Path) -> None:
    """Say how far two results are from each other; exit 1 if that is too far."""
    a, b = np.load(ours), np.load(theirs)
    gap = float(np.abs(a - b).max() / np.abs(a).max())
    print(f"{len(a)} weights, largest difference {gap:.1e} of the largest weight (allowed {CLOSE:.0e})")
    sys.exit(0 if gap <= CLOSE else 1)


if __name__ == "__main__":
    {"graphs": graphs, "train": train, "compare": compare}[sys.argv[1]](*map(Path, sys.argv[2:]))
