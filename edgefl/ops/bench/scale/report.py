"""The curve of `edgefl bench scale` as a page: every point, the constants, how linear it is, and a figure."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from edgefl.base.errors import ConfigError
from edgefl.lab.planning.costs import QUANTITIES, TERMS, Costs, MeasuredRound
from edgefl.ops.bench.report import heading

NAMES = {
    "wall": "wall",
    "coordinator_cpu": "coordinator CPU",
    "broker_cpu": "broker CPU",
    "devices_cpu": "devices CPU",
    "coordinator_mb": "coordinator memory",
    "broker_mb": "broker memory",
    "broker_in": "into the broker",
    "broker_out": "out of the broker",
}
HEAD = (
    *("devices", "cohort", "parameters", "wall s", "coordinator CPU s", "broker CPU s", "device CPU ms"),
    *("coordinator MB", "broker MB", "bytes per answer", "asked again", "lost"),
)


def cells(points: Sequence[MeasuredRound]) -> Iterator[tuple[str, ...]]:
    """A line for each point; CPU of a device and bytes are those of one answer."""
    yield HEAD
    for point in points:
        numbers = (point.wall, point.coordinator_cpu, point.broker_cpu, 1000 * point.devices_cpu / point.cohort)
        total = 1e6 * (point.broker_in + point.broker_out) / point.cohort
        yield (
            *(f"{count:,}" for count in (point.devices, point.cohort, point.params)),
            *map(number, (*numbers, point.coordinator_mb, point.broker_mb)),
            f"{total:,.0f}",
            str(point.asked_again),
            str(point.lost),
        )


def constants(costs: Costs) -> Iterator[tuple[str, ...]]:
    """A line for each quantity: its constants, and how far points are from them."""
    yield "of a round", *(f"per {term}" for term in TERMS), "measured : fitted"
    for name, unit in QUANTITIES.items():
        ratios = costs.departures(name)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        values = (_small(constant, unit) for constant in costs.constants[name])
        yield NAMES[name], *values, spread


def markdown(costs: Costs, dropped: int | None, figure: str) -> str:
    """The whole page; `dropped` is what the broker said of messages it could not keep."""
    about = dict(costs.machine)
    return PAGE.format(
        date=about["date"],
        machine=f"{about['processor']}, {heading(about)}",
        versions=", ".join(f"{name} {version}" for name, version in about["versions"].items()),
        file_system=about["file_system"],
        points=_table(list(cells(costs.points))),
        constants=_table(list(constants(costs))),
        figure=figure,
        linear=linear(costs),
        lost=complete(costs.points, dropped),
    )


def linear(costs: Costs) -> str:
    """How well straight lines fit, in words, and where they fit worst."""
    off = [
        (max(ratio, 1 / ratio), NAMES[name], point)
        for name in QUANTITIES
        for ratio, point in zip(costs.departures(name), costs.points, strict=True)
    ]
    most, what, point = max(off, key=lambda one: one[0])
    usual = 100 * (median(one[0] for one in off) - 1)
    return (
        f"Half of all figures are within {usual:.0f} % of these lines; the farthest, {what} at {point.devices:,}"
        f" devices, a cohort of {point.cohort:,} and {point.params:,} parameters, is off by a factor of {most:.2f}."
        + _growth(costs)
    )


def _growth(costs: Costs) -> str:
    """What becomes of an answer's bytes where all devices are asked and only the fleet grows; 1 is linear."""
    small = min(point.params for point in costs.points)
    fleets = [p for p in costs.points if p.params == small and p.cohort == p.devices]
    if len(fleets) < 2:
        return ""
    first, *_, last = sorted(fleets, key=lambda point: point.devices)
    before, after = ((p.broker_in + p.broker_out) / p.cohort for p in (first, last))
    times = after / before
    return f" At {last.devices:,} devices an answer has {times:.2f} times the bytes that it has at {first.devices:,}."


def complete(points: Sequence[MeasuredRound], dropped: int | None) -> str:
    """What was lost, in words; every answer was merged, or there would be no points."""
    again, lost = sum(point.asked_again for point in points), sum(point.lost for point in points)
    broker = "did not report how many messages it dropped" if dropped is None else f"dropped {dropped} messages"
    return (
        "Every answer of every round was merged: each device adds one to every parameter, and the model is checked in"
        f" the end. Devices were lost {lost} times, and {again} more were asked than the rounds' cohorts have: the same"
        f" ones again, or others in their place. The brokers {broker}."
    )


PAGE = """\
# How the cost of a round grows

`edgefl bench scale` wrote this page on {date}: {machine}.
Versions: {versions}. The journal was on {file_system}.

The real coordinator, a real Mosquitto and real agents (session, signatures, spool, a connection each), 200 in a
process, with their disks in memory. They answer at once: what is measured is everything but training. All of them share
this machine, so wall times are those of a fleet without computers of its own; CPU times, memory and bytes are not.

{points}

Medians (wall) and means of the rounds of a point; memory is the most that a process ever had, bytes are those that the
broker received and sent for one answer, the model's way down included.

![The cost of a round over the MB of its answers]({figure})

## Constants

A round costs the sum of these terms. They were fitted to the points above, each by its own measure, and none may be
negative; `edgefl plan` predicts with them.

{constants}

{linear}

## Nothing lost

{lost}
"""


def draw(costs: Costs, path: Path) -> None:
    """Four curves over the size of a round, measured and fitted, as SVG."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - only the coordinator's extra brings it
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise ConfigError("the figure needs matplotlib: pip install 'edgefl[coordinator]'") from None
    panels = {"wall": "s", "coordinator_cpu": "CPU s", "coordinator_mb": "MB of memory", "broker_out": "MB sent"}
    points = sorted(costs.points, key=lambda point: point.size.terms[-1])
    with mpl.rc_context({"svg.hashsalt": "edgefl", "font.size": 8}):
        figure = Figure(figsize=(8, 5), layout="constrained")
        for axes, (name, unit) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
            across = [point.size.terms[-1] for point in points]
            axes.loglog(across, [getattr(point, name) for point in points], "o", label="measured")
            axes.loglog(across, [costs.of(name, point.size) for point in points], "x", label="fitted")
            axes.set(title=NAMES[name], ylabel=unit, xlabel="MB of all answers of a round")
            axes.grid(visible=True, alpha=0.3)
            axes.legend()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def total(dropped: Sequence[int | None]) -> int | None:
    """Of all brokers; None, if one did not tell."""
    told = [count for count in dropped if count is not None]
    return sum(told) if len(told) == len(dropped) else None


def number(value: float) -> str:
    """Three figures, and never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _small(value: float, unit: str) -> str:
    if not value:
        return "-"
    return f"{1000 * value:.3g} m{unit}" if unit == "s" else f"{value:.3g} {unit}"


def _table(lines: list[tuple[str, ...]]) -> str:
    head, *rows = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|" + "---:|" * len(lines[0]), *rows])
