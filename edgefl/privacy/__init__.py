"""Differential privacy for device updates: what is added (noise) and what it is worth (accountant)."""

from edgefl.privacy.accountant import calibrate_sigma, objective_epsilon, upcycled_delta, upcycled_epsilon
from edgefl.privacy.noise import Mechanism, Objective, Output, Price, clipped, counted, keep_spent, tilt

__all__ = [
    "Mechanism",
    "Objective",
    "Output",
    "Price",
    "calibrate_sigma",
    "clipped",
    "counted",
    "keep_spent",
    "objective_epsilon",
    "tilt",
    "upcycled_delta",
    "upcycled_epsilon",
]
