"""`edgefl simulate`: the same run without a network."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import DataRoot, Forgetting, Json, Log, RunPath, Sets, with_flags

if TYPE_CHECKING:  # the command imports when it runs: --help is instant
    from edgefl.base.events import Fact

Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Devices that train at the same time; the result is the same. One, unless on Ray."),
]


def simulate(  # noqa: PLR0917 - the options of the command
    run: RunPath,
    set_: Sets = None,
    data_root: DataRoot = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="On the virtual clock even without emulated hardware in [fleet].")
    ] = False,
    workers: Workers = None,
    forgetting: Forgetting = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep metrics, checkpoints and exports here; in run.folder, where that is said."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew where that folder has an unfinished run.")] = False,
    json: Json = False,
    log: Log = "warning",
) -> None:
    """Play a run on this machine: a plain loop, or with [fleet] an emulated fleet on a virtual clock.

    With --out (or run.folder) what comes of it is kept, and the same command goes on where it was interrupted.
    A run that diverges tells its rounds and its last finite model all the same, and ends with exit code 1.
    """
    from edgefl.base.errors import ConfigError, Diverged, Interrupted
    from edgefl.base.events import DIVERGED, Done
    from edgefl.cli.simulation_lines import tell_json, tell_line
    from edgefl.job.config.export import Export
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.sim.cautions import cautious, tell_cautions
    from edgefl.sim.drivers import play
    from edgefl.system import logs

    logs.set_up(log)
    run_file = load(RunFile, run, with_flags(set_, forgetting=forgetting))
    if run_file.task.partition is None:
        raise ConfigError(f"{run}: a simulation divides one data set among devices: give task.partition")
    tell_cautions(run_file)
    ends = list[Done]()

    def tell_and_keep(fact: "Fact") -> None:
        (tell_json if json else tell_line)(fact)
        if isinstance(fact, Done):
            ends.append(fact)

    tell = cautious(tell_and_keep)
    keeps = out is not None or "folder" in run_file.run.model_fields_set or run_file.export != Export()
    if not keeps:
        play(run_file, data_root, tell, emulated=emulate, workers=workers)
    else:
        from edgefl.sim.run_folder import folder_of, play_kept

        folder = out or folder_of(run_file)
        try:
            play_kept(run_file, data_root, tell, folder=folder, fresh=fresh, emulated=emulate, workers=workers)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; the same command goes on with what is in {folder}") from None
    if ends[-1].stopped == DIVERGED:
        raise Diverged(f"the run diverged after {ends[-1].rounds} rounds: {ends[-1].why}")
