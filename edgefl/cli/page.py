"""`edgefl page`: a run in the browser, from its folder."""

from pathlib import Path
from typing import Annotated

import typer

from edgefl.cli.options import Log


def page(  # noqa: PLR0917 - options of a command
    run: Annotated[Path, typer.Argument(help="The run's folder, e.g. runs/demo.", show_default=False)],
    at: Annotated[str, typer.Option("--page", help="Where to serve it: a port, or host:port.")] = "127.0.0.1:8600",
    token: Annotated[Path | None, typer.Option(help="A file with the token that is asked for.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="For https.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
    log: Log = "warning",
) -> None:
    """Show a run that has finished, or one that another process plays, until Ctrl-C."""
    import signal
    from queue import SimpleQueue

    from pydantic import ValidationError

    from coordinator.durable import run_history
    from edgefl.base.errors import ConfigError
    from edgefl.job.config.page import Page, place
    from edgefl.system import logs

    logs.set_up(log)
    disk = run_history.run_disk(run)
    try:
        from coordinator.shell.page import notes
        from edgefl.ops.folder_page import FolderPage
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'edgefl[coordinator]'") from None
    try:
        settings = Page.model_validate({**place(at), "token": token, "certificate": certificate, "key": key})
    except ValidationError as error:
        raise ConfigError(f"--page {at}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    served = FolderPage(settings, disk)
    ended: SimpleQueue[int] = SimpleQueue()  # an Event set by a handler can wait for itself for ever
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: ended.put(number))
    try:
        more = notes(settings, served.server.port, served.server.token_file)
        typer.echo(f"{run} is at {served.server.url}" + (f"  ({more})" if more else ""))
        ended.get()
    finally:
        served.close()
