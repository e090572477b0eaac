"""The rows of a .csv file, as people and loggers write them.

Cells are divided by tabs, semicolons, bars or commas (numbers may have a decimal comma where it divides nothing), or by
blanks where there are none of these. A first line without numbers is a header; so is one that names a column that
`[data]` names, one that names the label's column, and one that begins with '#'.
"""

import codecs
import csv
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from edgefl.base.errors import ConfigError
from edgefl.learn.data.cells import is_number, looks_like_time
from edgefl.learn.data.lines import LONGEST, LineTooLong, short_lines
from edgefl.learn.data.reading import Reading
from edgefl.learn.data.source import reading
from edgefl.learn.data.table import LABELS, Rows, Table, read

DELIMITERS = ("\t", ";", "|", ",", " ")
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def read_csv(
    paths: Sequence[Path], name: str, settings: Reading | None = None, *, features: int | None = None
) -> Table:
    """The table in these files, called `name` in messages (one of several by its own name).

    There must be labels, unless it is known how many `features` there are.
    """
    settings = settings or Reading()
    return read(_files(paths, name, settings), settings, name, features=features)


def _files(paths: Sequence[Path], name: str, settings: Reading) -> Iterator[Rows]:
    """The rows of each file; it is open while they are walked."""
    labels = settings.label if isinstance(settings.label, tuple) else (settings.label,)
    titles = (*(settings.columns or ()), *labels, settings.time, settings.group)
    words = {title.lower() for title in titles if title and not is_number(title)}
    for path in paths:
        called = name if len(paths) == 1 else path.name
        with reading(path):
            encoding = settings.encoding or _encoding(path)
            file = path.open(encoding=encoding, newline="")
        with file:
            yield _opened(file, called, words)


def _encoding(path: Path) -> str:
    """What the first bytes of a file say about the others; UTF-8 if nothing."""
    with path.open("rb") as file:
        start = file.read(4)
    return next((encoding for mark, encoding in MARKS if start.startswith(mark)), "utf-8")


def _opened(file: TextIO, name: str, words: Collection[str]) -> Rows:
    with _blaming(name):
        delimiter = _delimiter(file)
    comma = delimiter != ","
    rows = _walk(file, delimiter, name)
    remark: list[str] | None = None
    first = next(rows, None)
    while first and first[1][0].startswith("#"):
        remark, first = first[1], next(rows, None)
    if first is None:
        return Rows(name, None, 0, iter(()))
    titles = tuple(cell.lstrip("# ") for cell in remark) if remark and len(remark) == len(first[1]) else None
    if titles is None and (titles := _header(first[1], words, comma)):
        return Rows(name, titles, len(titles), rows, decimal_comma=comma)
    return Rows(name, titles, len(first[1]), chain([first], rows), decimal_comma=comma)


def _delimiter(file: TextIO) -> str:
    """What divides the cells of this file, which is left at its beginning."""
    filled = next((line for line in short_lines(file) if line.strip() and not line.startswith("#")), "")
    file.seek(0)
    return next((d for d in DELIMITERS if len(next(csv.reader([filled], delimiter=d), [])) > 1), ",")


def _walk(file: TextIO, delimiter: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that hold something."""
    row = _RowLength(file)
    reader = csv.reader(row, delimiter=delimiter, skipinitialspace=True)
    with _blaming(name, reader):
        for cells in reader:
            row.length = 0
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                yield reader.line_num, stripped


class _RowLength:
    """The lines of a file, counted until a row ends: one that is in quotes may have many lines."""

    def __init__(self, file: TextIO) -> None:
        self.length, self.lines = 0, short_lines(file)

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            self.length += len(line)
            if self.length > LONGEST:
                raise LineTooLong(f"a row is longer than {LONGEST} characters")
            yield line


@contextmanager
def _blaming(name: str, reader: Any = None) -> Iterator[None]:  # Any: csv's reader has no class to name
    """Turns what a file that is no .csv, or written otherwise than was said, does to its reader into one line."""

    def where() -> str:
        return f"data set '{name}'" + (f", {place()}" if reader else "")

    def place() -> str:
        return f"line {reader.line_num + 1}" if reader else "its beginning"

    try:
        yield
    except UnicodeDecodeError as error:
        odd = error.object[error.start]
        raise ConfigError(
            f"{where()}: byte {odd:#04x} is not {error.encoding};"
            " set data.encoding = 'cp1252' (Windows) or another one",
            told=f"{place()}: a byte is not {error.encoding}; set data.encoding",
        ) from None
    except (csv.Error, LineTooLong) as error:
        raise ConfigError(
            f"{where()}: {error}; is it a .csv file?", told=f"{place()}: cannot be read as .csv"
        ) from None
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"data set '{name}': cannot be read ({error})", told="a file cannot be read") from None


def _header(cells: Sequence[str], words: Collection[str], decimal_comma: bool) -> tuple[str, ...] | None:
    """The titles of the columns, if this line has them."""
    numbers = [cell for cell in cells if is_number(cell.replace(",", ".") if decimal_comma else cell)]
    counted = numbers in ([str(i) for i in range(k, k + len(numbers))] for k in (0, 1))
    labelled = any(cell.lower() in set(LABELS) - {"y"} for cell in cells)  # "1,2,y" may well be a sample
    named = any(cell.lower() in words for cell in cells)
    titled = not numbers and not any(looks_like_time(cell) for cell in cells)
    return tuple(cells) if titled or named or (counted and labelled) else None
