"""`edgefl compare`: several algorithms on one run."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.cli.options import DataRoot, Json, Log, RunPath, Sets

if TYPE_CHECKING:
    from edgefl.comparison.preparing import Preparation
    from edgefl.config.schema import RunFile
    from edgefl.events import Tell


def compare(  # noqa: PLR0917 - the options of the command
    run: RunPath,
    algorithms: Annotated[
        str,
        typer.Option(
            help="Comma-separated, e.g. fedavg,gc=fedgc:sgc=false,ft=fedavg+finetune (docs/simulation.md).",
            show_default=False,
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Play each with so many seeds, from run.seed on.")] = 1,
    levels: Annotated[str, typer.Option(help="Accuracies whose rounds are counted.")] = "0.5,0.7,0.9",
    out: Annotated[Path | None, typer.Option(help="Where page, pictures and results.json go.")] = None,
    set_: Sets = None,
    data_root: DataRoot = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs that are played at the same time.")] = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Play again what the folder already has.")] = False,
    json: Json = False,
    log: Log = "warning",
) -> None:
    """Play a run with several algorithms and the same sampled devices; print a table, write a page and pictures.

    Each finished run is kept at once: the same command again goes on where it was interrupted.
    """
    from edgefl.comparison.cache import ResultCache
    from edgefl.comparison.outcomes import Failed
    from edgefl.comparison.progress import watching
    from edgefl.comparison.report import write
    from edgefl.comparison.running import play_all
    from edgefl.comparison.table import as_json, scores, text
    from edgefl.comparison.variants import variants
    from edgefl.config.reader import read_toml
    from edgefl.errors import ConfigError, Interrupted, RunError
    from edgefl.system import logs, user_files
    from edgefl.system.locks import own

    logs.set_up(log)
    user_files.remember(run)
    chosen = variants(algorithms, read_toml(run), str(run), set_ or ())
    asked = _levels(levels)
    if chosen[0].run.task.partition is None:
        raise ConfigError(f"{run}: a comparison divides one data set among devices: give task.partition")
    folder = out or chosen[0].run.run.folder / f"{chosen[0].run.run.name}-compare"
    with own(folder, private=False):  # a folder of the user's choice, perhaps with other things in it
        kept = ResultCache(folder, data_root, fresh=fresh)
        try:
            with watching({variant.label: variant.run.run.rounds for variant in chosen}, seeds) as watcher:
                ends = play_all(
                    chosen, seeds, data_root, _play, workers=workers, watcher=watcher, memory=kept, attempt=_try
                )
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; finished runs are kept in {folder}, the same command goes on") from None
        typer.echo(_json(as_json(ends, asked)) if json else text(scores(ends, asked), asked))
        page = write(folder, chosen, ends, asked)
    typer.echo(f"page: {page}", err=json)
    if failed := sum(isinstance(end, Failed) for end in ends):
        raise RunError(f"{failed} of {len(ends)} runs failed; the same command tries them again")


def _play(run: "RunFile", root: Path | None, tell: "Tell") -> None:
    from edgefl.simulation.drivers import play

    play(run, root, tell, prepare=_preparation())


def _try(run: "RunFile", root: Path | None, tell: "Tell") -> None:
    from edgefl.comparison.preparing import briefly
    from edgefl.events import Done

    briefly(*_preparation()(run, root))
    tell(Done(run.run.name, "", 0))


@cache
def _preparation() -> "Preparation":
    """One for this process: what it made for a run serves the next."""
    from edgefl.comparison.preparing import Preparation

    return Preparation()


def _levels(words: str) -> tuple[float, ...]:
    from edgefl.errors import ConfigError

    try:
        levels = tuple(float(word) for word in words.split(",") if word.strip())
    except ValueError:
        raise ConfigError(f"--levels {words}: give numbers between 0 and 1, e.g. 0.5,0.7") from None
    if not all(0 < level <= 1 for level in levels):
        raise ConfigError(f"--levels {words}: give numbers between 0 and 1, e.g. 0.5,0.7")
    return levels


def _json(value: dict[str, Any]) -> str:
    import json

    return json.dumps(value)
