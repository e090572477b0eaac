"""Curves of one run or of several, drawn as `edgefl compare` does: the mean of the seeds, in a band of a deviation."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.base.errors import ConfigError, StoreError
from edgefl.base.events import DIVERGED
from edgefl.lab.comparison.curves import Points, bundle, fit
from edgefl.lab.comparison.plots import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edgefl.lab.api.history import History

AXES = {
    "round": "round",
    "bytes": "bytes sent, up and down",
    "seconds": "seconds",
    "virtual_seconds": "virtual seconds",
    "cpu": "CPU seconds of the simulation",
}


def curves(runs: "Mapping[str, Sequence[History]]", *, what: str | None = None, over: str = "round") -> "Figure":
    """The same curve of every run, by label."""
    measures = [run.measure for of in runs.values() for run in of if run.rounds]
    shown = what or next(iter(measures), "loss")
    lines = {label: [_line(run, shown, over) for run in _ended(of)] for label, of in runs.items()}
    figure = _empty()
    from matplotlib import rc_context  # noqa: PLC0415 - only a figure needs it

    with rc_context(STYLE):
        axes = figure.subplots()
        bundle(axes, lines)
        axes.set(xlabel=AXES[over], ylabel=shown.replace("_", " "))
        fit(axes, logarithmic=False)
        if len(runs) > 1:
            figure.legend(loc="outside right upper")  # beside the curves, never on them
    return figure


def _ended(runs: "Sequence[History]") -> "Sequence[History]":
    """The runs that did not diverge, if any did not: a shorter curve would end the mean of all."""
    return [run for run in runs if not (run.done and run.done.stopped == DIVERGED)] or runs


def _empty() -> "Figure":
    """Return a figure that a notebook shows, even where matplotlib was not set up."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - only a figure needs it
    except ModuleNotFoundError:
        raise ConfigError("figures need matplotlib: pip install 'edgefl[coordinator]'") from None

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            picture = BytesIO()
            self.savefig(picture, format="png", dpi=100)
            return picture.getvalue()

    return ShownFigure(figsize=(6.4, 4.0), layout="constrained")


def written(figure: "Figure", file: str | Path | None) -> "Figure":
    """The figure, in this file too if there is one."""
    if file is not None:
        try:
            figure.savefig(file, dpi=150)
        except OSError as error:
            raise StoreError(f"{file}: cannot be written ({error.strerror}); choose another place") from None
    return figure


def _line(run: "History", what: str, over: str) -> Points:
    """Where the curve goes: through the rounds that were looked at."""
    points = [(x, float(y)) for x, y in zip(run.over(over), run.curve(what), strict=True) if y is not None]
    return [x for x, _ in points], [y for _, y in points]
