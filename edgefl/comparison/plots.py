"""The pictures of a comparison: curves over rounds, bytes and virtual time, forgetting, classes over rounds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from edgefl.comparison.outcomes import Played
from edgefl.errors import ConfigError
from edgefl.vector import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers too; dashes tell further curves apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
STYLE: dict[Any, Any] = {  # Any: the type that matplotlib wants is the list of all its settings
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 130,
}

NAMED = 12  # classes whose names fit beside a picture

Coordinates: TypeAlias = Callable[[Played], tuple[Sequence[float], Sequence[float]]]


def draw(runs: Sequence[Played], folder: Path, title: str) -> dict[str, Path]:
    """Write all pictures into the folder; gives back their files by caption."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - only the coordinator's extra brings it
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ConfigError("pictures need matplotlib: pip install 'edgefl[coordinator]'") from None
    files: dict[str, Path] = {}
    real = runs[0].regression

    def save(caption: str, name: str, figure: "Figure") -> None:
        files[caption] = folder / name
        figure.savefig(folder / name)

    with mpl.rc_context(STYLE):
        for caption, name, xlabel, ylabel, coordinates in _curves(runs):
            figure = Figure(figsize=(7.2, 4.2), layout="constrained")
            _bundle(figure.subplots(), runs, coordinates)
            axes = figure.axes[0]
            axes.set(title=f"{title}: {caption[0].lower()}{caption[1:]}", xlabel=xlabel, ylabel=ylabel)
            axes.set_xlim(left=0)
            if not real:
                axes.set_ylim(0, 1 if ylabel == "test accuracy" else None)
            elif min(min(run.judged) for run in runs) > 0:
                axes.set_yscale("log")  # a loss falls by powers of ten
            _legend(figure)
            save(caption, name, figure)
        if not real:
            save("Accuracy of each class over rounds", "classes.png", _classes(runs, title))
    return files


def colours_of(labels: Sequence[str]) -> dict[str, str]:
    """Each label's colour, in the order in which they first appear."""
    return {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(dict.fromkeys(labels))}


def _curves(runs: Sequence[Played]) -> list[tuple[str, str, str, str, Coordinates]]:
    """Caption, file, labels of the axes, and what is drawn."""
    word, axis = ("Loss", "test loss") if runs[0].regression else ("Accuracy", "test accuracy")
    curves: list[tuple[str, str, str, str, Coordinates]] = [
        (f"{word} over rounds", f"{word.lower()}.png", "round", axis, lambda r: (r.numbers, r.judged)),
        (
            f"{word} over traffic",
            "bytes.png",
            "MB sent, up and down",
            axis,
            lambda r: ([b / 1e6 for b in r.summed("bytes_up", "bytes_down")], r.judged),
        ),
    ]
    if not runs[0].regression:
        forgot: Coordinates = lambda r: (r.numbers[1:], _running_mean(r.forgetting))  # noqa: E731
        curves.append(("Forgetting, mean of the rounds so far", "forgetting.png", "round", "round forgetting", forgot))
    if all(report.virtual_seconds is not None for run in runs for report in run.rounds):
        time: Coordinates = lambda r: ([s / 60 for s in r.summed("virtual_seconds")], r.judged)  # noqa: E731
        curves.append((f"{word} over virtual time", "time.png", "virtual minutes", axis, time))
    return curves


def _bundle(axes: "Axes", runs: Sequence[Played], coordinates: Coordinates) -> None:
    """Each variant in its colour: every seed thin, the median of the seeds bold."""
    for i, (label, colour) in enumerate(colours_of([run.label for run in runs]).items()):
        line: dict[str, Any] = {"color": colour, "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}
        curves = [coordinates(run) for run in runs if run.label == label]
        if len(curves) > 1:
            for x, y in curves:
                axes.plot(x, y, **line, linewidth=0.7, alpha=0.35)
        shortest = min(len(y) for _, y in curves)
        across, up = (np.median([curve[i][:shortest] for curve in curves], axis=0) for i in (0, 1))
        axes.plot(across, up, **line, linewidth=2, label=label)


def _classes(runs: Sequence[Played], title: str) -> "Figure":
    """As in Flashback's figure 1b: a class that is forgotten is a dark gap in its row. Of the first seed."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    firsts = [next(run for run in runs if run.label == label) for label in _labels(runs)]
    tables = [_per_class(run) for run in firsts]
    height = min(2.2, max(1.3, 0.4 + 0.13 * len(tables[0])))
    figure = Figure(figsize=(7.2, 0.8 + height * len(firsts)), layout="constrained")
    figure.suptitle(f"{title}: accuracy of each class, seed {firsts[0].seed}", x=0.01, ha="left", fontsize=11)
    for axes, run, table in zip(figure.subplots(len(firsts), squeeze=False)[:, 0], firsts, tables, strict=True):
        extent = (0.5, table.shape[1] + 0.5, len(table) - 0.5, -0.5)
        image = axes.imshow(
            table, vmin=0, vmax=1, cmap="cividis", aspect="auto", interpolation="nearest", extent=extent
        )
        axes.grid(visible=False)
        axes.set(title=run.label, ylabel="class")
        if (names := run.done.class_names) and len(names) <= NAMED:
            axes.set_yticks(range(len(names)), names)
        else:
            axes.yaxis.get_major_locator().set_params(integer=True)
    figure.axes[-1].set_xlabel("round")
    figure.colorbar(image, ax=figure.axes, label="test accuracy", shrink=min(1.0, 2 / len(firsts)))
    return figure


def _per_class(run: Played) -> Array:
    """(classes, rounds); a class without test samples is not drawn."""
    rows = [[np.nan if v is None else v for v in report.per_class or ()] for report in run.paid]
    return np.array(rows, np.float64).T


def _legend(figure: "Figure") -> None:
    """Beside the curves, never on them."""
    figure.legend(loc="outside right upper")


def _running_mean(values: Sequence[float]) -> list[float]:
    means: list[float] = (np.cumsum(values) / np.arange(1, len(values) + 1)).tolist()
    return means


def _labels(runs: Sequence[Played]) -> list[str]:
    return list(dict.fromkeys(run.label for run in runs))
