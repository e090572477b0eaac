"""`edgefl simulate`: the same run without a network."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl import wording
from edgefl.cli.options import DataRoot, Forgetting, Json, Log, RunPath, Sets, with_flags

if TYPE_CHECKING:
    from edgefl.config import RunFile
    from edgefl.data.holdings import Holdings
    from edgefl.job import Job

Workers = Annotated[int, typer.Option(min=1, help="Processes that train at the same time; the result is the same.")]


def simulate(  # noqa: PLR0917 - the options of the command
    run: RunPath,
    set_: Sets = None,
    data_root: DataRoot = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="On the virtual clock even without emulated hardware in [fleet].")
    ] = False,
    workers: Workers = 1,
    forgetting: Forgetting = False,
    json: Json = False,
    log: Log = "warning",
) -> None:
    """Play a run on this machine: a plain loop, or with [fleet] an emulated fleet on a virtual clock."""
    from edgefl import logs
    from edgefl.config import RunFile
    from edgefl.config_reader import load
    from edgefl.errors import ConfigError

    logs.set_up(log)
    wanted = load(RunFile, run, with_flags(set_, forgetting=forgetting))
    if wanted.task.partition is None:
        raise ConfigError(f"{run}: a simulation divides one data set among devices: give task.partition")
    play(wanted, data_root, _json if json else _line, emulated=emulate, workers=workers)


def play(
    run: "RunFile",
    root: Path | None,
    tell: Callable[[dict[str, Any]], None],
    *,
    emulated: bool = False,
    workers: int = 1,
    prepare: "Callable[[RunFile, Path | None], tuple[Job, Holdings]] | None" = None,
) -> None:
    """The whole run, in the driver that its [fleet] asks for; `prepare` stands in for a job's own preparation."""
    from edgefl import job as jobs
    from edgefl.simulation.engines import engine

    if emulated or (run.fleet and run.fleet.takes_time):
        from coordinator.emulator import emulate as driver
    else:
        from edgefl.simulation.loop import simulate as driver
    job, held = (prepare or jobs.prepare)(run, root)
    tell(jobs.opening(job))
    devices = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
    with engine(job, devices, workers) as training:
        driver(job, devices, tell, engine=training)


def _json(event: dict[str, Any]) -> None:
    typer.echo(json.dumps(event))


def _line(event: dict[str, Any]) -> None:
    match event["event"]:
        case "round":
            took = event.get("virtual_seconds")
            seconds = f"{event['seconds']:.2f} s" if took is None else f"{took:.1f} virtual s"
            typer.echo(
                f"round {event['round']:4d}  {wording.scores(event)}"
                f"{_forgot(event)}  up {wording.size(event['bytes_up'])}"
                f"  down {wording.size(event['bytes_down'])}  {seconds}{wording.bounded(event)}"
            )
        case "abandoned":
            typer.echo(f"round {event['round']:4d}  abandoned: {event['reason']}")
        case "done":
            took = event.get("virtual_seconds")
            words = (wording.scores(event), wording.best(event), wording.weakest(event))
            typer.echo(
                f"done: {event['rounds']} rounds{'' if took is None else f' in {took:.0f} virtual s'},"
                f" {', '.join(word for word in words if word)}, model {event['model_sha256'][:16]}"
            )
            if private := wording.spent(event):
                typer.echo(private)
        case "evaluating":
            typer.echo(wording.evaluating(event))


def _forgot(event: dict[str, Any]) -> str:
    """How much was forgotten, and where; a regression has no classes to forget."""
    if event["forgetting"] is None:
        return ""
    said = f"  forgetting {event['forgetting']:6.3f}"
    if "local_forgetting" not in event:
        return said
    return f"{said} (local {_number(event['local_forgetting'])}, merging {_number(event['aggregation_forgetting'])})"


def _number(value: float | None) -> str:
    return "     -" if value is None else f"{value:6.3f}"
