"""Rows of Parquet files. pyarrow is needed, which is an extra: pip install 'edgefl[parquet]'.

It is loaded in a process of its own, which ends when the table is read: an agent would keep its 50 MB for good.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from edgefl.data.reading import Reading
from edgefl.data.table import Row, Rows, Table, packed, read, unpacked
from edgefl.errors import ConfigError
from edgefl.system.processes import python

BATCH = 4096  # rows that are in memory as Python's own numbers at once
LONGEST = 3600.0  # seconds for one table


def read_parquet(paths: Sequence[Path], name: str, reading: Reading, *, features: int | None = None) -> Table:
    """The table in these files, one behind another."""
    if find_spec("pyarrow") is None:
        raise ConfigError(f"data set '{name}' needs pyarrow, which is not installed: pip install 'edgefl[parquet]'")
    keys = reading.model_dump(mode="json", include=set(Reading.model_fields))
    order = json.dumps({"paths": [str(path) for path in paths], "name": name, "reading": keys, "features": features})
    command = python("edgefl.data.parquet_rows")
    try:
        done = subprocess.run(command, input=order.encode(), capture_output=True, timeout=LONGEST, check=False)  # noqa: S603 - ours
    except subprocess.TimeoutExpired:
        raise ConfigError(f"data set '{name}': reading it takes more than {LONGEST:.0f} s; give fewer rows") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise ConfigError(lines[-1])
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
    except (pyarrow.ArrowException, OSError) as error:
        why = " ".join(str(error).split())[:200]
        raise ConfigError(f"data set '{name}': cannot be read as Parquet ({why})") from None


def _rows(file: Any) -> Iterator[Row]:  # Any: pyarrow has no types
    number = 0
    for batch in file.iter_batches(batch_size=BATCH, use_threads=False):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number += 1
            yield number, row


def main() -> None:
    """Read what stdin orders, and give the table to stdout; a mistake is one line, and exit code 2."""
    order = json.load(sys.stdin)
    paths = [Path(path) for path in order["paths"]]
    try:
        table = read_here(paths, order["name"], Reading(**order["reading"]), order["features"])
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    whole = BytesIO()
    packed(table, whole)
    sys.stdout.buffer.write(whole.getbuffer())


if __name__ == "__main__":
    main()
