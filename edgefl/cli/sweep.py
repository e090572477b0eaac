"""`edgefl sweep`: the best setting of each algorithm, chosen on validation data and tested once."""

from typing import Annotated, Literal

import typer

from edgefl.cli.compare import (
    LEVELS,
    Baseline,
    Fresh,
    Levels,
    Out,
    Workers,
    as_json,
    read_levels,
    say_failures,
    working_in,
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
    grid: Annotated[
        list[str] | None,
        typer.Option(help="key=value,value: for every algorithm that has the key, e.g. lr=0.01,0.1; repeatable."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Test what was chosen with so many, from run.seed on.")] = 3,
    tuning_seeds: Annotated[int, typer.Option(min=1, help="Choose by so many of them.")] = 1,
    validation: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="Share of the training data to choose by.")
    ] = 0.2,
    validation_from: Annotated[
        Literal["devices", "public"], typer.Option(help="Whose: each device's, or the coordinator's public data.")
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
    from edgefl.comparison import comparison
    from edgefl.comparison.grid import families
    from edgefl.comparison.progress import watching
    from edgefl.comparison.sweep import sweep as choose_and_test
    from edgefl.config.reader import read_toml
    from edgefl.errors import ConfigError
    from edgefl.system import logs, user_files

    logs.set_up(log)
    user_files.remember(run)
    chosen = families(algorithms, grid or (), read_toml(run), str(run), set_ or ())
    asked, file = read_levels(levels), chosen[0].settings[0].run
    if tuning_seeds > seeds:
        raise ConfigError(f"--tuning-seeds {tuning_seeds} is more than --seeds {seeds}; lower it, or raise that")
    folder = out or file.run.folder / f"{file.run.name}-sweep"
    with working_in(folder):
        result = choose_and_test(
            chosen,
            seeds=seeds,
            tuning_seeds=tuning_seeds,
            validation=validation,
            validation_from=validation_from,
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
    say_failures(len(result.tested.failed), len(result.tested.outcomes))
