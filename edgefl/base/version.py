"""The version of this program, and where its code is."""

from pathlib import Path

__version__ = "0.1.0"

CODE = Path(__file__).parent.parent  # the package `edgefl`
