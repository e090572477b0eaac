"""`edgefl compare`: several algorithms on one run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from edgefl.cli.options import DataRoot, Json, Log, RunPath, Sets

Algorithms = Annotated[
    str,
    typer.Option(
        help="Comma-separated, e.g. fedavg,gc=fedgc:sgc=false,ft=fedavg+finetune (docs/experiments.md).",
        show_default=False,
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Play each with so many seeds, from run.seed on.")]
Levels = Annotated[str, typer.Option(help="Accuracies whose rounds are counted.")]
Baseline = Annotated[
    str | None, typer.Option(help="The entry that the others are tested against.", show_default="the first")
]
Out = Annotated[Path | None, typer.Option(help="Where page, pictures and results.json go.")]
Workers = Annotated[int, typer.Option(min=1, help="Runs that are played at the same time.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Play again what the folder already has.")]
LEVELS = "0.5,0.7,0.9"


def compare(  # noqa: PLR0917 - the options of the command
    run: RunPath,
    algorithms: Algorithms,
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

    Each finished run is kept at once: the same command again goes on where it was interrupted.
    """
    from edgefl.comparison import comparison
    from edgefl.comparison.progress import watching
    from edgefl.comparison.variants import variants
    from edgefl.config.reader import read_toml
    from edgefl.system import logs, user_files

    logs.set_up(log)
    user_files.remember(run)
    chosen = variants(algorithms, read_toml(run), str(run), set_ or ())
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


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Nobody else writes into the folder meanwhile; an interruption says what is kept there."""
    from edgefl.errors import Interrupted
    from edgefl.system.locks import own

    with own(folder, private=False):  # a folder of the user's choice, perhaps with other things in it
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; finished runs are kept in {folder}, the same command goes on") from None


def say_failures(failed: int, played: int) -> None:
    """End with exit code 1 if some runs failed."""
    from edgefl.errors import RunError

    if failed:
        raise RunError(f"{failed} of {played} runs failed; the same command tries them again")


def read_levels(words: str) -> tuple[float, ...]:
    """The numbers in `--levels`."""
    from edgefl.errors import ConfigError

    try:
        levels = tuple(float(word) for word in words.split(",") if word.strip())
    except ValueError:
        raise ConfigError(f"--levels {words}: give numbers between 0 and 1, e.g. 0.5,0.7") from None
    if not all(0 < level <= 1 for level in levels):
        raise ConfigError(f"--levels {words}: give numbers between 0 and 1, e.g. 0.5,0.7")
    return levels


def as_json(value: dict[str, Any]) -> str:
    """As one line."""
    import json

    return json.dumps(value)
