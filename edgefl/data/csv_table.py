"""A .csv file as numbers and labels: the one reader for training, evaluation and prediction.

Cells are divided by commas, semicolons or tabs (then numbers may have a decimal comma), or by blanks where there are
none of these. A first line without numbers, or one that names the label's column, is a header; so is one that begins
with '#'. What is not a number is named by line and column.
"""

import csv
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NoReturn, TextIO, TypeAlias

import numpy as np

from edgefl.data.source import reading
from edgefl.errors import ConfigError
from edgefl.vector import Array

LABELS = ("label", "y", "class", "target")  # what a header may call the label's column, the first one found
DELIMITERS = ("\t", ";", ",", " ")
Row: TypeAlias = tuple[int, list[str]]  # the number of a line, and its cells
TIME = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}:\d\d")


@dataclass(frozen=True, slots=True)
class Table:
    """The features of every line as float64, and the text of every label, if the file has labels."""

    x: Array
    labels: tuple[str, ...] | None
    lines: tuple[int, ...]  # where in the file each sample stands


@dataclass(frozen=True, slots=True)
class _Columns:
    """How the lines of a file are to be read."""

    name: str
    titles: tuple[str, ...] | None
    width: int
    label: int | None
    decimal_comma: bool

    def plain(self, cell: str) -> str:
        """The cell, with a point in its number where it has a decimal comma."""
        pointed = cell.replace(",", ".")
        return pointed if self.decimal_comma and pointed != cell and _is_number(pointed) else cell

    def number(self, cell: str, line: int, column: int) -> float:
        """The number in a cell, or one line about what is there instead."""
        try:
            return float(self.plain(cell))
        except ValueError:
            self.refuse(cell, line, column)

    def refuse(self, cell: str, line: int, column: int) -> NoReturn:
        title = f" '{self.titles[column]}'" if self.titles else ""
        where = f"data set '{self.name}', line {line}, column {column + 1}{title}"
        if not cell.strip():
            raise ConfigError(f"{where}: the cell is empty; fill it, or remove the line or the column")
        if TIME.search(cell):
            raise ConfigError(
                f"{where}: '{cell[:40]}' is a time; remove the column, or make it a number such as the hour of the day"
            )
        raise ConfigError(
            f"{where}: '{cell[:40]}' is not a number; remove the column or give it as numbers"
            f" (text is welcome as a label, in the last column or the one named '{LABELS[0]}')"
        )


def read_table(path: Path, name: str, features: int | None = None) -> Table:
    """The file at `path`, called `name` in messages; there must be labels unless it is known how many `features` are.

    Then a file with one column more has its labels in it, and they are not needed.
    """
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        delimiter = _delimiter(file)
        rows = _rows(file, delimiter, name)
        first = next(rows, None)
        if first is None:
            raise ConfigError(f"data set '{name}' is empty; give one sample a line")
        titles, width = _header(first[1]), len(first[1])
        if features is None and width < 2:
            raise ConfigError(
                f"data set '{name}' has one column; give at least one number and a label, divided by commas"
            )
        columns = _Columns(name, titles, width, _label(titles, width, features), delimiter in ";\t")
        return _table(columns, rows if titles else chain([first], rows))


def _delimiter(file: TextIO) -> str:
    """What divides the cells of this file, which is left at its beginning."""
    filled = next((line for line in file if line.strip()), "")
    file.seek(0)
    return next((d for d in DELIMITERS if len(next(csv.reader([filled], delimiter=d), [])) > 1), ",")


def _rows(file: TextIO, delimiter: str, name: str) -> Iterator[Row]:
    """The lines that hold something."""
    reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                yield reader.line_num, stripped
    except csv.Error as error:
        raise ConfigError(f"data set '{name}', line {reader.line_num}: {error}; is it a .csv file?") from None


def _header(cells: Sequence[str]) -> tuple[str, ...] | None:
    """The titles of the columns, if this line has them."""
    if cells[0].startswith("#"):
        return tuple(cell.lstrip("# ") for cell in cells)
    numbers = [cell for cell in cells if _is_number(cell)]
    counted = numbers in ([str(i) for i in range(k, k + len(numbers))] for k in (0, 1))
    labelled = any(cell.lower() in set(LABELS) - {"y"} for cell in cells)  # "1,2,y" may well be a sample
    return tuple(cells) if not numbers or (counted and labelled) else None


def _label(titles: tuple[str, ...] | None, width: int, features: int | None) -> int | None:
    """Which column has the labels."""
    lower = [title.lower() for title in titles or ()]
    named = next((lower.index(word) for word in LABELS if word in lower), None)
    return width - 1 if named is None and features in {None, width - 1} else named


def _table(columns: _Columns, rows: Iterable[Row]) -> Table:
    numbers, labels, lines = array("d"), list[str](), list[int]()
    for line, cells in rows:
        if len(cells) != columns.width:
            raise ConfigError(
                f"data set '{columns.name}', line {line}: has {len(cells)} cells, the first line has {columns.width};"
                " give every line the same columns"
            )
        lines.append(line)
        if columns.label is not None:
            labels.append(columns.plain(cells[columns.label]))
        numbers.extend(columns.number(cell, line, i) for i, cell in enumerate(cells) if i != columns.label)
    if not lines:
        raise ConfigError(f"data set '{columns.name}' is empty; give one sample a line")
    x = np.frombuffer(numbers, np.float64).reshape(len(lines), -1)
    return Table(x, None if columns.label is None else tuple(labels), tuple(lines))


def classes_of(table: Table, name: str) -> tuple[Array, tuple[str, ...] | None]:
    """The labels as numbers, and their names if they are texts: then a number is a name's place in the alphabet."""
    labels = table.labels or ()
    numeric = [_is_number(label) for label in labels]
    if all(numeric):
        return np.array([float(label) for label in labels]), None
    if any(numeric):
        odd = numeric.index(sum(numeric) * 2 <= len(numeric))
        others = "texts" if numeric[odd] else "numbers"
        raise ConfigError(
            f"data set '{name}', line {table.lines[odd]}: the label is '{labels[odd][:40]}', most others are {others};"
            " give all labels as numbers, or all as texts"
        )
    names = sorted(set(labels))
    if len(names) > max(20, len(labels) // 2):
        raise ConfigError(
            f"data set '{name}' has {len(names)} different texts as labels in {len(labels)} lines (such as"
            f" '{names[0][:40]}'); name the column of the labels '{LABELS[0]}'"
        )
    if "" in names:
        empty = table.lines[labels.index("")]
        raise ConfigError(f"data set '{name}', line {empty}: the label is empty; fill it, or remove the line")
    place = {label: i for i, label in enumerate(names)}
    return np.array([place[label] for label in labels], np.int64), tuple(names)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
