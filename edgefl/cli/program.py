"""What to type for `edgefl` here."""

import sys
from pathlib import Path


def program() -> str:
    """A virtual environment that is not activated is not on the path."""
    here = Path(sys.argv[0]).absolute()
    if here.name == "__main__.py":
        return "python3 -m edgefl"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else "edgefl"


def shown(path: Path) -> str:
    """A file as one would type it from the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
