"""Attacks are played with the puppets of `tests/chaos` and the fleets of `tests/fleet`."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

for folder in ("chaos", "fleet"):
    if str(TESTS / folder) not in sys.path:
        sys.path.insert(0, str(TESTS / folder))
