"""Logging: one line per thing that happened, on stderr.

Whatever a line quotes, it stays one line; a traceback is indented, so that nothing in it looks like a line of the log.
"""

import logging
import sys
from types import TracebackType
from typing import TextIO

from edgefl.base.errors import ConfigError
from edgefl.base.printable import printable

LEVELS = ("debug", "info", "warning", "error")
FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class LineFormatter(logging.Formatter):
    """One line per record, and nothing in it that a terminal would obey."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(  # noqa: N802 - logging's name
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).splitlines())


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever stderr is by then: a live view puts itself there, so that no line tears its picture."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        """There is only one."""


def set_up(level: str) -> None:
    """Log at this level from here on."""
    if level not in LEVELS:
        raise ConfigError(f"--log {level}: choose one of {', '.join(LEVELS)}")
    handler = _Stderr()
    handler.setFormatter(LineFormatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
