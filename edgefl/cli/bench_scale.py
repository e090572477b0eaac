"""`edgefl bench scale`: how the cost of a round grows with the fleet and with the model."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgefl.cli.options import Json


def scale(
    devices: Annotated[list[int] | None, typer.Option(min=1, help="Size of a fleet; may be given again.")] = None,
    params: Annotated[list[int] | None, typer.Option(min=1, help="Size of a model; may be given again.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the page to this file, and its figure beside it.")] = None,
    constants: Annotated[
        Path | None, typer.Option(help="Write curve and constants to this file: what `edgefl plan` reads.")
    ] = None,
    json: Json = False,
) -> None:
    """Rounds of 10 to 2,000 emulated devices and of models up to 50 M parameters, over a real broker.

    Fleets of every size train a small model, ten devices every model, and 1,000 devices with a cohort of 100 one of a
    million parameters. With --devices or --params only what they name is measured.
    """
    import tempfile

    from edgefl.lab.planning.costs import fitted
    from edgefl.ops.bench.report import load_now
    from edgefl.ops.bench.scale import points as sizes
    from edgefl.ops.bench.scale import report as reports
    from edgefl.ops.bench.scale.measure import measure
    from edgefl.ops.bench.surroundings import measured_on
    from edgefl.wire.mosquitto_program import mosquitto_version

    if devices or params:
        points = sizes.sweep(devices or (), params or (), ())
    else:
        points = sizes.sweep(sizes.DEVICES, sizes.PARAMS, sizes.NAMED)
    dropped: list[int | None] = []
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        packages, broker = ("edgefl", "paho-mqtt", "numpy"), {"mosquitto": mosquitto_version()}
        machine = measured_on(Path(folder), packages, broker)
        measured = list(measure(points, Path(folder), _say, dropped.append))
        costs = fitted(measured, {**machine, "load_after": load_now()})
    if json:
        typer.echo(costs.text())
    else:
        for line in (*reports.cells(costs.points), (), *reports.constants(costs)):
            typer.echo("  ".join(cell.rjust(17) for cell in line))
        typer.echo(reports.linear(costs))
        typer.echo(reports.complete(costs.points, reports.total(dropped)))
    if report is not None:
        figure = report.parent / "figures" / f"{report.stem}.svg"
        reports.draw(costs, figure)
        relative = figure.relative_to(report.parent).as_posix()
        report.write_text(reports.markdown(costs, reports.total(dropped), relative), encoding="utf-8")
    if constants is not None:
        constants.write_text(costs.text(), encoding="utf-8")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
