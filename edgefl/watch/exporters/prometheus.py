"""Prometheus: where a run stands, in its text format, at each scrape. Nothing is counted for it in between.

Names and units are by its conventions: base units (seconds, bytes, ratios, degrees Celsius), `_total` for what only
grows. Labels are bounded: `run`, states and verdicts that we have named ourselves, classes and devices up to a limit.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from math import isfinite
from typing import NamedTuple, get_args

from edgefl.base.events import Evaluated
from edgefl.base.scores import COMMON
from edgefl.base.vitals import SIGNS
from edgefl.watch.overview.overview import Overview
from edgefl.watch.overview.rows import ABSENT, DeviceRow, DeviceState, RoundRow, RunRow, RunState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DEVICES = 1000  # with series of their own; of more than that, those that were heard last
CLASSES = 100

Labels = Mapping[str, str]
Sample = tuple[Labels, float | int | bool | None]


class MetricFamily(NamedTuple):
    """A family of series."""

    name: str
    kind: str
    help: str


RUN = {
    "info": MetricFamily("edgefl_run_info", "gauge", "The run: its id and algorithm as labels, the value is 1."),
    "state": MetricFamily("edgefl_run_state", "gauge", "1 for the state that the run is in."),
    "planned": MetricFamily("edgefl_rounds_planned", "gauge", "Rounds that the run should have."),
    "done": MetricFamily("edgefl_rounds_merged", "gauge", "The last round that is merged."),
    "merged_at": MetricFamily("edgefl_last_round_timestamp_seconds", "gauge", "When the last round was merged."),
    "broker": MetricFamily("edgefl_broker_up", "gauge", "Whether the broker is there."),
    "paused": MetricFamily("edgefl_run_paused", "gauge", "Whether something must be mended before the run goes on."),
    "up": MetricFamily("edgefl_received_bytes_total", "counter", "Bytes of answers, of merged rounds."),
    "down": MetricFamily(
        "edgefl_sent_bytes_total", "counter", "Bytes of models that devices had to fetch, of merged rounds."
    ),
    "late": MetricFamily(
        "edgefl_late_answers_total", "counter", "Answers to rounds that were closed, of merged rounds."
    ),
    "refused": MetricFamily(
        "edgefl_refused_messages_total", "counter", "Messages that could not be used, of merged rounds."
    ),
    "seconds": MetricFamily("edgefl_rounds_seconds_total", "counter", "Seconds that merged rounds took."),
    "waiting": MetricFamily(
        "edgefl_rounds_waiting_seconds_total", "counter", "Of these, seconds until rounds were opened."
    ),
}
OPEN = {
    "asked": MetricFamily("edgefl_open_round_asked", "gauge", "Devices that the open round has asked."),
    "answered": MetricFamily("edgefl_open_round_answered", "gauge", "Devices that have answered it."),
    "awaited": MetricFamily("edgefl_open_round_awaited", "gauge", "Devices that are waited for."),
}
ROUND = {
    "accuracy": MetricFamily("edgefl_accuracy_ratio", "gauge", "Accuracy of the last model."),
    "balanced_accuracy": MetricFamily(
        "edgefl_balanced_accuracy_ratio", "gauge", "Mean of its accuracies on each class."
    ),
    "loss": MetricFamily("edgefl_loss", "gauge", "Its loss."),
    "mae": MetricFamily("edgefl_mean_absolute_error", "gauge", "Its mean absolute error, of a regression."),
    "rmse": MetricFamily("edgefl_root_mean_squared_error", "gauge", "Its root mean squared error, of a regression."),
    "r2": MetricFamily("edgefl_r_squared_ratio", "gauge", "Its coefficient of determination, of a regression."),
    "forgetting": MetricFamily(
        "edgefl_forgetting_ratio", "gauge", "What it has forgotten of what models before it knew."
    ),
    "seconds": MetricFamily("edgefl_last_round_seconds", "gauge", "Seconds that the last round took."),
    "waiting_seconds": MetricFamily("edgefl_last_round_waiting_seconds", "gauge", "Of these, until it was opened."),
    "devices": MetricFamily("edgefl_last_round_devices", "gauge", "Devices whose answers it was merged from."),
}
EVALUATED = {
    "round": MetricFamily("edgefl_fleet_evaluated_round", "gauge", "The last round whose model devices looked at."),
    "accuracy": MetricFamily("edgefl_fleet_accuracy_ratio", "gauge", "Its accuracy on data that devices set aside."),
    "balanced_accuracy": MetricFamily("edgefl_fleet_balanced_accuracy_ratio", "gauge", "The mean over classes, there."),
    "loss": MetricFamily("edgefl_fleet_loss", "gauge", "Its loss, there."),
    "rmse": MetricFamily("edgefl_fleet_root_mean_squared_error", "gauge", "Its root mean squared error, there."),
    "median": MetricFamily(
        "edgefl_fleet_median_score", "gauge", "The median over devices, of the accuracy or the RMSE."
    ),
    "worst_tenth": MetricFamily("edgefl_fleet_worst_tenth_score", "gauge", "The mean of the worst tenth of devices."),
}
SCORE = MetricFamily(
    "edgefl_score", "gauge", "What the last model is worth by the figures of its kind of task, by name."
)
PER_CLASS = MetricFamily("edgefl_class_accuracy_ratio", "gauge", "Accuracy of the last model on each class.")
FLEET = MetricFamily("edgefl_devices", "gauge", "Devices that are known, by what they are doing.")
DEVICE = {
    "up": MetricFamily("edgefl_device_up", "gauge", "Whether the device is there."),
    "last_seen": MetricFamily("edgefl_device_last_seen_timestamp_seconds", "gauge", "When its last message came."),
    "took": MetricFamily("edgefl_device_answer_seconds", "gauge", "Its last answer: seconds since it was asked."),
    "seconds_per_step": MetricFamily("edgefl_device_step_seconds", "gauge", "Seconds for one mini-batch."),
    "answers": MetricFamily("edgefl_device_answers_total", "counter", "Answers that counted."),
    "late": MetricFamily("edgefl_device_late_answers_total", "counter", "Answers that came too late."),
    "missed": MetricFamily("edgefl_device_missed_rounds_total", "counter", "Rounds that were closed without it."),
    "declined": MetricFamily("edgefl_device_declined_rounds_total", "counter", "Rounds that it declined."),
    "strikes": MetricFamily("edgefl_device_strikes_total", "counter", "Messages of it that could not be used."),
    "certificate_ends": MetricFamily(
        "edgefl_device_certificate_expiry_timestamp_seconds", "gauge", "Until when it can show a certificate."
    ),
    "data_broken": MetricFamily(
        "edgefl_device_data_broken", "gauge", "Whether its newest data cannot be used: it trains on older ones, or not."
    ),
    "data_since": MetricFamily(
        "edgefl_device_data_broken_timestamp_seconds", "gauge", "Since when its data are broken."
    ),
    "bytes_up": MetricFamily("edgefl_device_received_bytes_total", "counter", "Bytes of its answers."),
}
VITALS = {
    **{name: MetricFamily(sign.metric, "gauge", sign.help) for name, sign in SIGNS.items()},
    "at": MetricFamily("edgefl_device_vitals_timestamp_seconds", "gauge", "When it said so."),
}


def metrics() -> list[MetricFamily]:
    """All that there are."""
    single = [*RUN.values(), *OPEN.values(), *ROUND.values(), *EVALUATED.values(), SCORE, PER_CLASS, FLEET]
    return [*single, *DEVICE.values(), *VITALS.values()]


class RunReading(NamedTuple):
    """What is shown of a run: parts of an overview."""

    run: RunRow
    last: RoundRow | None
    evaluated: Evaluated | None  # what devices saw last
    asked: int
    answered: int
    awaited: int
    devices: list[DeviceRow]


def standing_of(overview: Overview) -> RunReading:
    """What is shown of it; what happens from now on does not reach it."""
    here = overview.open
    numbers = (len(here.asked), len(here.answered), len(here.awaited)) if here else (0, 0, 0)
    last = overview.rounds[max(overview.rounds)] if overview.rounds else None
    seen = (overview.rounds[number].evaluated for number in sorted(overview.rounds, reverse=True))
    evaluated = next((one for one in seen if one is not None), None)
    return RunReading(copy(overview.run), last, evaluated, *numbers, [copy(row) for row in overview.devices.values()])


def text(standing: RunReading, most_devices: int = DEVICES) -> str:
    """Everything, as Prometheus reads it."""
    return exposition(_families(standing, most_devices))


def exposition(families: Iterable[tuple[MetricFamily, Iterable[Sample]]]) -> str:
    """Return families of series as Prometheus reads them; a series without a value is left out."""
    lines: list[str] = []
    for metric, samples in families:
        shown = [line(metric.name, labels, value) for labels, value in samples if value is not None]
        if shown:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", *shown]
    return "\n".join(lines) + "\n"


def _families(standing: RunReading, most_devices: int) -> Iterator[tuple[MetricFamily, Iterable[Sample]]]:
    run, last, devices = standing.run, standing.last, standing.devices
    of = {"run": run.name}
    figures: dict[str, float | int | bool | None] = {
        "planned": run.rounds,
        "done": run.rounds_done,
        "merged_at": last.at if last else None,
        "broker": not run.broker_away,
        "paused": bool(run.paused),
        "up": run.bytes_up,
        "down": run.bytes_down,
        "late": run.late,
        "refused": run.refused,
        "seconds": run.seconds,
        "waiting": run.waiting_seconds,
    }
    yield RUN["info"], [({**of, "run_id": run.run_id, "algorithm": run.algorithm}, 1)]
    yield RUN["state"], [({**of, "state": state}, state == run.state) for state in get_args(RunState)]
    for name, value in figures.items():
        yield RUN[name], [(of, value)]
    for name, metric in OPEN.items():
        yield metric, [(of, getattr(standing, name))]
    for name, metric in ROUND.items():
        yield metric, [(of, getattr(last, name) if last else None)]
    for name, metric in EVALUATED.items():
        yield metric, [(of, getattr(standing.evaluated, name) if standing.evaluated else None)]
    of_task = {name: value for name, value in (last.scores if last else {}).items() if name not in COMMON}
    yield SCORE, [({**of, "score": name}, value) for name, value in of_task.items()]
    yield PER_CLASS, _classes(run, last, of)
    states = Counter(row.state for row in devices)
    yield FLEET, [({**of, "state": state}, states[state]) for state in get_args(DeviceState)]
    yield from device_families([(of, devices)], most_devices)


def device_families(
    groups: Iterable[tuple[Labels, Iterable[DeviceRow]]], most: int = DEVICES
) -> Iterator[tuple[MetricFamily, list[Sample]]]:
    """Yield the series of devices; each group has labels of its own, and `most` is of all groups together."""
    heard = sorted(((of, row) for of, rows in groups for row in rows), key=lambda pair: -(pair[1].last_seen or 0.0))
    shown = sorted(heard[:most], key=lambda pair: (sorted(pair[0].items()), pair[1].name))
    for name, metric in DEVICE.items():
        yield metric, [({**of, "device": row.name}, _figure(row, name)) for of, row in shown]
    for name, metric in VITALS.items():
        yield metric, [({**of, "device": row.name}, (row.vitals or {}).get(name)) for of, row in shown]


def _figure(row: DeviceRow, name: str) -> float | int | bool | None:
    if name == "up":
        return row.state not in ABSENT
    if name == "data_broken":
        return bool(row.data_trouble)
    value: float | int | bool | None = getattr(row, name)
    return value


def _classes(run: RunRow, last: RoundRow | None, of: Labels) -> list[Sample]:
    names = run.evaluating.class_names if run.evaluating else None
    shares = (last.per_class if last else None) or ()
    called = [names[index] if names and index < len(names) else str(index) for index in range(len(shares))]
    return [({**of, "class": name}, share) for name, share in list(zip(called, shares, strict=True))[:CLASSES]]


def line(name: str, labels: Labels, value: float | bool) -> str:
    """One series and its value."""
    told = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
    number = float(value)
    shown = repr(number) if isfinite(number) else "NaN" if number != number else "+Inf" if number > 0 else "-Inf"  # noqa: PLR0124
    return f"{name}{{{told}}} {shown}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
