"""`edgefl sweep`: the best setting of each algorithm, chosen on validation data and tested once."""

from typing import Annotated

import typer

from edgefl.cli.experiment import (
    LEVELS,
    Baseline,
    Fresh,
    Grid,
    Levels,
    Out,
    Validation,
    Workers,
    choose_and_test,
)
from edgefl.cli.options import DataRoot, Json, Log, RunPath, Sets


def sweep(  # noqa: PLR0917 - the options of the command
    run: RunPath,
    algorithms: Annotated[
        str,
        typer.Option(
            help="As for compare, with `|` between values to choose from: 'fedavg,fedprox:mu=0.01|0.1'.",
            show_default=False,
        ),
    ],
    grid: Grid = None,
    seeds: Annotated[int, typer.Option(min=1, help="Test what was chosen with this many seeds, from run.seed on.")] = 3,
    tuning_seeds: Annotated[int, typer.Option(min=1, help="Choose by this number of them.")] = 1,
    validation: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="Share of the training data to choose by.")
    ] = 0.2,
    validation_from: Annotated[
        Validation, typer.Option(help="Whose: each device's, or the coordinator's public data.")
    ] = "devices",
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
    """Choose the best setting of each algorithm on validation data, then test that one: page, tables and pictures.

    The validation part is cut from training data: no setting is chosen by the test data. Finished runs are kept.
    """
    choose_and_test(
        run,
        algorithms,
        grid,
        command="sweep",
        seeds=seeds,
        tuning_seeds=tuning_seeds,
        validation=validation,
        validation_from=validation_from,
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
