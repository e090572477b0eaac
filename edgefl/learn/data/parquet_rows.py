"""Rows of Parquet files. pyarrow is needed, which is an extra: pip install 'edgefl[parquet]'.

It is loaded in a process of its own, which ends when the table is read: an agent would keep its 50 MB for good. On
Linux it has a limit of memory, because a page of a small file may stand for many gigabytes: a text that each row
repeats.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from edgefl.base.errors import ConfigError
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.reading import Reading
from edgefl.learn.data.table import Row, Rows, Table, packed, read, unpacked
from edgefl.system.portable import LINUX
from edgefl.system.processes import python

BATCH = 4096  # rows that are in memory as Python's own numbers at once
LONGEST = 3600.0  # seconds for one table
ROOM = 256 << 20  # bytes of memory for a batch, beside the table and what it becomes while it is sent
TOO_LARGE = 3  # exit code


def read_parquet(paths: Sequence[Path], name: str, reading: Reading, *, features: int | None = None) -> Table:
    """The table in these files, one behind another."""
    if find_spec("pyarrow") is None:
        raise ConfigError(
            f"data set '{name}' needs pyarrow, which is not installed: pip install 'edgefl[parquet]'",
            told="it needs pyarrow, which is not installed: pip install 'edgefl[parquet]'",
        )
    keys = reading.model_dump(mode="json", include=set(Reading.model_fields))
    order = json.dumps({"paths": [str(path) for path in paths], "name": name, "reading": keys, "features": features})
    command = python("edgefl.learn.data.parquet_rows")
    try:
        done = subprocess.run(command, input=order.encode(), capture_output=True, timeout=LONGEST, check=False)  # noqa: S603 - ours
    except subprocess.TimeoutExpired:
        told = f"reading it takes more than {LONGEST:.0f} s; give fewer rows"
        raise ConfigError(f"data set '{name}': {told}", told=told) from None
    if done.returncode == TOO_LARGE:
        DataLimit(f"data set '{name}'", reading.most_mb).refuse()
    if done.returncode:
        if done.returncode == ConfigError.exit_code:
            why, told = json.loads(done.stdout)
            raise ConfigError(why, told=told)
        told = f"its reader ended with exit code {done.returncode}; check the file"
        raise ConfigError(f"data set '{name}': {told}", told=told)
    return unpacked(done.stdout)


def read_here(paths: Sequence[Path], name: str, reading: Reading, features: int | None) -> Table:
    """The same, in this process."""
    import pyarrow  # noqa: PLC0415 - an extra, and large
    from pyarrow import parquet  # noqa: PLC0415

    def files() -> Iterator[Rows]:
        for path in paths:
            called = name if len(paths) == 1 else path.name
            with parquet.ParquetFile(path) as file:
                titles = tuple(file.schema_arrow.names)
                yield Rows(called, titles, len(titles), _rows(file), word="row")

    try:
        return read(files(), reading, name, features=features)
    except MemoryError:  # pyarrow's is one too
        DataLimit(f"data set '{name}'", reading.most_mb).refuse()
    except (pyarrow.ArrowException, OSError) as error:
        why = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"data set '{name}': cannot be read as Parquet ({why})", told="it cannot be read as Parquet"
        ) from None


def _rows(file: Any) -> Iterator[Row]:  # Any: pyarrow has no types
    number = 0
    for batch in file.iter_batches(batch_size=BATCH, use_threads=False):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number += 1
            yield number, row


def main() -> None:
    """Read what stdin orders, and give the table to stdout; or what is wrong with them, and exit code 2."""
    order = json.load(sys.stdin)
    paths, reading = [Path(path) for path in order["paths"]], Reading(**order["reading"])
    try:
        _limit_memory(DataLimit(order["name"], reading.most_mb).left)
        table = read_here(paths, order["name"], reading, order["features"])
        whole = BytesIO()
        packed(table, whole)
    except MemoryError:
        sys.exit(TOO_LARGE)
    except ConfigError as error:
        sys.stdout.write(json.dumps((str(error), error.told)))
        sys.exit(error.exit_code)
    sys.stdout.buffer.write(whole.getbuffer())


def _limit_memory(most: int) -> None:
    """Let this process take the memory of such a table, three times (numbers, texts, what is sent), and of a batch."""
    if LINUX:
        import pyarrow  # noqa: F401, PLC0415 - what it takes is not the table's

        from edgefl.system.confinement import limit_data  # noqa: PLC0415 - Windows has no such limits

        limit_data(3 * most + ROOM)


if __name__ == "__main__":
    main()
