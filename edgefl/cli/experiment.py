"""What `edgefl compare` and `edgefl sweep` share: options, a folder that is theirs alone, and choosing from a grid."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

Validation: TypeAlias = Literal["devices", "public"]
Levels = Annotated[str, typer.Option(help="Accuracies whose rounds are counted.")]
Baseline = Annotated[
    str | None, typer.Option(help="The entry that the others are tested against.", show_default="the first")
]
Out = Annotated[Path | None, typer.Option(help="Where page, pictures and results.json go.")]
Workers = Annotated[int, typer.Option(min=1, help="Runs that are played at the same time.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Play again what the folder already has.")]
Grid = Annotated[
    list[str] | None,
    typer.Option(
        help="key=value,value: for every algorithm that has the key, e.g. lr=0.01,0.1; repeatable.", show_default=False
    ),
]
LEVELS = "0.5,0.7,0.9"


def choose_and_test(
    run: Path,
    algorithms: str,
    grid: list[str] | None,
    *,
    command: str,
    seeds: int,
    tuning_seeds: int = 1,
    validation: float = 0.2,
    validation_from: Validation = "devices",
    levels: str,
    baseline: str | None,
    out: Path | None,
    set_: list[str] | None,
    data_root: Path | None,
    workers: int,
    fresh: bool,
    json: bool,
    log: str,
) -> None:
    """Choose a setting of each entry on validation data and test it; print tables, write page and pictures."""
    from edgefl.base.errors import ConfigError
    from edgefl.job.config.reader import read_own
    from edgefl.lab.comparison import comparison
    from edgefl.lab.comparison.grid import families
    from edgefl.lab.comparison.progress import watching
    from edgefl.lab.comparison.sweep import sweep
    from edgefl.system import logs, user_code

    logs.set_up(log)
    user_code.allow(algorithms)
    chosen = families(algorithms, grid or (), read_own(run), str(run), set_ or ())
    asked, file = read_levels(levels), chosen[0].settings[0].run
    if tuning_seeds > seeds:
        raise ConfigError(f"--tuning-seeds {tuning_seeds} is more than --seeds {seeds}; lower it, or raise that")
    folder = out or file.run.folder / f"{file.run.name}-{command}"
    with working_in(folder):
        result = sweep(
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


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Lock the folder for other writers while the block runs; an interruption says what is kept there."""
    from edgefl.base.errors import Interrupted
    from edgefl.system.locks import own

    with own(folder, private=False):  # a folder of the user's choice, perhaps with other things in it
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; finished runs are kept in {folder}, the same command goes on") from None


def say_failures(failed: int, played: int) -> None:
    """End with exit code 1 if some runs failed."""
    from edgefl.base.errors import RunError

    if failed:
        raise RunError(f"{failed} of {played} runs failed; the same command tries them again")


def read_levels(words: str) -> tuple[float, ...]:
    """The numbers in `--levels`."""
    from edgefl.base.errors import ConfigError

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
