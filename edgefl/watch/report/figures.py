"""What a report draws: how good the model became, what it forgot, where the time went and what was sent."""

from collections.abc import Callable, Sequence

from edgefl.learn.evaluation.figures import Figure, chief, figures, title_of
from edgefl.watch.overview.rows import RoundRow, Snapshot
from edgefl.watch.report.html import element, folded, paragraph, table
from edgefl.watch.report.svg import Curve, curves, heat, percent, plain, stacked

CLASSES = 100  # rows of a heat map
BESIDE = {"accuracy": "balanced_accuracy", "rmse": "mae"}  # figures that share a drawing


def quality(s: Snapshot) -> str:
    """How good the model was after each round, class by class, and what it forgot."""
    drawn = [part for part in (*scores(s), classes(s), forgetting(s)) if part]
    return side_by_side(*drawn) + confusion(s) if drawn else paragraph("The model was not evaluated.")


def side_by_side(*drawings: str) -> str:
    """As many in a row as there is room for."""
    return element("div", *drawings, css="figures")


def scores(s: Snapshot) -> list[str]:
    """A drawing of each figure of the model, by the coordinator and by devices on data they set aside."""
    known = next((row.opinion.scores for row in s.rounds if row.opinion), {})
    main = chief(known)
    drawn = [one for one in figures(known) if one.name not in BESIDE.values()]
    return [_curves_of(one, s.rounds, spread=one == main) for one in drawn]


def _curves_of(figure: Figure, rows: Sequence[RoundRow], *, spread: bool) -> str:
    """One figure over the rounds, with `spread` also how far devices are apart in it."""
    name, second = figure.name, BESIDE.get(figure.name)
    values: dict[str, Callable[[RoundRow], float | None]] = {figure.title: lambda row: row.scores.get(name)}
    if second:
        values[title_of(second)] = lambda row: row.scores.get(second)
    values["on devices"] = lambda row: row.evaluated.scores.get(name) if row.evaluated else None
    if spread:
        values["median device"] = lambda row: row.evaluated.median if row.evaluated else None
        values["worst tenth"] = lambda row: row.evaluated.worst_tenth if row.evaluated else None
    error = not figure.metric.higher and name != "loss"
    bounds = (percent, 0.0, 1.0) if figure.metric.share else (plain, 0.0 if error else None)
    title = f"{figure.title[0].upper()}{figure.title[1:]}"
    return curves(title, [float(row.round) for row in rows], _lines(rows, **values), *bounds)


def confusion(s: Snapshot) -> str:
    """What each class was taken for, at the last evaluation on devices."""
    last = next((row.evaluated for row in reversed(s.rounds) if row.evaluated and row.evaluated.confusion), None)
    if last is None or last.confusion is None or len(last.confusion) > 30:
        return ""
    named = s.run.evaluating.names if s.run.evaluating else None
    names = [named[i] if named and i < len(named) else str(i) for i in range(len(last.confusion))]
    rows = [(name, *counts) for name, counts in zip(names, last.confusion, strict=True)]
    return folded(f"What each class was taken for, after round {last.round}", table(["", *names], rows))


def forgetting(s: Snapshot) -> str:
    """What was known in the round before, and is not any more."""
    rows = s.rounds
    lines = _lines(
        rows,
        **{
            "of a round": lambda r: r.opinion and r.opinion.forgetting,
            "in training": lambda r: r.local_forgetting,
            "in merging": lambda r: r.aggregation_forgetting,
        },
    )
    if not any(value for line in lines for value in line.values):
        return ""
    return curves("Forgetting", [float(row.round) for row in rows], lines, percent, 0.0)


def classes(s: Snapshot) -> str:
    """Each class over the rounds: one that is forgotten is a dark gap in its row."""
    shares = {row.round: row.opinion.per_class for row in s.rounds if row.opinion and row.opinion.per_class}
    count = min(CLASSES, max((len(one) for one in shares.values()), default=0))
    if count < 2:
        return ""
    names = s.run.evaluating.names if s.run.evaluating else None
    each = [Curve(names[i] if names else str(i), [_item(one, i) for one in shares.values()]) for i in range(count)]
    return heat("Accuracy of each class", [float(round) for round in shares], each)


def times(s: Snapshot) -> str:
    """Where each round's time went."""
    rows = s.rounds
    layers = [
        Curve("waiting for devices", [row.waiting_seconds for row in rows]),
        Curve("devices at work", [row.training_seconds for row in rows]),
        Curve("merging and looking", [row.merging_seconds for row in rows]),
    ]
    return stacked("Seconds of each round", [float(row.round) for row in rows], layers, plain)


def traffic(s: Snapshot) -> str:
    """What was sent in each round."""
    rows = s.rounds
    layers = [
        Curve("up, from devices", [row.bytes_up / 1e6 for row in rows]),
        Curve("down, to devices", [row.bytes_down / 1e6 for row in rows]),
    ]
    return stacked("Megabytes of each round", [float(row.round) for row in rows], layers, plain)


def _lines(rows: Sequence[RoundRow], **values: Callable[[RoundRow], float | None]) -> list[Curve]:
    """The curves that have a value at all."""
    each = (Curve(name, [value(row) for row in rows]) for name, value in values.items())
    return [curve for curve in each if any(value is not None for value in curve.values)]


def _item(values: Sequence[float | None] | None, i: int) -> float | None:
    return values[i] if values is not None and i < len(values) else None
