"""The pictures of a comparison: curves over rounds, bytes, virtual and CPU time, forgetting, classes over rounds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.lab.comparison.curves import bundle, by_label, curves, fit
from edgefl.lab.comparison.outcomes import PlayedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def draw(runs: Sequence[PlayedRun], folder: Path, title: str) -> dict[str, Path]:
    """Write all pictures into the folder; gives back their files by caption."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - only the coordinator's extra brings it
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ConfigError("pictures need matplotlib: pip install 'edgefl[coordinator]'") from None
    files: dict[str, Path] = {}

    def save(caption: str, name: str, figure: "Figure") -> None:
        files[caption] = folder / name
        figure.savefig(folder / name)

    with mpl.rc_context(STYLE):
        positive = runs[0].lower and min((min(run.judged, default=1.0) for run in runs), default=1.0) > 0
        for curve in curves(runs):
            figure = Figure(figsize=(7.2, 4.2), layout="constrained")
            axes = figure.subplots()
            bundle(axes, by_label(runs, curve.points))
            if not axes.get_legend_handles_labels()[1]:  # after one round nothing can have been forgotten
                continue
            caption = f"{curve.caption[0].lower()}{curve.caption[1:]}"
            axes.set(title=f"{title}: {caption}", xlabel=curve.xlabel, ylabel=curve.ylabel)
            fit(axes, logarithmic=positive)
            _legend(figure)
            save(curve.caption, curve.file, figure)
        looked_at = [run for run in runs if run.numbers]
        if looked_at and runs[0].has_classes:
            save("Accuracy of each class over rounds", "classes.png", _classes(looked_at, title))
    return files


def _classes(runs: Sequence[PlayedRun], title: str) -> "Figure":
    """As in Flashback's figure 1b: a class that is forgotten is a dark gap in its row. Of the first seed."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    firsts = [next(run for run in runs if run.label == label) for label in _labels(runs)]
    tables = [_per_class(run) for run in firsts]
    height = min(2.2, max(1.3, 0.4 + 0.13 * len(tables[0])))
    figure = Figure(figsize=(7.2, 0.8 + height * len(firsts)), layout="constrained")
    figure.suptitle(f"{title}: accuracy of each class, seed {firsts[0].seed}", x=0.01, ha="left", fontsize=11)
    for axes, run, table in zip(figure.subplots(len(firsts), squeeze=False)[:, 0], firsts, tables, strict=True):
        half = run.numbers[0] / 2 if len(run.numbers) == 1 else (run.numbers[1] - run.numbers[0]) / 2
        extent = (run.numbers[0] - half, run.numbers[-1] + half, len(table) - 0.5, -0.5)
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


def _per_class(run: PlayedRun) -> Array:
    """(classes, judged rounds); a class without test samples is not drawn."""
    reports = run.paid
    rows = [[np.nan if v is None else v for v in reports[i - 1].per_class or ()] for i in run.numbers]
    return np.array(rows, np.float64).T


def _legend(figure: "Figure") -> None:
    """Beside the curves, never on them."""
    figure.legend(loc="outside right upper")


def _labels(runs: Sequence[PlayedRun]) -> list[str]:
    return list(dict.fromkeys(run.label for run in runs))
