"""One network on both sides: what the coordinator computes, devices must compute too.

Weights travel, the rest does not: frozen parameters, constant tensors and random features are made on each side from
the model's code and the run's seed. If they come out differently, devices train another network than the one that is
evaluated and published, and learning fails without an error. So both are asked the same questions before a run begins.
"""

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, Vector, norm
from edgefl.learn.models.base import Model

OUTPUTS = 5e-3  # of the largest output: rounding makes 1e-6 of it (1e-3 on a GPU), another network about 1
GRADIENTS = 0.1  # of the gradient's length: where a ReLU or a maximum flips, rounding alone can make 1e-2 of it
SHIFT = 0.5  # of a tensor's size: zeros that hide what stands behind them (a fresh head, LoRA) must go
LEAST = 0.01


def check_agreement(
    network: str, coordinator: Model, device: Model, w: Vector, x: Array, *, masked: bool = False
) -> None:
    """Refuse two back-ends that do not compute the same function near `w`.

    With dropout masks of their own (`masked`) only the outputs can be compared, which use none.
    """
    near = shifted(coordinator, w)
    if np.isfinite(coordinator.logits(near, x)).all():
        w = near
    half = len(x) // 2
    batches = x[:half], x[half:]
    gap = max(output_gap(coordinator, device, w, batch) for batch in batches)
    if not gap <= OUTPUTS:
        raise ConfigError(_refusal(network, "outputs", gap))
    if masked:
        return
    gap = min(gradient_gap(coordinator, device, w, batch) for batch in batches)  # an unlucky sample proves nothing
    if not gap <= GRADIENTS:
        raise ConfigError(_refusal(network, "gradients", gap))


def shifted(model: Model, w: Vector) -> Vector:
    """Weights near `w` of which none is zero; statistics are left alone."""
    rng, k = seeds.stream(0, "agreement"), model.layout.trainable
    after = w.copy()
    for part in model.layout:
        if part.start < k:
            size = np.sqrt(np.mean(np.square(w[part], dtype=np.float64))) if part.stop > part.start else 0.0
            noise = rng.standard_normal(part.stop - part.start, np.float32)
            after[part] += np.float32(SHIFT * max(size, LEAST)) * noise
    return after


def output_gap(a: Model, b: Model, w: Vector, x: Array) -> float:
    """How far the outputs of the median sample are apart, relative to the largest: rounding may flip a single one."""
    one, other = a.logits(w, x), b.logits(w, x)
    largest = max(float(np.abs(one).max()), 1e-12)
    return float(np.median(np.abs(one - other).reshape(len(x), -1).max(axis=1))) / largest


def gradient_gap(a: Model, b: Model, w: Vector, x: Array) -> float:
    """How far the gradients of the trainable weights are apart, relative to the first."""
    k = a.layout.trainable
    (z, one), (_, other) = a.vjp(w, x), b.vjp(w, x)
    dz = seeds.stream(0, "agreement", "gradient").standard_normal(z.shape, np.float32)
    gradient, its = one(dz)[:k], other(dz)[:k]
    return norm(gradient - its) / max(norm(gradient), 1e-6)


def _refusal(network: str, what: str, gap: float) -> str:
    return (
        f"model '{network}': its {what} on devices differ from the coordinator's by {100 * gap:.2g} %, with the same"
        " weights and samples. Something in it that is not trained is not the same each time it is made: draw"
        " random numbers with torch, numpy or random in the constructor and without a seed or generator of your"
        " own, never in forward, and read no file that changes"
    )
