"""What `edgefl simulate` prints of a run. It is imported when the command runs: `--help` is instant."""

import json

import typer

from edgefl.base.events import (
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
from edgefl.learn.evaluation import wording


def tell_json(fact: Fact) -> None:
    """Print the fact as one JSON object."""
    typer.echo(json.dumps(as_record(fact)))


def tell_line(fact: Fact) -> None:
    """Print a line for people; nothing of a fact that only machines read."""
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
