"""From a table that was read to samples: what empty cells become, labels as classes or targets, rows as windows."""

from dataclasses import dataclass, replace

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.data import windows
from edgefl.learn.data.custom import dataset, divided
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.reading import Reading
from edgefl.learn.data.source import Source, check
from edgefl.learn.data.table import Table, classes_of

SHOWN = 12  # titles that are named in a note


@dataclass(frozen=True, slots=True)
class UsableRows:
    """The rows of a table without what is missing, in their order."""

    x: Array
    rows: Array  # the number of each in the table
    begins: Array  # whether it begins a segment: no window reaches over its beginning
    group: Array


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a table: classes below `classes`, or real targets; -1 or NaN where there is none."""

    y: Array
    classes: int
    names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None

    def of(self, rows: Array) -> Array:
        return self.y[rows]

    def known(self) -> Array:
        """Which rows have one."""
        if self.classes:
            return np.asarray(self.y >= 0)
        return np.asarray(np.isfinite(self.y.reshape(len(self.y), -1)).all(axis=1))


def source_of(table: Table, reading: Reading) -> Source:
    """The samples of a table, divided: by blocks of rows where their order matters, else by chance."""
    labels = _labels(table)
    if reading.empty == "refuse" and not labels.known().all():
        row = int(np.argmin(labels.known()))
        raise ConfigError(
            f"{table.where(row)}: the label is empty; fill it, or set data.empty = 'drop' to leave out what has none",
            told=f"{table.place(row)}: the label is empty; fill it, or set data.empty = 'drop'",
        )
    rows = usable(table, reading)
    if reading.window is None and table.times is None:
        kept = np.flatnonzero(labels.known()[rows.rows])
        whole = _samples(rows.x[kept], labels, labels.of(rows.rows[kept]), table.name)
        source = divided(whole, None if table.groups is None else rows.group[kept], table.name)
        return replace(source, notes=notes(table, rows, len(table.x) - len(kept)))
    return _in_order(table, reading, rows, labels)


def unlabelled(table: Table, reading: Reading) -> Array:
    """The samples of a table without their labels: rows as they stand, or windows group by group in order of time."""
    rows = usable(table, reading)
    if reading.window is None:
        return rows.x[np.argsort(rows.rows, kind="stable")].astype(np.float32)
    first = windows.firsts(rows.begins, reading.window, stride(reading))
    DataLimit(f"data set '{table.name}'", reading.most_mb).take(_bytes_of(first, rows.x, reading.window))
    return cut(rows.x, first, reading.window)


def stride(reading: Reading) -> int:
    """Rows from one window to the next."""
    return reading.stride or max(1, (reading.window or 1) // 2)


def cut(x: Array, first: Array, window: int) -> Array:
    """Windows that begin at these rows, each (columns, window)."""
    return np.ascontiguousarray(x.astype(np.float32)[first[:, None] + np.arange(window)].swapaxes(1, 2))


def _bytes_of(first: Array, x: Array, window: int) -> int:
    """How much windows take that begin at these rows: float32, and the numbers of their rows while they are cut."""
    return len(first) * window * (4 * int(x.shape[1]) + 8)


def _in_order(table: Table, reading: Reading, rows: UsableRows, labels: Labels) -> Source:
    """Samples whose order matters: windows, or rows that have a time."""
    length = reading.window or 1
    majority = reading.window_label == "majority"
    if majority and not labels.classes:
        raise ConfigError(
            f"data set '{table.name}': data.window_label = 'majority' is for classes, and its labels are real targets;"
            " use 'last'",
            told="data.window_label = 'majority' is for classes, and its labels are real targets; use 'last'",
        )
    starts = windows.starts(rows.begins, rows.group, length, stride(reading))
    y = labels.of(rows.rows)
    if reading.window:
        limit = DataLimit(f"data set '{table.name}'", reading.most_mb)
        limit.take(_bytes_of(starts.train, rows.x, length) + _bytes_of(starts.test, rows.x, length))
    parts, groups = list[Dataset](), list[Array]()
    for first in (starts.train, starts.test):
        its = windows.label_of_windows(y, first, length, majority=majority, classes=labels.classes)
        kept = replace(labels, y=its).known()
        x = cut(rows.x, first[kept], length) if reading.window else rows.x[first[kept]]
        parts.append(_samples(x, labels, its[kept], table.name))
        groups.append(rows.group[first[kept]])
    if not (len(parts[0]) and len(parts[1])):
        count = len(parts[0]) + len(parts[1])
        what = f"windows of {length} rows without a gap" if reading.window else "rows with a label"
        raise ConfigError(
            f"data set '{table.name}' has {count} {what}, of {len(table.x)} rows; at least 2 that share no row are"
            " needed, one to train and one to hold back: give more rows, or a smaller data.window",
            told="it has too few rows to train on some and to hold others back; give more, or a smaller data.window",
        )
    for part in parts:
        check(part, f"data set '{table.name}'")
    seen = notes(table, rows, len(table.x) - len(rows.rows))
    if reading.window:
        counts = f"{len(parts[0])} to train, {len(parts[1])} held back, {starts.lost} between the two left out"
        seen += (f"windows of {length} rows, one every {stride(reading)}: {counts}",)
    return Source(parts[0], parts[1], None if table.groups is None else groups[0], table.name, notes=seen)


def _samples(x: Array, labels: Labels, y: Array, name: str) -> Dataset:
    typed = dataset(x.astype(np.float32), y, labels.classes, name)
    return replace(typed, class_names=labels.names, numbered=labels.names is None, target_names=labels.target_names)


def _labels(table: Table) -> Labels:
    if table.targets is not None:
        y = table.targets[:, 0] if table.targets.shape[1] == 1 else table.targets
        return Labels(y, 0, target_names=table.target_names)
    numbers, names = classes_of(table)
    if names:
        return Labels(numbers, len(names), names)
    known = numbers[np.isfinite(numbers)]
    if len(known) and (known == np.floor(known)).all() and known.min() >= 0:
        return Labels(np.where(np.isfinite(numbers), numbers, -1).astype(np.int64), int(known.max()) + 1)
    return Labels(numbers, 0)


# ---- what is missing -------------------------------------------------------------------------------------------------


def usable(table: Table, reading: Reading) -> UsableRows:
    """The rows that can be used, in order; of `data.empty` depends what becomes of the others."""
    n, times = len(table.x), table.times
    missing = np.asarray(np.isnan(table.x).any(axis=1))
    untimed = np.isnan(times) if times is not None else np.zeros(n, bool)
    if reading.empty == "refuse" and (missing | untimed).any():
        _refuse(table, int(np.argmax(missing | untimed)))
    kept = np.flatnonzero(~untimed)
    order = _order(table, reading, kept)
    rows, begins, x = kept[order.rows], order.begins, table.x[kept[order.rows]]
    bad = missing[rows]
    if isinstance(reading.empty, float | int):
        x, bad = np.where(np.isnan(x), reading.empty, x), np.zeros(len(rows), bool)
    elif reading.empty == "last" and bad.any():
        x = _carried(x, begins)
        bad = np.asarray(np.isnan(x).any(axis=1))
    good = np.flatnonzero(~bad)
    # What was left out is a gap as well: the next row begins a segment, as does the first of what follows a beginning.
    marks = np.cumsum(begins | bad)
    begins = np.r_[True, np.diff(marks[good]) > 0] if len(good) else np.zeros(0, bool)
    return UsableRows(x[good], rows[good], begins, order.group[good])


def _order(table: Table, reading: Reading, kept: Array) -> windows.OrderedRows:
    """Rows of a table whose order does not matter stay where they are."""
    breaks = np.zeros(len(table.x), bool)
    breaks[[first for first, _ in table.files if first < len(breaks)]] = True
    groups = None if table.groups is None else [table.groups[i] for i in kept]
    times = None if table.times is None else table.times[kept]
    order = windows.ordered(len(kept), times, groups, breaks[kept], reading.gap)
    if reading.window is None and table.times is None:
        back = np.argsort(order.rows, kind="stable")
        return windows.OrderedRows(order.rows[back], order.begins[back], order.group[back])
    return order


def _carried(x: Array, begins: Array) -> Array:
    """Each empty cell has the value before it in its segment, if there is one."""
    place = np.arange(len(x))
    start = np.maximum.accumulate(np.where(begins, place, 0))
    filled = x.copy()
    for column in range(x.shape[1]):
        known = np.where(np.isnan(x[:, column]), start, place)
        filled[:, column] = x[np.maximum.accumulate(known), column]
    return filled


def _refuse(table: Table, row: int) -> None:
    """Say which cell is empty, and what may become of it."""
    empty = np.isnan(table.x[row])
    title = table.titles[int(np.argmax(empty))] if empty.any() else table.time_title
    raise ConfigError(
        f"{table.where(row)}, column '{title}': the cell is empty; fill it, or set data.empty to 'drop' (leave such"
        " rows out), 'last' (the value before) or a number",
        told=f"{table.place(row)}: a cell is empty; fill it, or set data.empty",
    )


# ---- what was seen ---------------------------------------------------------------------------------------------------


def notes(table: Table, rows: UsableRows, dropped: int) -> tuple[str, ...]:
    """What is worth knowing about a table, a line each."""
    more = f" and {len(table.titles) - SHOWN} more" if len(table.titles) > SHOWN else ""
    lines = [f"{len(table.x)} rows, columns {', '.join(table.titles[:SHOWN])}{more}"]
    if table.ignored:
        lines.append(f"not used: {', '.join(title or 'a column without a title' for title in table.ignored[:SHOWN])}")
    if empty := int(np.isnan(table.x).any(axis=1).sum()):
        lines.append(f"{_count(empty, 'row')} with an empty cell (data.empty)")
    if dropped:
        lines.append(f"{_count(dropped, 'row')} left out")
    if table.times is not None and len(rows.rows):
        group_starts = np.r_[True, rows.group[1:] != rows.group[:-1]]
        gaps, groups = int((rows.begins & ~group_starts).sum()), int(group_starts.sum())
        whose = f" in {_count(groups, 'group')}" if table.groups is not None else ""
        lines.append(f"ordered by '{table.time_title}'{whose}, {_count(gaps, 'gap')}")
    return tuple(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
