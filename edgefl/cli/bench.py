"""`edgefl bench`: where we stand, against a reference in the same run."""

import json as js
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgefl.cli.options import Json

if TYPE_CHECKING:
    from edgefl.bench.report import Comparison

app = typer.Typer(no_args_is_help=True, help="Measure against a reference in the same run.")


@app.callback()
def group() -> None:
    """Measure against a reference in the same run."""


@app.command()
def transport(
    devices: Annotated[int, typer.Option(min=1, help="Agent processes.")] = 10,
    params: Annotated[list[int] | None, typer.Option(min=1, help="Size of the model; may be given again.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count, five times as many for small models.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 3,
    broker: Annotated[Literal["mosquitto", "iotcore"], typer.Option(help="Which one to start.")] = "mosquitto",
    json: Json = False,
) -> None:
    """Rounds of coordinator and agents, against bare paho clients that move the same bytes."""
    import tempfile
    from pathlib import Path

    from edgefl.bench.transport import Plan, compare
    from edgefl.cli.bench_transport import Services

    plan = Plan(devices, tuple(params or Plan().params), rounds, repeats, broker)
    title = f"A round of {devices} agents over {broker}"
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        _print(title, ("edgefl", "bare paho"), compare(plan, Services(), Path(folder)), json)


def _print(title: str, names: tuple[str, str], found: "Iterable[Comparison]", as_json: bool) -> None:
    """The machine, then everything that was found."""
    from edgefl.bench import report

    facts = report.machine()
    if as_json:
        typer.echo(js.dumps(facts))
        for one in found:
            typer.echo(js.dumps({"bench": title, **one.record()}))
        return
    typer.echo(report.heading(facts) + "\n")
    for line in report.table(title, names, list(found)):
        typer.echo(line)
