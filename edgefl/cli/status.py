"""`edgefl status`: the runs there are, who takes part, why one waits, who was slow."""

import json as js
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import Where

if TYPE_CHECKING:  # the command imports when it runs: --help is instant
    from rich.console import Console

    from edgefl.ops.run_lookup import RunLookup


UNCUT = 10_000  # columns where the output is not a terminal


def status(  # noqa: PLR0917 - options of a command
    run: Annotated[
        str | None,
        typer.Argument(
            help="A run's name, folder or run file, or the address of a coordinator's page (http://host:port).",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per run, or per device.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Once, and not until the run has ended.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Also the runs that ended long ago.")] = False,
    slow: Annotated[
        bool, typer.Option("--slow", help="Show slow devices, measured against those asked with them.")
    ] = False,
    on: Annotated[str | None, typer.Option(help="With --slow: a day, e.g. tuesday, yesterday, 2026-11-17.")] = None,
    since: Annotated[str | None, typer.Option(help="With --slow: from then on, e.g. tuesday, 3h, 2026-11-17.")] = None,
    until: Annotated[str | None, typer.Option(help="With --slow: until then.")] = None,
    where: Where = None,
    device: Annotated[str | None, typer.Option(help="The story of this device, with its last answers.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file with the token that the page wants.")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="Who certified the page: of a fleet, its authority.crt.", show_default=False)
    ] = None,
) -> None:
    """Show the runs on this machine, or one of them: devices, when they were last seen, why it waits, who was slow.

    On a terminal it goes on until the run has ended or Ctrl-C is pressed.
    """
    from rich.console import Console

    from edgefl.base.errors import ConfigError
    from edgefl.ops import run_lookup
    from edgefl.ops.status import narrowed

    if (on or since or until) and not slow:
        raise ConfigError("--on, --since and --until say when a device was --slow: say that too")
    span = _span(on, since, until)
    console = Console() if sys.stdout.isatty() else Console(width=UNCUT, highlight=False)
    runs = [run_lookup.find(run, token_file, ca)] if run else run_lookup.every_run(None if all_ else 5)
    if not runs:
        raise ConfigError("no run is known on this machine: name a run's folder, or the address of its page")
    runs = narrowed(runs, where)
    if slow:
        _who_was_slow(runs[0], console, span, json=json)
    elif device is not None:
        _one_device(runs[0], device, console, json=json)
    elif json:
        for looked in runs:
            typer.echo(js.dumps(looked.as_json(), allow_nan=False))
    else:
        _show(runs, console, where, named=run is not None, once=once)


def _show(runs: "list[RunLookup]", console: "Console", where: str | None, *, named: bool, once: bool) -> None:
    from edgefl.fleet import expiring
    from edgefl.fleet.authority import clock
    from edgefl.ops.status import run_page, runs_table, watch

    going_on = [looked for looked in runs if looked.going_on]
    if console.is_terminal and not once and len(going_on) == 1:
        going_on = runs = [watch(going_on[0], console, where)]
    elif not named:
        console.print(runs_table(runs, time.time()), "")
    for looked in going_on or runs[:1]:
        console.print(run_page(looked, time.time(), cut=console.is_terminal))
    for line in () if named else expiring.lines(clock()):
        console.print("", line, sep="\n", style="yellow", markup=False, highlight=False)


def _span(on: str | None, since: str | None, until: str | None) -> tuple[float | None, float | None]:
    from edgefl.base.errors import ConfigError
    from edgefl.system.moments import day, moment

    now = datetime.now().astimezone()
    if on is None:
        begin = moment(since, now, "--since").timestamp() if since else None
        return begin, moment(until, now, "--until").timestamp() if until else None
    if since or until:
        raise ConfigError("--on is a whole day: say either that, or --since and --until")
    first, next_ = day(on, now, "--on")
    return first.timestamp(), next_.timestamp()


def _who_was_slow(
    looked: "RunLookup", console: "Console", span: tuple[float | None, float | None], *, json: bool
) -> None:
    from edgefl.ops.status import slow_table
    from edgefl.system.moments import shown
    from edgefl.watch.overview.snapshot import pace

    paces = looked.source.slow(*span)
    if json:
        for one in paces:
            typer.echo(js.dumps(pace(one), allow_nan=False))
        return
    bounds = [f"{word} {shown(at)}" for word, at in zip(("from", "until"), span, strict=True) if at is not None]
    when = " ".join(bounds) or f"since it began, {shown(looked.snapshot.run.started_at)}"
    if not paces:
        console.print(f"{looked.snapshot.run.name}: no device was asked {when}", markup=False)
        return
    console.print(f"{looked.snapshot.run.name}: slow devices {when}", style="bold", markup=False)
    console.print(slow_table(paces))
    if not any(one.slow for one in paces):
        console.print("no device: all answered in time, and no rounds waited for one of them", style="dim")


def _one_device(looked: "RunLookup", name: str, console: "Console", *, json: bool) -> None:
    from edgefl.ops.status import device_page
    from edgefl.watch.overview.snapshot import plain

    story = looked.source.device(name)
    if json:
        typer.echo(js.dumps(plain(story), allow_nan=False))
        return
    usual = {row.round: row.median_took for row in looked.snapshot.rounds if row.median_took is not None}
    console.print(device_page(story, usual, time.time()))
