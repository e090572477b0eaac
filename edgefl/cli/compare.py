"""`edgefl compare`: several algorithms on one run."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.cli.options import DataRoot, Json, Log, RunPath, Sets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgefl.config import RunFile


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
    json: Json = False,
    log: Log = "warning",
) -> None:
    """Play a run with several algorithms and the same sampled devices; print a table, write a page and pictures."""
    from edgefl import logs
    from edgefl.compare.report import write
    from edgefl.compare.running import play_all
    from edgefl.compare.table import as_json, scores, text
    from edgefl.compare.variants import variants
    from edgefl.config_reader import read_toml
    from edgefl.errors import ConfigError

    logs.set_up(log)
    wanted = variants(algorithms, read_toml(run), str(run), set_ or ())
    asked = _levels(levels)
    if wanted[0].run.task.partition is None:
        raise ConfigError(f"{run}: a comparison divides one data set among devices: give task.partition")
    folder = out or wanted[0].run.run.folder / f"{wanted[0].run.run.name}-compare"
    with _bars({variant.label: seeds * variant.run.run.rounds for variant in wanted}) as advance:
        played = play_all(wanted, seeds, data_root, _play, workers=workers, progress=advance)
    typer.echo(_json(as_json(played, asked)) if json else text(scores(played, asked), asked))
    page = write(folder, wanted, played, asked)
    typer.echo(f"page: {page}", err=json)


def _play(run: "RunFile", root: Path | None, tell: "Callable[[dict[str, Any]], None]") -> None:
    from edgefl.cli.simulate import play

    play(run, root, tell)


@contextmanager
def _bars(rounds: dict[str, int]) -> "Iterator[Callable[[str, int], None]]":
    """One progress bar per variant, on stderr; gives back how to advance them."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks = {label: progress.add_task(label, total=total) for label, total in rounds.items()}
        yield lambda label, _seed: progress.advance(tasks[label])


def _levels(words: str) -> tuple[float, ...]:
    from edgefl.errors import ConfigError

    try:
        found = tuple(float(word) for word in words.split(",") if word.strip())
    except ValueError:
        raise ConfigError(f"--levels {words}: give numbers between 0 and 1, e.g. 0.5,0.7") from None
    if not all(0 < level <= 1 for level in found):
        raise ConfigError(f"--levels {words}: give numbers between 0 and 1, e.g. 0.5,0.7")
    return found


def _json(value: dict[str, Any]) -> str:
    import json

    return json.dumps(value)
