"""Differential privacy for device updates: what is added (noise) and what it is worth (accountant)."""

from edgefl.learn.privacy.accountant import (
    calibrate_sigma,
    objective_epsilon,
    output_epsilon,
    output_sigma,
    upcycled_delta,
    upcycled_epsilon,
)
from edgefl.learn.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from edgefl.learn.privacy.noise import Mechanism, Objective, Output, Price, clipped, counted, keep_spent, tilt

__all__ = [
    "Mechanism",
    "Objective",
    "Output",
    "Price",
    "calibrate_sigma",
    "clipped",
    "counted",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "keep_spent",
    "objective_epsilon",
    "output_epsilon",
    "output_sigma",
    "tilt",
    "upcycled_delta",
    "upcycled_epsilon",
]
