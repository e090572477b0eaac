"""`edgefl run`: runs of a server, as jobs in its queue."""

import json as js
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgefl.cli.options import Json, RunPath, Sets
from edgefl.cli.program import program

if TYPE_CHECKING:  # commands import when they run: --help is instant
    from edgefl.server.client import ServerClient

app = typer.Typer(no_args_is_help=True, help="Runs of a server: submit, watch, pause, cancel, prune.")

Server = Annotated[
    str | None,
    typer.Option("--server", help="Its address, e.g. https://server.local:8600; else the one on this machine."),
]
Token = Annotated[Path | None, typer.Option("--token", help="A file with your token (else EDGEFL_TOKEN).")]
Name = Annotated[str, typer.Argument(help="The name of a run or of a schedule.", show_default=False)]


@app.callback()
def group() -> None:
    """Runs of a server: submit, watch, pause, cancel, prune."""


@app.command()
def submit(  # noqa: PLR0917 - options of a command
    run: RunPath,
    set_: Sets = None,
    priority: Annotated[int, typer.Option(help="Larger numbers go first.")] = 0,
    json: Json = False,
    server: Server = None,
    token: Token = None,
) -> None:
    """Queue a run; a run file with [schedule] becomes a schedule, and one of that name is replaced."""
    answer = hand_over(_connect(server, token), run, set_ or (), priority, local=server is None)
    if json:
        typer.echo(js.dumps(answer))
    elif answer["kind"] == "schedule":
        typer.echo(f"'{answer['name']}' is a schedule now:  {program()} run list")
    else:
        typer.echo(f"run '{answer['name']}' is in the queue:  {program()} run show {answer['name']}")


def hand_over(client: "ServerClient", run: Path, sets: Sequence[str], priority: int, *, local: bool) -> dict[str, Any]:
    """Send a run file to a server; on this machine with the folder that it stands in."""
    import uuid

    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile

    load(RunFile, run, sets)  # what is wrong with it is said here, with its name
    body = {
        "run_file": run.read_text(encoding="utf-8"),
        "request": uuid.uuid4().hex,
        "sets": list(sets),
        "priority": priority,
        "beside": str(run.absolute().parent) if local else "",
    }
    answer: dict[str, Any] = client.post("/runs", body)
    return answer


@app.command("list")
def list_(json: Json = False, server: Server = None, token: Token = None) -> None:
    """Every run that waits or works, and every schedule; `edgefl run history` has those that have ended."""
    client = _connect(server, token)
    runs, schedules = client.get("/runs"), client.get("/schedules")
    open_runs = [run for run in runs if run["phase"] not in ("finished", "failed", "cancelled")]
    if json:
        for row in (
            *({"kind": "run", **run} for run in open_runs),
            *({"kind": "schedule", **one} for one in schedules),
        ):
            typer.echo(js.dumps(row))
        return
    if not open_runs and not schedules:
        typer.echo(f"nothing waits:  {program()} run submit run.toml")
    if open_runs:
        rows = [
            (run["name"], run["fleet"], _phase(run), str(run["priority"]), run["by"], run["reason"])
            for run in open_runs
        ]
        table(("run", "fleet", "is", "priority", "of", "why"), rows)
    if schedules:
        table(
            ("schedule", "fleet", "when", "next", "runs", "last run"),
            [
                (
                    one["name"],
                    one["fleet"],
                    f"{one['cron']}{' if ' + one['when'] if one['when'] else ''}",
                    "paused" if one["paused"] else _minute(one["next_due"]),
                    str(one["runs"]),
                    one["last_run"] or "",
                )
                for one in schedules
            ],
        )


@app.command()
def history(
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many, the newest last.")] = 30,
    json: Json = False,
    server: Server = None,
    token: Token = None,
) -> None:
    """Runs that have ended: when, how, and who wanted them."""
    ended = [run for run in _connect(server, token).get("/runs") if run["ended"]]
    for run in ended[-number:] if json else ():
        typer.echo(js.dumps(run))
    if not json:
        rows = [
            (
                run["name"],
                run["fleet"],
                run["phase"],
                _minute(run["started"]),
                _minute(run["ended"]),
                run["by"],
                run["reason"],
            )
            for run in ended[-number:]
        ]
        table(("run", "fleet", "is", "began", "ended", "of", "why"), rows)


@app.command()
def show(name: Name, json: Json = False, server: Server = None, token: Token = None) -> None:
    """One run: where it stands, and why."""
    from edgefl.server.client import name_in_path

    run = _connect(server, token).get(f"/runs/{name_in_path(name)}")
    if json:
        typer.echo(js.dumps(run))
        return
    for key, value in run.items():
        if value not in (None, "", False):
            typer.echo(f"{key:>10}  {_minute(value) if key in ('submitted', 'started', 'ended') else value}")


@app.command()
def pause(name: Name, server: Server = None, token: Token = None) -> None:
    """Stop a run for now, or a schedule; nothing is lost."""
    _wish(name, "pause", server, token)


@app.command()
def resume(name: Name, server: Server = None, token: Token = None) -> None:
    """Let a paused run go on with its round, or a schedule with its times."""
    _wish(name, "resume", server, token)


@app.command()
def cancel(name: Name, server: Server = None, token: Token = None) -> None:
    """End a run for good; its folder stays. Remove a schedule; its runs stay."""
    _wish(name, "cancel", server, token)


@app.command()
def priority(
    name: Name,
    number: Annotated[int, typer.Argument(help="Larger numbers go first.", show_default=False)],
    server: Server = None,
    token: Token = None,
) -> None:
    """Let a run go before others that wait, or after them."""
    from edgefl.server.client import name_in_path

    _connect(server, token).put(f"/runs/{name_in_path(name)}/priority", {"priority": number})
    typer.echo(f"run '{name}' has priority {number}")


@app.command()
def logs(
    name: Name,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=2000, help="How many, the newest last.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    server: Server = None,
    token: Token = None,
) -> None:
    """Show what a run's coordinator has written."""
    from edgefl.server.client import name_in_path

    client = _connect(server, token)
    shown: list[str] = []
    while True:
        fresh: list[str] = client.get(f"/runs/{name_in_path(name)}/log", lines=lines)["lines"]
        known = next((len(shown) - at for at in range(len(shown) + 1) if shown[at:] == fresh[: len(shown) - at]), 0)
        for line in fresh[known:]:
            typer.echo(line)
        if not follow:
            return
        shown = fresh
        time.sleep(1.0)


@app.command()
def prune(
    keep: Annotated[int, typer.Option("--keep", min=0, help="How many of the newest stay.", show_default=False)],
    server: Server = None,
    token: Token = None,
) -> None:
    """Delete the folders of runs that have ended, of those that no schedule has started; their history stays."""
    deleted = _connect(server, token).post("/prune", {"keep": keep})["deleted"]
    typer.echo(f"deleted: {', '.join(deleted)}" if deleted else "nothing to delete")


def _wish(name: str, wish: Literal["pause", "resume", "cancel"], server: str | None, token: Path | None) -> None:
    from edgefl.server.client import name_in_path

    _connect(server, token).post(f"/runs/{name_in_path(name)}/{wish}")
    done = {"pause": "pauses", "resume": "goes on", "cancel": "is cancelled"}[wish]
    typer.echo(f"'{name}' {done}")


def _connect(server: str | None, token: Path | None) -> "ServerClient":
    from edgefl.server.client import connect

    return connect(server, token)


def _phase(run: dict[str, Any]) -> str:
    return f"{run['phase']} ({run['position']}.)" if run["position"] else str(run["phase"])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below their head, in columns."""
    from edgefl.base.printable import printable

    table = [tuple(printable(cell) or "-" for cell in row) for row in (head, *rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _minute(text: str | None) -> str:
    from datetime import datetime

    if not text:
        return ""
    return f"{datetime.fromisoformat(text.replace('Z', '+00:00')).astimezone():%Y-%m-%d %H:%M}"
