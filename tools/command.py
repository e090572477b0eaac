"""How the command of a tool is run: as `edgefl` is."""

import os

import typer

from edgefl.cli.app import main


def run(command: typer.Typer) -> None:
    """Run it; a mistake gets one line, never a traceback."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is imported: `edgefl.system.blas` says why
    main(command)
