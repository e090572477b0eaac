"""Curves with bands: of each variant the mean over its seeds, and how far these lie apart.

All axes begin where the run begins, at round 0 with the model it began with, and fit what is drawn. Curves that
coincide stay visible: earlier ones are wider, and each has marks of its own at places of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from edgefl.lab.comparison.outcomes import PlayedRun, ended
from edgefl.learn.evaluation.figures import title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart by colour-blind readers too; marks and dashes tell further curves apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
WIDEST, NARROWEST = 4.6, 1.5
MARKED = 8  # marks on a curve
ROUND = "round"

Points: TypeAlias = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, slots=True)
class CurvePlot:
    """One picture: what it is called, its file, its axes, and the points of a run."""

    caption: str
    file: str
    xlabel: str
    ylabel: str
    points: Callable[[PlayedRun], Points]


def curves(runs: Sequence[PlayedRun]) -> list[CurvePlot]:
    """All pictures that these runs have the numbers for."""
    title = title_of(runs[0].measure)
    word, axis, file = f"{title[0].upper()}{title[1:]}", f"{runs[0].split} {title}", f"{runs[0].measure}.png"
    pictures = [
        CurvePlot(f"{word} over rounds", file, ROUND, axis, lambda run: _from_zero(run, run.numbers)),
        CurvePlot(
            f"{word} over traffic", "bytes.png", "MB sent, up and down", axis, _over(1e6, "bytes_up", "bytes_down")
        ),
    ]
    if _all_have(runs, "virtual_seconds"):
        over_time = _over(60, "virtual_seconds")
        pictures.append(CurvePlot(f"{word} over virtual time", "time.png", "virtual minutes", axis, over_time))
    if _all_have(runs, "cpu_seconds"):
        over_work = _over(1, "cpu_seconds")
        pictures.append(CurvePlot(f"{word} over CPU time", "cpu.png", "CPU seconds of the simulation", axis, over_work))
    if runs[0].has_classes:
        caption = "Forgetting, mean of the rounds so far"
        pictures.append(CurvePlot(caption, "forgetting.png", ROUND, "round forgetting", _forgotten))
    return pictures


def colours_of(labels: Sequence[str]) -> dict[str, str]:
    """Each label's colour, in the order in which they first appear."""
    return {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(dict.fromkeys(labels))}


def by_label(runs: Sequence[PlayedRun], points: Callable[[PlayedRun], Points]) -> dict[str, list[Points]]:
    """The points of every run, those of one variant together; of its seeds those that did not diverge, if any did not.

    A curve that ends before the others would end the mean of its variant.
    """
    variants: dict[str, list[PlayedRun]] = {}
    for run in runs:
        variants.setdefault(run.label, []).append(run)
    return {label: [points(run) for run in ended(each)] for label, each in variants.items()}


def bundle(axes: "Axes", variants: Mapping[str, Sequence[Points]]) -> None:
    """Each variant in its colour: the mean of its seeds, in a band of one standard deviation."""
    colours = colours_of(list(variants))
    for i, (label, colour) in enumerate(colours.items()):
        lines = variants[label]
        shortest = min(len(y) for _, y in lines)
        if not shortest:
            continue
        xs, ys = (np.array([line[way][:shortest] for line in lines], np.float64) for way in (0, 1))
        x, y = xs.mean(axis=0), ys.mean(axis=0)
        look: dict[str, Any] = {"color": colour, "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}
        above = (len(colours) - 1 - i) / max(1, len(colours) - 1)  # the share of curves that are drawn over this one
        look |= {"linewidth": NARROWEST + (WIDEST - NARROWEST) * above, "label": label}
        step = max(len(colours), shortest // MARKED)  # so that no mark hides another's
        first = (i * step // len(colours)) % shortest
        axes.plot(
            x, y, marker=MARKS[i % len(MARKS)], markevery=(first, step), markersize=7, markeredgecolor="white", **look
        )
        if len(lines) > 1:
            deviation = ys.std(axis=0, ddof=1)
            axes.fill_between(x, y - deviation, y + deviation, color=colour, alpha=0.15, linewidth=0)


def fit(axes: "Axes", *, logarithmic: bool) -> None:
    """Axes that show what is there; a loss falls by powers of ten."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - only the coordinator's extra brings it

    axes.margins(x=0.01, y=0.05)
    axes.set_xlim(left=0)
    if axes.get_xlabel() == ROUND:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if logarithmic:
        axes.set_yscale("log")


def _from_zero(run: PlayedRun, x: Sequence[float]) -> Points:
    """The run's scores over these, from the model it began with on, where that was judged."""
    first = run.first.scores.get(run.measure) if run.first else None
    return (x, run.judged) if first is None else ([0, *x], [first, *run.judged])


def _over(unit: float, *keys: str) -> Callable[[PlayedRun], Points]:
    """Scores over a running total."""
    return lambda run: _from_zero(run, [total / unit for total in run.summed(*keys)])


def _forgotten(run: PlayedRun) -> Points:
    forgotten = run.forgetting
    return run.numbers[1 : len(forgotten) + 1], (np.cumsum(forgotten) / np.arange(1, len(forgotten) + 1)).tolist()


def _all_have(runs: Sequence[PlayedRun], key: str) -> bool:
    return all(getattr(report, key) is not None for run in runs for report in run.rounds)
