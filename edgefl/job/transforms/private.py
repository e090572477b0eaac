"""The mechanism of [privacy] in the list. Its device half is part of training: `perform` in learn/privacy/noise.py.

It cannot follow training. Objective perturbation tilts the loss itself. Output perturbation clips the trained model and
adds noise to it; an algorithm may keep that model for its next round, which touches no data and so adds no noise
(Upcycled-FL with `even = "device"`), and must not keep it without noise.
"""

from dataclasses import dataclass

from edgefl.job.transforms.transform import OnNumbers
from edgefl.learn.contract import Algorithm
from edgefl.learn.privacy.private import is_private


@dataclass(frozen=True, kw_only=True)
class PrivateTraining(OnNumbers):
    """What comes from training has its noise. Noise adds up, so the mechanism commutes with a sum."""


def private_training(algorithm: Algorithm) -> tuple[PrivateTraining, ...]:
    """Return the transform of the algorithm's mechanism, or nothing where it has none."""
    if not is_private(algorithm) or algorithm.privacy is None:
        return ()
    return (PrivateTraining(name=f"privacy.mechanism = '{algorithm.privacy.mechanism}'"),)
