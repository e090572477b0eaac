"""`edgefl server`: the service of a fleet, between runs and for years."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from edgefl.cli.options import Json, Log
from edgefl.cli.program import program

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="The service of a fleet: presence, certificates, a queue of runs.")


@app.callback()
def group() -> None:
    """The service of a fleet: presence, certificates, a queue of runs."""


@app.command()
def start(
    file: Annotated[
        Path | None, typer.Argument(help="The server's file (TOML), if it has one.", show_default=False)
    ] = None,
    fleet: Annotated[
        list[str] | None, typer.Option("--fleet", help="A fleet that it serves; may be repeated (default).")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: --set server.at_once=4", show_default=False)
    ] = None,
    log: Log = "info",
) -> None:
    """Serve fleets until Ctrl-C: their brokers, their devices, and the runs that are submitted.

    Killed at any moment, the same command goes on: runs that were at work go on with their round.
    """
    from edgefl.job.config.reader import load, parse
    from edgefl.server.http.web import Web
    from edgefl.server.server_file import ServerFile
    from edgefl.server.start import Host, serve
    from edgefl.system import logs

    logs.set_up(log)
    sets = [*(set_ or ()), *([f"server.fleets={fleet!r}".replace("'", '"')] if fleet else [])]
    settings = load(ServerFile, file, sets) if file else parse(ServerFile, {}, "edgefl server start", sets)

    def ready(host: Host, web: Web) -> None:
        fleets = " and ".join(f"'{name}'" for name in host.file.server.fleets)
        typer.echo(f"the server of {fleets} is at {web.url}; its token is in {host.people.admin_file}")
        typer.echo(f"next, in another terminal:  {program()} run submit run.toml")

    serve(settings, ready)


users = typer.Typer(no_args_is_help=True, help="People who may use the server, and their roles.")
app.add_typer(users, name="user")


@users.callback()
def people() -> None:
    """People who may use the server, and their roles."""


@users.command("add")
def add_user(
    name: Annotated[str, typer.Argument(help="Who it is.", show_default=False)],
    role: Annotated[Literal["viewer", "operator", "admin"], typer.Option(help="What they may do.")] = "viewer",
    fleet: Annotated[list[str] | None, typer.Option("--fleet", help="Only this fleet; may be repeated.")] = None,
) -> None:
    """Give a person a token. It is shown once: the server keeps its hash."""
    from datetime import datetime, timezone

    from edgefl.server.people import People

    now, fleets = datetime.now(timezone.utc), tuple(fleet or ())
    word = _noted("user.add", name, role, lambda: People(_folder()).add(name, role, now, fleets))
    typer.echo(f"'{name}' is {role}; their token, which is not shown again:", err=True)
    typer.echo(word)


@users.command("remove")
def remove_user(name: Annotated[str, typer.Argument(help="Who it is.", show_default=False)]) -> None:
    """Take a person's token back: it is refused from the next request on."""
    from edgefl.server.people import People

    _noted("user.remove", name, "", lambda: People(_folder()).remove(name))
    typer.echo(f"'{name}' has no token any more")


@users.command("list")
def list_users() -> None:
    """List the people who have a token."""
    from edgefl.server.people import People

    for name, person in sorted(People(_folder()).all().items()):
        typer.echo(f"{name}  {person.role}  {', '.join(person.fleets) or 'all fleets'}  since {person.added:%Y-%m-%d}")


@app.command()
def audit(
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many, the newest last.")] = 50,
    check: Annotated[bool, typer.Option("--verify", help="Was a line changed, taken out or put in?")] = False,
    head: Annotated[
        str | None,
        typer.Option("--head", help="With --verify: a head that you wrote down, which must still be there."),
    ] = None,
    json: Json = False,
) -> None:
    """Show who did what; --verify ends with 1 where the log was changed."""
    from edgefl.fleet.audit import AuditHead, AuditLog, verify

    book = AuditLog.opened(_folder())
    if check:
        fault = verify(book.disk, book.signer.key, AuditHead.parse(head) if head else None)
        whole = f"the audit log is whole; its head is {book.head()}"
        typer.echo(f"the audit log is not whole: {fault}" if fault else whole)
        raise typer.Exit(1 if fault else 0)
    for entry in [*book.entries()][-lines:]:
        if json:
            typer.echo(entry.model_dump_json())
        else:
            who = f"{entry.who or 'the server'}{f' ({entry.origin})' if entry.origin else ''}"
            about = " ".join(filter(None, (entry.what, entry.subject, f"of {entry.fleet}" if entry.fleet else "")))
            more = f": {entry.about}" if entry.about else ""
            done = "" if entry.outcome == "done" else f" {entry.outcome}"
            typer.echo(f"{entry.at.astimezone():%Y-%m-%d %H:%M:%S}  {who}  {about}{done}{more}")


def _folder() -> Path:
    from edgefl.server.folder import folder

    return folder()


def _noted(what: str, subject: str, about: str, do: Callable[[], T]) -> T:
    """Carry out what a person on this machine wants, and write it into the audit log."""
    import getpass
    import socket
    import time

    from edgefl.base.errors import EdgeflError
    from edgefl.fleet.audit import AuditLog, Deed

    book, who = AuditLog.opened(_folder()), f"{getpass.getuser()}@{socket.gethostname()}"
    try:
        result = do()
    except EdgeflError as error:
        book.write(Deed(who, what, "this machine", "", subject, "refused", str(error)), time.time())
        raise
    book.write(Deed(who, what, "this machine", "", subject, "done", about), time.time())
    return result


@app.command("fleets")
def list_fleets(
    json: Json = False,
    server: Annotated[str | None, typer.Option("--server", help="Its address; else the one on this machine.")] = None,
    token: Annotated[Path | None, typer.Option("--token", help="A file with your token (else EDGEFL_TOKEN).")] = None,
) -> None:
    """The fleets that a server serves: how many devices are there, and what they have."""
    import json as js

    from edgefl.cli.run import table
    from edgefl.server.client import connect

    rows = connect(server, token).get("/fleets")
    if json:
        for row in rows:
            typer.echo(js.dumps(row))
        return
    keys = ("name", "broker", "members", "online", "samples")
    table(keys, [[str(row[key]) for key in keys] for row in rows])


@app.command("alerts")
def list_alerts(
    json: Json = False,
    server: Annotated[str | None, typer.Option("--server", help="Its address; else the one on this machine.")] = None,
    token: Annotated[Path | None, typer.Option("--token", help="A file with your token (else EDGEFL_TOKEN).")] = None,
) -> None:
    """What needs a person now, and what to do about it."""
    import json as js
    from datetime import datetime

    from edgefl.server.client import connect

    rows = connect(server, token).get("/alerts")
    if json:
        for row in rows:
            typer.echo(js.dumps(row))
        return
    if not rows:
        typer.echo("nothing needs a person now")
    for row in rows:
        where = f"{row['fleet']}: " if row["fleet"] else ""
        known = f"  (known to {row['quieted_by']})" if row["quieted_by"] else ""
        since = datetime.fromisoformat(row["since"]).astimezone()
        typer.echo(f"{since:%Y-%m-%d %H:%M}  {where}{row['text']}{known}\n    {row['remedy']}\n    id {row['id']}")


@app.command("quiet")
def quiet_alert(
    alert: Annotated[str, typer.Argument(help="Its id, as `edgefl server alerts` shows it.", show_default=False)],
    server: Annotated[str | None, typer.Option("--server", help="Its address; else the one on this machine.")] = None,
    token: Annotated[Path | None, typer.Option("--token", help="A file with your token (else EDGEFL_TOKEN).")] = None,
) -> None:
    """Say that you know of an alert: it no longer needs a person, and its end is not told."""
    from edgefl.server.client import connect, name_in_path

    connect(server, token).post(f"/alerts/{name_in_path(alert)}/quiet")
    typer.echo("it is known now")
