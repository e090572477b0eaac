"""Noise that cannot be drawn again: from the operating system's entropy, not from a seed that others know."""

import os

import numpy as np

from edgefl.base.vector import Array

_STEP = 2.0**-53


class Entropy:
    """Draws as a numpy generator does, as far as the mechanisms need it; no state, so nothing to find out."""

    def normal(self, loc: float, scale: float, size: int) -> Array:
        """Gaussian numbers, in pairs by Box and Muller."""
        half = (size + 1) // 2
        length, angle = np.sqrt(-2.0 * np.log(_uniform(half))), 2.0 * np.pi * _uniform(half)
        pairs = np.concatenate([length * np.cos(angle), length * np.sin(angle)])
        return np.asarray(loc + scale * pairs[:size])

    def gamma(self, shape: int, scale: float) -> float:
        """Draw one number from Gamma(shape, scale): for a whole shape, a sum of `shape` exponential ones."""
        return float(-scale * np.log(_uniform(shape)).sum())


def _uniform(size: int) -> Array:
    """Numbers in (0, 1], 53 random bits each."""
    raw = np.frombuffer(os.urandom(8 * size), np.uint64)
    return np.asarray(((raw >> np.uint64(11)) + np.uint64(1)) * _STEP)
