"""What to type for `edgefl` here."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands import when they run: --help is instant
    from edgefl.fleet.administration import FleetAdministration


def program() -> str:
    """A virtual environment that is not activated is not on the path."""
    here = Path(sys.argv[0]).absolute()
    if here.name == "__main__.py":
        return "python3 -m edgefl"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else "edgefl"


def shown(path: Path) -> str:
    """A file as one would type it from the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def tell_the_broker(fleet: "FleetAdministration", *, reloaded: bool) -> None:
    """Say what an operator has to do where the fleet's broker was not told to read its files again."""
    import typer

    if not reloaded:
        typer.echo(
            f"a broker that is not run by `edgefl broker start` here needs the files of {fleet.folder.broker},"
            " then SIGHUP (systemctl reload mosquitto)",
            err=True,
        )
