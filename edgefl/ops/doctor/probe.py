"""A process that makes one tiny training step and says so: `python -m edgefl.ops.doctor.probe onnxruntime`.

It may die of an illegal instruction, which is why it is a process. The bundle beside it is what `edgefl` exports of
the model "mlp" with four features and three classes.
"""

import json
import sys
from importlib.resources import files
from importlib.util import find_spec

import numpy as np

from edgefl.base.vector import Vector
from edgefl.learn.losses import cross_entropy
from edgefl.learn.models.base import Model

MISSING = 3  # the exit code for a package that is not installed
NETWORK, SAMPLE, CLASSES = "mlp", (4,), 3
BUNDLE = "step.bundle"


def with_onnxruntime() -> tuple[Model, Vector]:
    """The little model as a device runs it."""
    from edgefl.learn.models.onnx.bundle import unpack  # noqa: PLC0415 - what is examined may not survive its import
    from edgefl.learn.models.onnx_backend import OnnxModel  # noqa: PLC0415 - as above

    model = OnnxModel(unpack((files("edgefl.ops.doctor") / BUNDLE).read_bytes()))
    return model, np.random.default_rng(0).normal(0, 0.3, model.layout.size).astype(np.float32)


def with_torch() -> tuple[Model, Vector]:
    """The little model as the coordinator runs it."""
    from edgefl.learn.models.build import build  # noqa: PLC0415 - as above

    return build(NETWORK, SAMPLE, CLASSES, seed=0)


def step(model: Model, w: Vector) -> tuple[float, float]:
    """The loss before and after one step."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(8, *SAMPLE)).astype(np.float32), np.arange(8) % CLASSES
    z, pullback = model.vjp(w, x)
    before, dz = cross_entropy(z, y)
    after, _ = cross_entropy(model.logits(w - np.float32(0.05) * pullback(dz), x), y)
    return float(before), float(after)


def main(name: str) -> None:
    """Say which version is there and that it learns, or end with an error."""
    if find_spec(name) is None:
        sys.exit(MISSING)
    before, after = step(*{"onnxruntime": with_onnxruntime, "torch": with_torch}[name]())
    if not after < before:
        sys.exit(f"the loss went from {before} to {after}")
    sys.stdout.write(json.dumps({"version": str(sys.modules[name].__version__), "loss": [before, after]}))


if __name__ == "__main__":
    main(sys.argv[1])
