"""How far a back-end's gradients are from torch in float64.

Rectifiers and maxima have kinks: on an unlucky batch any two float32 back-ends take different sides of one, and
differ by 1e-3. A wrong rule is wrong in every batch, a kink is met in some. So: the best of several batches within
each batch size, and the worst across batch sizes, since a fault may depend on the size.
"""

from functools import cache

import numpy as np
import torch

from edgefl.base.vector import norm
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.rule import TERMS, StepPlan
from edgefl.learn.models.torch_backend import TorchModel, initial_params
from edgefl.learn.models.zoo import ZOO

BOUND = 2e-6
SAMPLES = {
    "softmax": (1, 12, 12), "mlp": (1, 12, 12), "mlp_bn": (1, 12, 12), "lenet5": (1, 28, 28), "cnn": (1, 12, 12),
    "cnn_small": (1, 16, 16), "cnn_fedreg": (1, 20, 20), "sensor_cnn": (6, 32), "text": (12,), "lstm": (9,),
    "transformer": (8,), "resnet9": (3, 16, 16),
}  # fmt: skip
SMALL = [name for name in SAMPLES if name != "resnet9"]


@cache
def exported(name):
    """A network of the zoo and its bundle; tracing takes longer than checking, so it is done once for all tests."""
    torch.manual_seed(1)
    shape = SAMPLES[name]
    module = ZOO[name](shape, 4)
    dtype = "int64" if len(shape) == 1 else "float32"
    return module, export(module, shape, dtype=dtype, plan=StepPlan("cross_entropy", TERMS))


def batch(rng, n, shape, tokens):
    return rng.integers(0, 90, (n, *shape)) if tokens else rng.standard_normal((n, *shape)).astype(np.float32)


def relative(a, exact):
    gap = np.asarray(a, np.float64) - exact
    return norm(gap.ravel()) / max(norm(exact.ravel()), 1e-12)


def errors(model, module, shape, *, tokens=False, sizes=(1, 3, 32), tries=4, w=None):
    """The worst relative error of outputs, pullback and gradient of x, and torch's own in float32."""
    w = initial_params(module) if w is None else w
    exact, rng = TorchModel(module), np.random.default_rng(3)
    worst = {}
    for n in sizes:
        seen = {}
        for _ in range(tries):
            for what, error in one(model, exact, w, batch(rng, n, shape, tokens), rng).items():
                seen[what] = min(error, seen.get(what, np.inf))
            if max(v for k, v in seen.items() if k != "torch") < BOUND:
                break
        worst = {what: max(error, worst.get(what, 0)) for what, error in seen.items()}
    return worst


def one(model, exact, w, x, rng):
    x64 = x if x.dtype == np.int64 else x.astype(np.float64)
    z64, pull64 = exact.vjp(w.astype(np.float64), x64)
    dz = (rng.standard_normal(z64.shape) / len(x)).astype(np.float32)
    g64 = pull64(dz.astype(np.float64))
    z, pull = model.vjp(w, x)
    deviations = {
        "training": relative(z, z64),
        "pullback": relative(pull(dz), g64),
        "torch": relative(exact.vjp(w, x)[1](dz), g64),
        "logits": relative(model.logits(w, x), exact.logits(w.astype(np.float64), x64)),
    }
    if x.dtype != np.int64:
        dx64 = exact.input_gradient(w.astype(np.float64), x64, dz.astype(np.float64))
        deviations["dx"] = relative(model.input_gradient(w, x, dz), dx64)
    return deviations


def worst(deviations):
    return max(error for what, error in deviations.items() if what != "torch")
