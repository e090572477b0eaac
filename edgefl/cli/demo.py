"""`edgefl demo`: a broker, a coordinator and eight agent processes on this machine."""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from edgefl.cli.options import DataRoot, Json, Log, Sets
from edgefl.cli.program import program


def demo(
    folder: Annotated[Path, typer.Option(help="Where the results go.")] = Path("runs"),
    set_: Sets = None,
    data_root: DataRoot = None,
    json: Json = False,
    log: Log = "warning",
) -> None:
    """Watch eight devices learn to read digits together, each a process of its own, through a real MQTT broker."""
    from coordinator.start import coordinate
    from coordinator.view import choose
    from edgefl.config.reader import load
    from edgefl.config.schema import RunFile
    from edgefl.evaluation import wording
    from edgefl.run import job as jobs
    from edgefl.run.local_fleet import Fleet
    from edgefl.system import logs

    logs.set_up(log)
    with as_file(files("edgefl.cli") / "templates" / "demo.toml") as path:
        run = load(RunFile, path, [f"run.folder={folder}", *(set_ or ())])
    results = coordinate(
        run, data_root, choose(as_json=json), lambda broker: Fleet.of(run, str(broker), None, data_root), fresh=True
    )
    if json:
        return
    scores = wording.scores(jobs.report(results.run_state, {}))
    typer.echo("\nEight devices trained one model; no sample left its process.")
    typer.echo(f"  the model   {scores} on digits none of them has seen")
    for what, file in results.files.items():
        typer.echo(f"  {what:<11} {file}")
    edgefl = program()
    typer.echo("\nNext:")
    typer.echo(f"  {edgefl} init                 write a run file and an agent file of your own")
    typer.echo(f"  {edgefl} simulate run.toml    play that run file in this process, without a broker")
