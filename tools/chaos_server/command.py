"""`python -m tools.chaos_server`: lives of a server in virtual time, and the proof that they find bugs."""

import logging
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from typing import Annotated

import typer

from tools.chaos_server.planted import BUGS, planted
from tools.chaos_server.play import ServerOutcome, play

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def chaos(
    seed: Annotated[int, typer.Option(min=0, help="The seed to play, or the first of several.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many, one after another.")] = 1,
    plant: Annotated[str | None, typer.Option(help="Put this bug in first; 'all' searches for each of them.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """Play lives of a server. A seed that breaks a rule tells its story, and the exit code is 1."""
    if plant is not None and plant not in {*BUGS, "all"}:
        raise typer.BadParameter(f"{plant}: there are {', '.join(BUGS)}")
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        if plant == "all":
            results = dict(zip(BUGS, pool.map(partial(search, most=seeds), BUGS), strict=True))
            for name, (count, violation) in results.items():
                shown = "NOT FOUND" if count is None else f"after {count} seeds"
                typer.echo(f"{name:<32} {shown:<16} {violation}"[:160])
            raise typer.Exit(any(count is None for count, _ in results.values()))
        failed = [one for one in pool.map(partial(played, bug=plant), range(seed, seed + seeds)) if one.violation]
    for outcome in failed:
        typer.echo("\n".join(outcome.story[-40:]))
        typer.echo(f"seed {outcome.seed} breaks a rule: {outcome.violation}\n")
    typer.echo(f"{seeds} seeds, {len(failed)} violations")
    raise typer.Exit(bool(failed))


def played(seed: int, bug: str | None = None) -> ServerOutcome:
    """Play one seed, with a planted bug or without."""
    logging.disable(logging.CRITICAL)
    with planted(bug) if bug else nullcontext():
        return play(seed)


def search(bug: str, most: int) -> tuple[int | None, str]:
    """How many seeds it takes to find a planted bug, and what is said of it; None: more than `most`."""
    for seed in range(most):
        if violation := played(seed, bug).violation:
            return seed + 1, violation
    return None, ""
