"""`edgefl simulate`: the same run without a network."""

import json
from typing import Any

import typer

from edgefl.cli.options import DataRoot, Json, Log, RunPath, Sets


def simulate(
    run: RunPath, set_: Sets = None, data_root: DataRoot = None, json: Json = False, log: Log = "warning"
) -> None:
    """Play a run in this process, in a plain loop: the specification of what the fleet will do."""
    from edgefl import job as jobs
    from edgefl import logs
    from edgefl.config import RunFile
    from edgefl.config_reader import load
    from edgefl.errors import ConfigError
    from edgefl.simulation.loop import simulate as play

    logs.set_up(log)
    wanted = load(RunFile, run, set_ or ())
    if wanted.task.partition is None:
        raise ConfigError(f"{run}: a simulation divides one data set among devices: give task.partition")
    job, held = jobs.prepare(wanted, data_root)
    play(job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True)), _json if json else _line)


def _json(event: dict[str, Any]) -> None:
    typer.echo(json.dumps(event))


def _line(event: dict[str, Any]) -> None:
    if event["event"] == "round":
        typer.echo(
            f"round {event['round']:4d}  accuracy {_share(event['accuracy'])}  loss {_number(event['loss'])}"
            f"  forgetting {_number(event['forgetting'])}  up {event['bytes_up'] / 1e6:.2f} MB"
            f"  down {event['bytes_down'] / 1e6:.2f} MB  {event['seconds']:.2f} s"
        )
    elif event["event"] == "done":
        typer.echo(
            f"done: {event['rounds']} rounds, accuracy {_share(event['accuracy'])},"
            f" best {_share(event['best_accuracy'])}, model {event['model_sha256'][:16]}"
        )


def _share(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.1%}"


def _number(value: float | None) -> str:
    return "     -" if value is None else f"{value:6.3f}"
