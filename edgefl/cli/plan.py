"""`edgefl plan`: what a run will take on a fleet that is not there yet."""

import json as as_text
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import DataRoot, Json, RunPath, Sets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgefl.lab.planning.costs import Costs
    from edgefl.lab.planning.demand import Demand
    from edgefl.lab.planning.prediction import Prediction


def plan(  # noqa: PLR0917 - the options of the command
    run: RunPath,
    fleet: Annotated[
        str | None, typer.Option(metavar="KIND=COUNT,...", help="What it consists of; [fleet] profiles unless said.")
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Of a device, where the run file divides no data.")] = None,
    set_: Sets = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Predict time, traffic, memory and the broker's load, for a fleet that is not there yet.

    From the profiles of devices, and from what rounds were measured to cost (`edgefl bench scale`).
    """
    from edgefl.job.config.agent_file import LIMIT_MB
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.lab.planning import costs as measured
    from edgefl.lab.planning.demand import demand
    from edgefl.lab.planning.prediction import concerns, predict

    run_file = load(RunFile, run, set_ or ())
    asked = demand(run_file, _counts(fleet), samples, data_root)
    costs = measured.load()
    prediction = predict(asked, costs)
    worries = list(concerns(asked, prediction, LIMIT_MB))
    if json:
        typer.echo(as_text.dumps({**asdict(prediction), "concerns": worries}))
        return
    for line in _lines(asked, prediction, costs):
        typer.echo(line)
    for worry in worries:
        typer.echo(f"look at: {worry}")


def _counts(words: str | None) -> dict[str, int]:
    from edgefl.base.errors import ConfigError

    counts: dict[str, int] = {}
    for word in (words or "").split(","):
        kind, _, count = word.partition("=")
        if word and not (count.isdecimal() and int(count)):
            raise ConfigError(f"--fleet {word}: say how many of each kind, as in --fleet pi4=12,jetson-nano=6")
        if word:
            counts[kind.strip()] = int(count)
    return counts


def _lines(demand: "Demand", prediction: "Prediction", costs: "Costs") -> "Iterator[str]":
    kinds = ", ".join(f"{count} {kind}" for kind, count in demand.fleet.items())
    yield f"{demand.name}: {demand.rounds} rounds of {demand.cohort} among {demand.devices} devices ({kinds})"
    yield (
        f"a device: {demand.parameters:,} parameters, {demand.down / 1e6:.3g} MB down, {demand.up / 1e6:.3g} MB up,"
        f" {demand.steps} steps; {', '.join(f'{kind} {seconds:.2f} s' for kind, seconds in prediction.kinds.items())}"
    )
    yield (
        f"a round: {prediction.round:.2f} s ({prediction.waiting:.2f} for the slowest device of a cohort,"
        f" {prediction.serving:.2f} for coordinator and broker)"
    )
    yield f"the run: {_duration(prediction.run)}, {_amount(prediction.run_traffic)} through the broker"
    busy = 100 * prediction.broker_cpu / prediction.round
    yield (
        f"the broker: {_amount(prediction.broker_in)} in and {_amount(prediction.broker_out)} out in a round,"
        f" {prediction.megabits:.3g} Mbit/s, {busy:.2g} % of a core, {prediction.broker_mb:.0f} MB of memory"
    )
    busy = 100 * prediction.coordinator_cpu / prediction.round
    yield f"the coordinator: {busy:.2g} % of a core, {prediction.coordinator_mb:.0f} MB of memory, evaluation aside"
    about = costs.machine
    machine = f"{about['processor']}, {about['cores']} cores, {about['date']}"
    yield f"server as measured on {machine}; devices by their profiles"


def _duration(seconds: float) -> str:
    hours, minutes = seconds / 3600, seconds / 60
    return f"{hours:.1f} h" if hours >= 2 else f"{minutes:.1f} min" if minutes >= 2 else f"{seconds:.0f} s"


def _amount(mb: float) -> str:
    return f"{mb / 1000:.3g} GB" if mb >= 1000 else f"{mb:.3g} MB"
