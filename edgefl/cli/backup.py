"""`edgefl backup` and `edgefl restore`: an operator's fleets, server and runs in one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from edgefl.cli.program import program

if TYPE_CHECKING:  # commands import when they run: --help is instant
    from edgefl.server.backup_file import BackupDescription
    from edgefl.server.restore import Listed, Revoked

NONE = "none"


class FileOrCommand(TyperGroup):
    """Takes a first word that is no command for the file of `create`."""

    otherwise = "create"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: click's, which typer wraps
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [self.otherwise, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(no_args_is_help=True, cls=FileOrCommand, help="Copy fleets, server and runs into one file.")


@app.callback()
def group() -> None:
    """Copy fleets, server and runs into one file: `edgefl backup out.tar`, also while all of them run."""


@app.command("create")
def create(
    out: Annotated[Path, typer.Argument(help="The new file.", show_default=False)],
    for_: Annotated[
        Path | None, typer.Option("--for", help="Encrypt it for this key: FILE.pub of `edgefl backup key FILE`.")
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", help="A folder of runs outside of the server's; may be repeated.", show_default=False),
    ] = None,
) -> None:
    """Copy all fleets and the server of this operator, and its runs. Nothing has to be stopped."""
    import getpass
    import socket

    from edgefl.fleet import audit
    from edgefl.fleet.audit import AuditLog, Deed
    from edgefl.fleet.authority import clock
    from edgefl.server import sealed_stream
    from edgefl.server.backup import back_up
    from edgefl.server.folder import folder

    now, reader = clock(), sealed_stream.read_public(for_) if for_ else None
    copied = back_up(out, now, runs=tuple(runs or ()), reader=reader)
    if (folder() / audit.NAME).exists():
        who, sealed = f"{getpass.getuser()}@{socket.gethostname()}", "sealed" if reader else "not sealed"
        AuditLog.opened(folder()).write(Deed(who, "backup", "this machine", about=sealed), now.timestamp())
    fleets = ", ".join(copied.description.fleets) or "none"
    typer.echo(f"wrote {out}: {copied.files} files, fleets: {fleets}, {out.stat().st_size / 1e6:.1f} MB")
    for run in copied.missing:
        typer.echo(f"not in it: the run {run}; --runs {Path(run).parent} adds it", err=True)
    if reader is None:
        typer.echo("it holds the private keys of these fleets: keep it where few can read, or use --for KEY", err=True)


@app.command("key")
def make_key(file: Annotated[Path, typer.Argument(help="The file of the secret key.", show_default=False)]) -> None:
    """Make a pair of keys for back-ups: FILE opens them, FILE.pub only makes them."""
    from edgefl.server import sealed_stream

    public = sealed_stream.make_key(file)
    typer.echo(f"{public} makes back-ups: {program()} backup out.tar --for {public}")
    typer.echo(f"{file} opens them: keep it on another machine, and not on the server")


def restore(  # noqa: PLR0917 - options of a command
    file: Annotated[Path, typer.Argument(help="The back-up.", show_default=False)],
    key: Annotated[Path | None, typer.Option(help="The secret key that opens it, if it is sealed.")] = None,
    revoked: Annotated[
        str | None,
        typer.Option(help="Members that were revoked after the copy: pi-03,north/pi-04, or none.", show_default=False),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move a fleet or server that is here aside; nothing is deleted.")
    ] = False,
    runs: Annotated[
        Path | None, typer.Option(help="Where runs go that stood outside of the server's folder (else into it).")
    ] = None,
    beside: Annotated[
        Path | None, typer.Option(help="Where the files are that run files name, if not where they were.")
    ] = None,
) -> None:
    """Bring fleets, server and runs of a back-up to this machine.

    Revocations made after the copy are not in it: it asks who was revoked, and revokes them again before anything
    else can happen.
    """
    import getpass
    import socket

    from edgefl.fleet.authority import clock
    from edgefl.server import sealed_stream
    from edgefl.server.restore import Destination
    from edgefl.server.restore import restore as bring_back

    def ask(description: "BackupDescription", listed: "Listed") -> "Revoked":
        _tell(description, listed)
        text = revoked
        if text is None:
            since = f"{description.created:%Y-%m-%d %H:%M}"
            text = typer.prompt(f"Which members were revoked after {since} UTC? Names with commas, or none")
        return named(text, listed)

    opener, by = sealed_stream.read_secret(key) if key else None, f"{getpass.getuser()}@{socket.gethostname()}"
    done = bring_back(file, opener, Destination(replace, runs, beside), ask, by, clock())
    for fleet, member in done.revoked:
        typer.echo(f"revoked again: {member} of {fleet}")
    for run in done.runs:
        typer.echo(f"restored the run {run}")
    if done.aside is not None:
        typer.echo(f"what was here before is in {done.aside}")
    for caution in done.cautions:
        typer.echo(caution, err=True)
    start = "server start" if done.description.server else "broker start"
    typer.echo(f"restored; next:  {program()} {start}")


def named(text: str, listed: "Listed") -> "Revoked":
    """Return fleet and name of each member in a text such as `pi-03,north/pi-04`."""
    from edgefl.base.errors import ConfigError

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ConfigError(f"name the members that were revoked after the copy, with commas, or {NONE}")
    if words == [NONE]:
        return ()
    pairs = []
    for word in words:
        fleet, slash, name = word.rpartition("/")
        places = [one for one, members in listed.items() if name in members and (not slash or one == fleet)]
        if len(places) > 1:
            raise ConfigError(f"'{name}' is in the fleets {', '.join(places)}: say {places[0]}/{name}")
        if not places:
            known = ", ".join(f"{one}/{member}" for one, members in listed.items() for member in members) or NONE
            raise ConfigError(
                f"'{word}' is no member in the copy ({known}); a device that was added after it is a stranger anyway:"
                " leave it out"
            )
        pairs.append((places[0], name))
    return tuple(pairs)


def _tell(description: "BackupDescription", listed: "Listed") -> None:
    """Show who is a member by the copy."""
    typer.echo(
        f"a copy of {description.created:%Y-%m-%d %H:%M:%S} UTC, made on {description.host}"
        f" by edgefl {description.software}",
        err=True,
    )
    for fleet, members in listed.items():
        typer.echo(f"members of fleet '{fleet}' at that time:", err=True)
        for name, member in members.items():
            typer.echo(f"  {name}  added {member.added:%Y-%m-%d}", err=True)
