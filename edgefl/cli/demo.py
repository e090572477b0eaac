"""`edgefl demo`: a broker, a coordinator and eight agents on this machine, and what they gained over FedAvg."""

import os
import sys
from contextlib import AbstractContextManager
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import DataRoot, Json, Log, Sets
from edgefl.cli.program import program

if TYPE_CHECKING:  # commands import when they run: --help is instant
    from edgefl.base.events import Fact
    from edgefl.job.config.schema import RunFile
    from edgefl.watch.view import View


def demo(  # noqa: PLR0917 - options of a command
    folder: Annotated[Path, typer.Option(help="Where the results go.")] = Path("runs"),
    set_: Sets = None,
    data_root: DataRoot = None,
    browser: Annotated[bool, typer.Option(help="Open the page of the run in a browser, if there is a display.")] = True,
    json: Json = False,
    log: Log = "warning",
) -> None:
    """Watch eight devices learn to read digits together, each a process of its own, through a real MQTT broker.

    Then the same run is played with FedAvg, to see what they gained.
    """
    from coordinator.start import coordinate, opened
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.job.run.local_fleet import LocalFleet
    from edgefl.sim.torch_process import network_apart
    from edgefl.system import logs
    from edgefl.watch.view import choose

    logs.set_up(log)
    with as_file(files("edgefl.cli") / "templates" / "demo.toml") as path:
        run = load(RunFile, path, [f"run.folder={folder}", *(set_ or ())])
    view = choose(as_json=json)
    watched = ViewWithPage(view) if browser and not json and sys.stdout.isatty() and _has_display() else view
    with opened(run, fresh=True) as book:
        results = coordinate(
            run,
            book,
            data_root,
            watched,
            lambda broker: LocalFleet.of(run, str(broker), None, data_root),
            network=partial(network_apart, run, data_root),
        )
    if json:
        return
    accuracy = results.run_state.evaluation.accuracy if results.run_state.evaluation else None
    typer.echo("\nEight devices, each with two of the ten digits, trained one model; no sample left its process.")
    typer.echo(f"  {run.algorithm['name']:<11} accuracy {accuracy or 0:.1%} on digits none of them has seen")
    plain = _with_fedavg(run, data_root)
    typer.echo(f"  {'fedavg':<11} accuracy {plain:.1%} with the same devices and seed, played just now in one process")
    typer.echo(f"  {'gained':<11} {100 * ((accuracy or 0) - plain):+.1f} points")
    for what, file in results.files.items():
        typer.echo(f"  {what:<11} {file}")
    edgefl = program()
    typer.echo("\nNext:")
    typer.echo(f"  {edgefl} tutorial          three devices with logs of their own: docs/tutorial.md")
    typer.echo(f"  {edgefl} page {results.folder}    this run again, in a browser")


class ViewWithPage:
    """A view with the page open beside it."""

    def __init__(self, view: "View") -> None:
        self.view = view

    def tell(self, fact: "Fact") -> None:
        from edgefl.base.events import Shown

        self.view.tell(fact)
        if isinstance(fact, Shown) and fact.url:
            import webbrowser

            webbrowser.open(fact.url)

    def busy(self, what: str) -> AbstractContextManager[None]:
        return self.view.busy(what)

    def watching(self) -> AbstractContextManager[None]:
        return self.view.watching()


def _has_display() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _with_fedavg(run: "RunFile", root: Path | None) -> float:
    """The accuracy that FedAvg has after as many rounds of the same devices."""
    from edgefl.base.events import Done
    from edgefl.lab.comparison.variants import variant
    from edgefl.sim.drivers import play

    last: list[float] = []

    def tell(fact: "Fact") -> None:
        if isinstance(fact, Done):
            last.append(fact.accuracy or 0.0)

    play(variant("fedavg", run).run, root, tell)
    return last[0]
