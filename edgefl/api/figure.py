"""Curves of one run or of several, drawn as papers do: one colour for each, thin seeds, a bold median."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgefl.comparison.curves import colours_of
from edgefl.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edgefl.api.history import History

AXES = {
    "round": "round",
    "bytes": "bytes sent, up and down",
    "seconds": "seconds",
    "virtual_seconds": "virtual seconds",
}


def curves(runs: "Mapping[str, Sequence[History]]", *, what: str | None = None, over: str = "round") -> "Figure":
    """The same curve of every run, by label."""
    shown = what or next(run.measure for of in runs.values() for run in of)
    figure = _empty()
    axes = figure.subplots()
    for label, colour in colours_of(list(runs)).items():
        lines = [_line(run, shown, over) for run in runs[label]]
        if len(lines) > 1:
            for x, y in lines:
                axes.plot(x, y, color=colour, linewidth=0.7, alpha=0.35)
        shortest = min(len(x) for x, _ in lines)
        across, up = (np.median([line[i][:shortest] for line in lines], axis=0) for i in (0, 1))
        axes.plot(across, up, color=colour, linewidth=2, marker="o" if shortest == 1 else "", label=label)
    axes.set(xlabel=AXES[over], ylabel=shown.replace("_", " "))
    axes.grid(visible=True, alpha=0.3)
    if over == "round":
        axes.locator_params(axis="x", integer=True)  # there is no round 2.5
    if len(runs) > 1:
        axes.legend()
    return figure


def _empty() -> "Figure":
    """A figure that a notebook shows, whether or not somebody has set up matplotlib there."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - only a figure needs it
    except ModuleNotFoundError:
        raise ConfigError("figures need matplotlib: pip install 'edgefl[coordinator]'") from None

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            picture = BytesIO()
            self.savefig(picture, format="png", dpi=100)
            return picture.getvalue()

    return Shown(figsize=(6.4, 4.0), layout="constrained")


def written(figure: "Figure", file: str | Path | None) -> "Figure":
    """The figure, in this file too if there is one."""
    if file is not None:
        try:
            figure.savefig(file, dpi=150)
        except OSError as error:
            raise StoreError(f"{file}: cannot be written ({error.strerror}); choose another place") from None
    return figure


def _line(run: "History", what: str, over: str) -> tuple[list[float], list[float]]:
    """Where the curve goes: through the rounds that were looked at."""
    points = [(x, float(y)) for x, y in zip(run.over(over), run.curve(what), strict=True) if y is not None]
    return [x for x, _ in points], [y for _, y in points]
