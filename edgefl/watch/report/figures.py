"""What a report draws: how good the model became, what it forgot, where the time went and what was sent."""

from collections.abc import Callable, Sequence

from edgefl.base.events import Evaluated, Round
from edgefl.learn.evaluation.figures import Figure, figures
from edgefl.watch.overview.rows import RoundRow, Snapshot
from edgefl.watch.report.html import element, folded, paragraph, table
from edgefl.watch.report.svg import Curve, curves, heat, percent, plain, stacked

CLASSES = 100  # rows of a heat map


def quality(s: Snapshot) -> str:
    """How good the model was after each round, class by class, and what it forgot."""
    drawn = [part for part in (*scores(s), classes(s), forgetting(s)) if part]
    return side_by_side(*drawn) + confusion(s) if drawn else paragraph("Nobody looked how good the model was.")


def side_by_side(*drawings: str) -> str:
    """As many in a row as there is room for."""
    return element("div", *drawings, css="figures")


def scores(s: Snapshot) -> list[str]:
    """What there is to say of the model, by the coordinator and by devices on data they set aside."""
    rows = s.rounds
    across = [float(row.round) for row in rows]
    accuracies = _lines(
        rows,
        **{
            "accuracy": lambda r: r.accuracy,
            "balanced": lambda r: r.balanced_accuracy,
            "on devices": lambda r: r.evaluated and r.evaluated.accuracy,
            "median device": lambda r: r.evaluated and r.evaluated.median if _classifies(r) else None,
            "worst tenth": lambda r: r.evaluated and r.evaluated.worst_tenth if _classifies(r) else None,
        },
    )
    losses = _lines(rows, **{"loss": lambda r: r.loss, "on devices": lambda r: r.evaluated and r.evaluated.loss})
    errors = _lines(
        rows,
        **{
            "RMSE": lambda r: r.rmse,
            "MAE": lambda r: r.mae,
            "RMSE on devices": lambda r: r.evaluated and r.evaluated.rmse,
            "worst tenth": lambda r: r.evaluated and r.evaluated.worst_tenth if _predicts(r) else None,
        },
    )
    r2 = _lines(rows, **{"R2": lambda r: r.r2, "on devices": lambda r: r.evaluated and r.evaluated.r2})
    return [
        curves("Accuracy", across, accuracies, percent, 0.0, 1.0),
        curves("Loss", across, losses, plain),
        curves("Errors", across, errors, plain, 0.0),
        curves("R2", across, r2, plain),
        *(_of_kind(rows, across, one) for one in figures(next((r.opinion.scores for r in rows if r.opinion), None))),
    ]


def _of_kind(rows: Sequence[RoundRow], across: Sequence[float], figure: Figure) -> str:
    """One figure of another kind of task."""

    def of(told: Round | Evaluated | None) -> float | None:
        return (told.scores or {}).get(figure.name) if told else None

    lines = _lines(rows, **{figure.title: of, "on devices": lambda row: of(row.evaluated)})
    bounds = (percent, 0.0, 1.0) if figure.metric.share else (plain, 0.0)
    return curves(figure.title, across, lines, *bounds)


def _predicts(row: RoundRow) -> bool:
    return row.evaluated is not None and row.evaluated.rmse is not None


def _classifies(row: RoundRow) -> bool:
    return row.opinion is not None and row.opinion.accuracy is not None


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
