"""Processes of a test whose words are kept, and shown when the test fails."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def logged(
    command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block; it writes into a file, because whoever writes to a full pipe waits."""
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=cwd) as process,
    ):
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            show(log)


def show(log: Path, most: int = 20_000) -> None:
    """Print the end of it: pytest shows it beside a test that failed, and nowhere else."""
    print(f"--- {log.name}\n{log.read_text(errors='replace')[-most:]}")
