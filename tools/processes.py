"""Processes of tools, which are not installed: they find their modules where this file is."""

import sys
from pathlib import Path

from edgefl.system import processes

ROOT = Path(__file__).parents[1]
MODULE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {processes.MODULE}"


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the tools in a fresh process, whatever the current folder is."""
    return [sys.executable, "-c", MODULE, module, *arguments]
