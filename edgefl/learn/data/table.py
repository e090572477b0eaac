"""Rows of cells as features, labels, times and groups: the one reader behind every source that is a table.

What a source gives is `Rows`, one for each file; which column means what, `[data]` says (`reading.py`),
or the titles and the first row do. What cannot be used is named by row and column.
"""

import json
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from sys import getsizeof
from typing import BinaryIO, NoReturn, TypeAlias

import numpy as np

from edgefl.base.errors import ConfigError, nearest
from edgefl.base.vector import Array
from edgefl.learn.data import cells
from edgefl.learn.data.cells import Cell
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.reading import Reading
from edgefl.system.json_text import parse_json

TEXT = 200  # bytes beside each different text: its place in a dictionary
LABELS = ("label", "y", "class", "target")  # what a title may call the label's column, the first one found
Row: TypeAlias = tuple[int, Sequence[Cell]]  # the number of a row in its file, and its cells


@dataclass(frozen=True, slots=True)
class Rows:
    """What one file gives; `rows` can be walked once."""

    name: str  # in messages
    titles: tuple[str, ...] | None
    width: int
    rows: Iterator[Row]
    word: str = "line"  # what its rows are called
    decimal_comma: bool = False


@dataclass(frozen=True, slots=True)
class Roles:
    """Which column means what, by their numbers from 0."""

    features: tuple[int, ...]
    label: int | None = None
    targets: tuple[int, ...] = ()
    time: int | None = None
    group: int | None = None
    ignored: tuple[int, ...] = ()  # columns of dates, and those that only number the rows, unless they are asked for


@dataclass(frozen=True, slots=True)
class Table:
    """A table that was read; an empty cell is NaN, an empty label an empty text."""

    name: str
    x: Array  # features of every row, float64
    titles: tuple[str, ...]  # of the features
    labels: tuple[str, ...] | None
    targets: Array | None = None  # (n, targets), float64
    target_names: tuple[str, ...] = ()
    times: Array | None = None
    groups: tuple[str, ...] | None = None
    lines: Sequence[int] = ()  # where in its file each row stands
    files: Sequence[tuple[int, str]] = ()  # the first row of each file, and what the file is called
    word: str = "line"
    time_title: str = ""
    ignored: tuple[str, ...] = ()  # titles of columns that are not used, though no key says so

    def where(self, row: int) -> str:
        """The place of a row, for messages."""
        name = self.files[bisect_right([first for first, _ in self.files], row) - 1][1] if self.files else self.name
        return f"data set '{name}', {self.place(row)}"

    def place(self, row: int) -> str:
        """The place of a row in its file, without the file's name: free of data."""
        return f"{self.word} {self.lines[row]}"


def read(files: Iterable[Rows], reading: Reading, name: str, *, features: int | None = None) -> Table:
    """The table in these files, one behind another, called `name` in messages.

    There must be labels unless it is known how many `features` are: a table with just these needs none.
    """
    columns: _Columns | None = None
    for file in files:
        first = next(file.rows, None)
        if first is None:
            continue
        roles = _roles(file, first[1], reading, features)
        if columns is None:
            columns = _Columns(file, roles, reading, DataLimit(f"data set '{name}'", reading.most_mb))
        columns.take(file, chain([first], file.rows))
    if columns is None:
        raise ConfigError(
            f"data set '{name}' is empty; give one sample a line", told="it is empty; give one sample a line"
        )
    return columns.table(name)


class _Columns:
    """Collects the rows of one file after another, as numbers wherever numbers are meant."""

    def __init__(self, file: Rows, roles: Roles, reading: Reading, limit: DataLimit) -> None:
        self.roles, self.reading, self.limit = roles, reading, limit
        self.titles, self.width, self.word = file.titles, file.width, file.word
        self.numbers, self.targets, self.times = array("d"), array("d"), array("d")
        self.labels, self.groups, self.lines = list[str](), list[str](), array("q")
        self.files: list[tuple[int, str]] = []
        self.texts: dict[str, str] = {}  # each text once, however many rows have it

    def take(self, file: Rows, rows: Iterator[Row]) -> None:
        """Read a file to its end."""
        if (file.titles, file.width) != (self.titles, self.width):
            raise ConfigError(
                f"data set '{file.name}' has other columns than '{self.files[0][1]}'; give files with the same columns",
                told="one of its files has other columns than the first; give files with the same columns",
            )
        self.files.append((len(self.lines), file.name))
        r, most = self.roles, self.reading.most_rows
        size = 8 * (len(r.features) + len(r.targets) + 4)  # a number, or the place of a text; one more is the line
        for line, row in rows:
            if len(row) != self.width:
                seen = (
                    f"{file.word} {line}: has {len(row)} cells, the first {file.word} has {self.width};"
                    f" give every {file.word} the same columns"
                )
                raise ConfigError(f"data set '{file.name}', {seen}", told=seen)
            if len(self.lines) == most:
                raise ConfigError(
                    f"data set '{file.name}' has more than {most} rows; choose fewer, or raise data.most_rows",
                    told=f"it has more than {most} rows; choose fewer, or raise data.most_rows",
                )
            self.limit.take(size)
            self.lines.append(line)
            self.numbers.extend(self._number(file, row[i], line, i) for i in r.features)
            self.targets.extend(self._number(file, row[i], line, i) for i in r.targets)
            if r.label is not None:
                self.labels.append(self._text(cells.label(_plain(row[r.label], file.decimal_comma))))
            if r.time is not None:
                self.times.append(self._time(file, row[r.time], line, r.time))
            if r.group is not None:
                self.groups.append(self._text(str(row[r.group]).strip()))

    def table(self, name: str) -> Table:
        r, n = self.roles, len(self.lines)

        def of(numbers: "array[float]", width: int) -> Array:
            return np.frombuffer(numbers, np.float64).reshape(n, width)

        return Table(
            name,
            of(self.numbers, len(r.features)),
            tuple(self._title(i) for i in r.features),
            None if r.label is None else tuple(self.labels),
            of(self.targets, len(r.targets)) if r.targets else None,
            tuple(self._title(i) for i in r.targets),
            np.frombuffer(self.times, np.float64) if r.time is not None else None,
            None if r.group is None else tuple(self.groups),
            self.lines,
            self.files,
            self.word,
            "" if r.time is None else self._title(r.time),
            tuple(self._title(i) for i in r.ignored),
        )

    def _number(self, file: Rows, cell: Cell, line: int, column: int) -> float:
        try:
            return cells.number(_plain(cell, file.decimal_comma))
        except ValueError:
            _refuse(file, cell, line, column)

    def _time(self, file: Rows, cell: Cell, line: int, column: int) -> float:
        try:
            return cells.seconds(_plain(cell, file.decimal_comma), day_first=self.reading.day_first)
        except ValueError as error:
            told = f"{file.word} {line}, column {column + 1}: a time cannot be read"
            raise ConfigError(f"{_place(file, line, column)}: '{str(cell)[:40]}' {error}", told=told) from None

    def _text(self, text: str) -> str:
        if text not in self.texts:
            self.limit.take(getsizeof(text) + TEXT)
        return self.texts.setdefault(text, text)

    def _title(self, column: int) -> str:
        return self.titles[column] if self.titles else str(column + 1)


def _plain(cell: Cell, decimal_comma: bool) -> Cell:
    """The cell, with a point in its number where it has a decimal comma."""
    if not decimal_comma or not isinstance(cell, str) or "," not in cell:
        return cell
    pointed = cell.replace(",", ".")
    return pointed if cells.is_number(pointed) else cell


def _place(file: Rows, line: int, column: int) -> str:
    title = f" '{file.titles[column]}'" if file.titles else ""
    return f"data set '{file.name}', {file.word} {line}, column {column + 1}{title}"


def _refuse(file: Rows, cell: Cell, line: int, column: int) -> NoReturn:
    where, title = _place(file, line, column), file.titles[column] if file.titles else str(column + 1)
    told = f"{file.word} {line}, column {column + 1}"
    if cells.looks_like_time(cell):
        raise ConfigError(
            f"{where}: '{str(cell)[:40]}' is a time; set data.time = '{title}', or name the features in data.columns",
            told=f"{told}: a cell is a time; set data.time, or name the features in data.columns",
        )
    raise ConfigError(
        f"{where}: '{str(cell)[:40]}' is not a number; name the columns that are features in data.columns, and that of"
        f" the labels, in which text is welcome, in data.label (or call it '{LABELS[0]}')",
        told=f"{told}: a cell is not a number; name the features in data.columns, and the labels in data.label",
    )


# ---- which column means what -----------------------------------------------------------------------------------------


def _roles(file: Rows, first: Sequence[Cell], reading: Reading, features: int | None) -> Roles:
    """What the columns of a file mean, by `[data]`, its titles and its first row."""
    time = None if reading.time is None else _column(file, reading.time, "data.time")
    group = None if reading.group is None else _column(file, reading.group, "data.group")
    dates = [i for i, cell in enumerate(first) if cells.looks_like_time(cell) and i not in {time, group}]
    if time is None and len(dates) == 1 and reading.columns is None:
        time = dates.pop()
    numbering = [i for i, title in enumerate(file.titles or ()) if not title or title.startswith("Unnamed:")]
    label, targets = _labels(file, reading, features, taken={time, group, *dates, *numbering})
    ignored = tuple(i for i in (*numbering, *dates) if reading.columns is None and i != label and i not in targets)
    spent = {label, *targets, time, group, *ignored}
    if reading.columns is not None:
        chosen = tuple(_column(file, title, "data.columns") for title in reading.columns)
        if twice := [i for i in chosen if i in spent or chosen.count(i) > 1]:
            raise ConfigError(
                f"data set '{file.name}': column '{reading.columns[chosen.index(twice[0])]}' of data.columns is named"
                " twice, or is the label, time or group too; name it once",
                told="a column of data.columns is named twice, or is the label, time or group too; name it once",
            )
    else:
        chosen = tuple(i for i in range(file.width) if i not in spent)
    if not chosen:
        few = "has one column" if file.width < 2 else "has no column that is a feature"
        what = f"{few}; give at least one number and a label, divided by commas"
        raise ConfigError(f"data set '{file.name}' {what}", told=f"it {what}")
    return Roles(chosen, label, targets, time, group, ignored)


def _labels(
    file: Rows, reading: Reading, features: int | None, taken: Collection[int | None]
) -> tuple[int | None, tuple[int, ...]]:
    """The column of the label, or those of the targets; neither where samples may come without."""
    if reading.label is not None:
        names = reading.label if isinstance(reading.label, tuple) else (reading.label,)
        if features is not None and any(_found(file, name) is None for name in names):
            return None, ()
        places = tuple(_column(file, name, "data.label") for name in names)
        return (None, places) if isinstance(reading.label, tuple) else (places[0], ())
    lower = [title.lower() for title in file.titles or ()]
    named = next((lower.index(word) for word in LABELS if word in lower), None)
    if named is not None:
        return named, ()
    chosen = {_column(file, title, "data.columns") for title in reading.columns or ()}
    free = [i for i in range(file.width) if i not in taken and i not in chosen]
    if not chosen:
        return (free[-1] if free and features in {None, len(free) - 1} else None), ()
    if features is None and len(free) != 1:
        told = "it is not clear which column has the labels; name it in data.label"
        raise ConfigError(f"data set '{file.name}': {told}", told=told)
    return (free[0] if features is None else None), ()


def _column(file: Rows, title: str, key: str) -> int:
    """The number of a column that `[data]` names."""
    if (place := _found(file, title)) is not None:
        return place
    titles = file.titles or ()
    hint = nearest(title, titles) if titles else f"it has no titles; give a number from 1 to {file.width}"
    raise ConfigError(
        f"data set '{file.name}' has no column '{title}' ({key}); {hint}",
        told=f"it lacks a column that {key} names; correct {key}, or the file",
    )


def _found(file: Rows, title: str) -> int | None:
    """The number of the column with this title, else with this number from 1."""
    titles = file.titles or ()
    if title in titles:
        return titles.index(title)
    alike = [i for i, other in enumerate(titles) if other.lower() == title.lower()]
    if len(alike) == 1:
        return alike[0]
    return int(title) - 1 if title.isdecimal() and 1 <= int(title) <= file.width else None


# ---- from one process to another -------------------------------------------------------------------------------------


def packed(table: Table, file: BinaryIO) -> None:
    """Write the table as an .npz archive; texts stand there once, and numbers for them."""
    plain = {"name": table.name, "titles": table.titles, "target_names": table.target_names, "files": table.files}
    about = {**plain, "word": table.word, "time_title": table.time_title, "ignored": table.ignored}
    arrays = {"x": table.x, "lines": np.array(table.lines, np.int64)}
    for key, texts in (("labels", table.labels), ("groups", table.groups)):
        if texts is not None:
            about[key], arrays[key] = _coded(texts)
    arrays |= {key: one for key, one in (("targets", table.targets), ("times", table.times)) if one is not None}
    np.savez(file, allow_pickle=False, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)


def unpacked(data: bytes) -> Table:
    """The table that was written."""
    with np.load(BytesIO(data), allow_pickle=False) as held:
        about = parse_json(held["about"].tobytes())
        labels, groups = (
            tuple(about[key][code] for code in held[key].tolist()) if key in held else None
            for key in ("labels", "groups")
        )
        return Table(
            about["name"],
            held["x"],
            tuple(about["titles"]),
            labels,
            held.get("targets"),
            tuple(about["target_names"]),
            held.get("times"),
            groups,
            held["lines"].tolist(),
            [(first, name) for first, name in about["files"]],
            about["word"],
            about["time_title"],
            tuple(about["ignored"]),
        )


def _coded(texts: Sequence[str]) -> tuple[list[str], Array]:
    """Each text once, and the number of each row's."""
    place: dict[str, int] = {}
    codes = np.array([place.setdefault(text, len(place)) for text in texts], np.int64)
    return list(place), codes


# ---- labels as numbers -----------------------------------------------------------------------------------------------


def classes_of(table: Table) -> tuple[Array, tuple[str, ...] | None]:
    """The labels as numbers, and their names if they are texts: then a number is a name's place in the alphabet.

    An empty label is NaN, or -1 among names.
    """
    labels, name = table.labels or (), table.name
    known: Mapping[str, bool] = {label: cells.is_number(label) for label in dict.fromkeys(labels) if label}
    if all(known.values()):
        values = {"": np.nan, **{label: float(label) for label in known}}
        return np.array([values[label] for label in labels]), None
    if any(known.values()):
        rows = [i for i, label in enumerate(labels) if label]
        numeric = sum(known[labels[i]] for i in rows)
        odd = next(i for i in rows if known[labels[i]] is (numeric * 2 <= len(rows)))
        others = "texts" if known[labels[odd]] else "numbers"
        raise ConfigError(
            f"{table.where(odd)}: the label is '{labels[odd][:40]}', most others are {others};"
            " give all labels as numbers, or all as texts",
            told=f"{table.place(odd)}: most other labels are {others}; give all labels as numbers, or all as texts",
        )
    names = sorted(known)
    if len(names) > max(20, len(labels) // 2):
        raise ConfigError(
            f"data set '{name}' has {len(names)} different texts as labels in {len(labels)} {table.word}s (such as"
            f" '{names[0][:40]}'); name the column of the labels in data.label, or call it '{LABELS[0]}'",
            told="it has too many different texts as labels; name the column of the labels in data.label",
        )
    place = {"": -1, **{label: i for i, label in enumerate(names)}}
    return np.array([place[label] for label in labels], np.int64), tuple(names)
