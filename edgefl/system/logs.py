"""Logging: one line per thing that happened, on stderr.

Whatever a line quotes, it stays one line; a traceback is indented, so that nothing in it looks like a line of the log.

A record stays on this machine, because it may quote values of the data. It may be told to others only if it is marked
where it is logged: `extra=TOLD` if the message itself is free of data, `extra=tells(text)` if only `text` is.
"""

import logging
import sys
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import TextIO

from edgefl.base.errors import ConfigError
from edgefl.base.printable import printable

LEVELS = ("debug", "info", "warning", "error")
FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
TOLD: Mapping[str, object] = {"told": True}
KEPT, LONGEST = 100, 300  # lines that are remembered, and characters of each


def tells(text: str) -> Mapping[str, object]:
    """Return the mark of a record of which others are told `text` instead; an empty text is not told."""
    return {"told": text}


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


class RecentLines(logging.Handler):
    """Remembers the last records that are marked as free of data, as lines without control characters.

    A traceback is never among them, and of a record without a mark nothing, not even that there was one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._times = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        mark = vars(record).get("told")
        text = record.getMessage() if mark is True else mark
        if text and isinstance(text, str):
            line = f"{self._times.formatTime(record)} {record.levelname:<7} {record.name}: {printable(text)}"
            self._lines.append(line[:LONGEST])

    def lines(self) -> tuple[str, ...]:
        """Return them, the newest last."""
        self.acquire()
        try:
            return tuple(self._lines)
        finally:
            self.release()


def set_up(level: str) -> None:
    """Log at this level from here on."""
    if level not in LEVELS:
        raise ConfigError(f"--log {level}: choose one of {', '.join(LEVELS)}")
    handler = _Stderr()
    handler.setFormatter(LineFormatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
