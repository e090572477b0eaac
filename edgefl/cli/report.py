"""`edgefl report`: a run as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[str, typer.Argument(help="The run's folder, name or run file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; report.html in the run's folder unless said.")
    ] = None,
) -> None:
    """Write a report of a run: one HTML file that needs nothing but itself.

    What was run, curves, the fleet, who was slow, traffic, privacy, faults, and how to play it again.
    """
    from edgefl.cli.program import shown
    from edgefl.ops import reporting
    from edgefl.ops.run_lookup import known_run

    folder = known_run(run).folder
    typer.echo(shown(reporting.write(folder, out or folder / reporting.NAME)))
