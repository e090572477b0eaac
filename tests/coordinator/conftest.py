"""The shell is driven with the puppets of `tests/chaos` and the runs of `tests/fleet`."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent.parent / name) for name in ("chaos", "fleet")]
