"""`python -m tools.chaos`: play whole fleets in virtual time, with faults drawn from a seed."""

import json as as_text
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import Json

if TYPE_CHECKING:
    from tools.chaos.campaign import CampaignSummary
    from tools.chaos.play import PlayOutcome

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


@app.command()
def chaos(  # noqa: PLR0917 - the options of the command
    seed: Annotated[int, typer.Option(min=0, help="The seed to play, or the first of several.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many, one after another.")] = 1,
    plant: Annotated[
        str | None, typer.Option(help="Put this bug into the program first; 'all' searches for each of them.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
    story: Annotated[bool, typer.Option("--story", help="Print the story of a seed that broke no rule, too.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Write what came of the seeds, and of all planted bugs, to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Play simulated fleets whose machines, disks and networks fail, and check after every event that nothing is lost.

    The same seed gives the same run, to the bit. If a seed breaks a rule, its story is printed, and the exit code is 1.
    """
    from edgefl.base.errors import ConfigError, nearest
    from tools.chaos.campaign import CampaignSummary, played
    from tools.chaos.planted import BUGS

    if plant is not None and plant not in {*BUGS, "all"}:
        raise ConfigError(f"--plant {plant}: not known; {nearest(plant, [*BUGS, 'all'])}")
    cores = workers or os.cpu_count() or 1
    if plant == "all":
        raise typer.Exit(0 if _prove(seeds, cores) else 1)
    summary = CampaignSummary()
    for outcome in played(seed, seeds, cores if seeds > 1 else 1, plant):
        summary.add(outcome)
        if json:
            typer.echo(as_text.dumps(asdict(outcome)))
        elif outcome.violation or (story and seeds == 1):
            _tell(outcome, plant)
    if not json:
        typer.echo("\n".join(summary.lines()))
    if report is not None:
        _write(report, summary, cores)
    if summary.failed:
        raise typer.Exit(1)


def _tell(outcome: "PlayOutcome", plant: str | None) -> None:
    typer.echo(outcome.story)
    bug = f" --plant {plant}" if plant else ""
    if outcome.violation:
        typer.echo(f"\nseed {outcome.seed} breaks a rule: {outcome.violation}")
        typer.echo(f"play it again: python -m tools.chaos --seed {outcome.seed}{bug}\n")


def _prove(most: int, cores: int) -> bool:
    from tools.chaos.campaign import proofs

    everything = True
    for name, seeds, violation in proofs(most, cores):
        everything = everything and seeds is not None
        typer.echo(f"{name:<24} {f'after {seeds} seeds' if seeds else 'NOT FOUND':<18} {violation}"[:160])
    return everything


def _write(path: Path, summary: "CampaignSummary", cores: int) -> None:
    from datetime import datetime, timezone

    from tools.chaos.campaign import proofs
    from tools.chaos.campaign import report as page

    proven = []
    for name, seeds, violation in proofs(summary.seeds, cores):
        typer.echo(f"{name:<24} {f'after {seeds} seeds' if seeds else 'NOT FOUND':<18} {violation}"[:160])
        proven.append((name, seeds, violation))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(summary, proven, datetime.now(timezone.utc).date().isoformat()), encoding="utf-8")
    if any(seeds is None for _, seeds, _ in proven):
        raise typer.Exit(1)
