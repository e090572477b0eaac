"""`edgefl compare`: several algorithms on one run."""

from typing import Annotated

import typer

from edgefl.cli.experiment import (
    LEVELS,
    Baseline,
    Fresh,
    Grid,
    Levels,
    Out,
    Workers,
    as_json,
    choose_and_test,
    read_levels,
    say_failures,
    working_in,
)
from edgefl.cli.options import DataRoot, Json, Log, RunPath, Sets

Algorithms = Annotated[
    str,
    typer.Option(
        help="Comma-separated, e.g. fedavg,gc=fedgc:sgc=false,ft=fedavg+finetune (docs/experiments.md).",
        show_default=False,
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Play each with this number of seeds, from run.seed on.")]


def compare(  # noqa: PLR0917 - the options of the command
    run: RunPath,
    algorithms: Algorithms,
    grid: Grid = None,
    seeds: Seeds = 1,
    levels: Levels = LEVELS,
    baseline: Baseline = None,
    out: Out = None,
    set_: Sets = None,
    data_root: DataRoot = None,
    workers: Workers = 1,
    fresh: Fresh = False,
    json: Json = False,
    log: Log = "warning",
) -> None:
    """Play a run with several algorithms and the same sampled devices; print a table, write a page and pictures.

    With a grid (--grid, or `|` between values) each is compared with its best setting, chosen on validation data as by
    `edgefl sweep`. Each finished run is kept at once: the same command again goes on where it was interrupted.
    """
    from edgefl.job.config.reader import read_own
    from edgefl.lab.comparison import comparison
    from edgefl.lab.comparison.grid import OR
    from edgefl.lab.comparison.progress import watching
    from edgefl.lab.comparison.variants import variants
    from edgefl.system import logs, user_code

    if grid or OR in algorithms:
        choose_and_test(
            run,
            algorithms,
            grid,
            command="compare",
            seeds=seeds,
            levels=levels,
            baseline=baseline,
            out=out,
            set_=set_,
            data_root=data_root,
            workers=workers,
            fresh=fresh,
            json=json,
            log=log,
        )
        return
    logs.set_up(log)
    user_code.allow(algorithms)
    chosen = variants(algorithms, read_own(run), str(run), set_ or ())
    asked = read_levels(levels)
    comparison.check(chosen, baseline)
    folder = out or chosen[0].run.run.folder / f"{chosen[0].run.run.name}-compare"
    with working_in(folder):
        result = comparison.compare(
            chosen,
            seeds=seeds,
            workers=workers,
            root=data_root,
            memory=comparison.kept_in(folder, data_root, fresh=fresh),
            watching=watching,
            levels=asked,
            baseline=baseline,
        )
        typer.echo(as_json(result.as_json()) if json else result.text())
        page = result.write(folder)
    typer.echo(f"page: {page}", err=json)
    say_failures(len(result.failed), len(result.outcomes))
