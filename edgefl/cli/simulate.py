"""`edgefl simulate`: the same run without a network."""

import json
from pathlib import Path
from typing import Annotated

import typer

from edgefl.base.events import (
    DIVERGED,
    Abandoned,
    Described,
    Done,
    Evaluated,
    Evaluating,
    Fact,
    Inherited,
    Resumed,
    Round,
    as_record,
)
from edgefl.cli.options import DataRoot, Forgetting, Json, Log, RunPath, Sets, with_flags
from edgefl.learn.evaluation import wording

Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Devices that train at the same time; the result is the same. One, unless on Ray."),
]


def simulate(  # noqa: PLR0917 - the options of the command
    run: RunPath,
    set_: Sets = None,
    data_root: DataRoot = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="On the virtual clock even without emulated hardware in [fleet].")
    ] = False,
    workers: Workers = None,
    forgetting: Forgetting = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep metrics, checkpoints and exports here; in run.folder, where that is said."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew where that folder has an unfinished run.")] = False,
    json: Json = False,
    log: Log = "warning",
) -> None:
    """Play a run on this machine: a plain loop, or with [fleet] an emulated fleet on a virtual clock.

    With --out (or run.folder) what comes of it is kept, and the same command goes on where it was interrupted.
    A run that diverges tells its rounds and its last finite model all the same, and ends with exit code 1.
    """
    from edgefl.base.errors import ConfigError, Diverged, Interrupted
    from edgefl.job.config.export import Export
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.sim.cautions import cautious, tell_cautions
    from edgefl.sim.drivers import play
    from edgefl.system import logs

    logs.set_up(log)
    run_file = load(RunFile, run, with_flags(set_, forgetting=forgetting))
    if run_file.task.partition is None:
        raise ConfigError(f"{run}: a simulation divides one data set among devices: give task.partition")
    tell_cautions(run_file)
    ends: list[Done] = []

    def tell_and_keep(fact: Fact) -> None:
        (_json if json else _line)(fact)
        if isinstance(fact, Done):
            ends.append(fact)

    tell = cautious(tell_and_keep)
    keeps = out is not None or "folder" in run_file.run.model_fields_set or run_file.export != Export()
    if not keeps:
        play(run_file, data_root, tell, emulated=emulate, workers=workers)
    else:
        from edgefl.sim.run_folder import folder_of, play_kept

        folder = out or folder_of(run_file)
        try:
            play_kept(run_file, data_root, tell, folder=folder, fresh=fresh, emulated=emulate, workers=workers)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; the same command goes on with what is in {folder}") from None
    if ends[-1].stopped == DIVERGED:
        raise Diverged(f"the run diverged after {ends[-1].rounds} rounds: {ends[-1].why}")


def _json(fact: Fact) -> None:
    typer.echo(json.dumps(as_record(fact)))


def _line(fact: Fact) -> None:
    match fact:
        case Round(virtual_seconds=took):
            seconds = f"{fact.seconds:.2f} s" if took is None else f"{took:.1f} virtual s"
            typer.echo(
                f"round {fact.round:4d}  {wording.scores(fact)}"
                f"{_forgot(fact)}  up {wording.size(fact.bytes_up)}"
                f"  down {wording.size(fact.bytes_down)}  {seconds}{wording.bounded(fact)}"
            )
        case Evaluated(round=round):
            typer.echo(f"after {round:4d}  {wording.evaluated(fact)}")
        case Abandoned(round=round, reason=reason):
            typer.echo(f"round {round:4d}  abandoned: {reason}")
        case Done(virtual_seconds=took):
            words = (fact.stopped, wording.scores(fact), wording.best(fact), wording.weakest(fact, fact.names))
            typer.echo(
                f"done: {fact.rounds} rounds{'' if took is None else f' in {took:.0f} virtual s'},"
                f" {', '.join(word for word in words if word)}, model {fact.model_sha256[:16]}"
            )
            if private := wording.spent(fact):
                typer.echo(private)
        case Evaluating():
            typer.echo(wording.evaluating(fact))
        case Described():
            typer.echo(wording.described(fact))
        case Resumed(round=round):
            typer.echo(f"goes on with round {round}")
        case Inherited():
            typer.echo(wording.inherited(fact))


def _forgot(fact: Round) -> str:
    """Return how much was forgotten, and where if that was measured; a regression has no classes to forget."""
    if fact.forgetting is None:
        return ""
    lost = f"  forgetting {fact.forgetting:6.3f}"
    if fact.local_forgetting is None:
        return lost
    return f"{lost} (local {_number(fact.local_forgetting)}, merging {_number(fact.aggregation_forgetting)})"


def _number(value: float | None) -> str:
    return "     -" if value is None else f"{value:6.3f}"
