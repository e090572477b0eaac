"""The command line: `edgefl VERB FILE`. Results go to stdout, logs to stderr.

Exit codes: 0 done, 1 the run failed, 2 a file or an option is wrong, 3 the run has finished before,
130 interrupted.
"""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from edgefl.base.errors import EdgeflError
from edgefl.base.version import __version__
from edgefl.cli import (
    agent,
    backup,
    bench,
    broker,
    compare,
    config,
    coordinator,
    demo,
    device,
    doctor,
    export,
    fleet,
    gateway,
    init,
    page,
    plan,
    privacy,
    rehearse,
    replay,
    report,
    run,
    server,
    simulate,
    status,
    sweep,
    tutorial,
)
from edgefl.cli.audited import audited
from edgefl.system.portable import posix_only

# Not on Windows.
POSIX_ONLY = {
    "agent",
    "backup",
    "bench",
    "broker",
    "coordinator",
    "demo",
    "device",
    "doctor",
    "fleet",
    "gateway",
    "restore",
    "server",
    "tutorial",
}

app = typer.Typer(
    name="edgefl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Federated learning on devices you own, over plain MQTT.",
)
app.command()(demo.demo)
app.command()(init.init)
app.command()(tutorial.tutorial)
app.command()(doctor.doctor)
app.command()(simulate.simulate)
app.command()(compare.compare)
app.command()(sweep.sweep)
app.command()(rehearse.rehearse)
app.command()(plan.plan)
app.command()(status.status)
app.command()(device.device)
app.command()(replay.replay)
app.command()(report.report)
app.command()(page.page)
app.command()(export.export)
app.add_typer(config.app, name="config")
app.add_typer(coordinator.app, name="coordinator")
app.add_typer(agent.app, name="agent")
app.add_typer(fleet.app, name="fleet")
app.add_typer(broker.app, name="broker")
app.add_typer(gateway.app, name="gateway")
app.add_typer(server.app, name="server")
app.add_typer(backup.app, name="backup")
app.command()(backup.restore)
app.add_typer(run.app, name="run")
app.add_typer(privacy.app, name="privacy")
app.add_typer(bench.app, name="bench")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"edgefl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback says it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which one.")
    ] = False,
) -> None:
    """Federated learning on devices you own, over plain MQTT."""
    if context.invoked_subcommand in POSIX_ONLY:
        posix_only(f"edgefl {context.invoked_subcommand}")


def main(command: typer.Typer = app) -> None:
    """Run a command, of `edgefl` or of a tool; a mistake gets one line, never a traceback."""
    if isinstance(sys.stdout, TextIOWrapper):  # what a device says may have letters that this terminal has not
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with audited(sys.argv[1:] if command is app else ()):
            command()
    except EdgeflError as error:
        typer.echo(f"edgefl: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("edgefl: interrupted", err=True)
        sys.exit(130)
