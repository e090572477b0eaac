"""Lines of a text file, none of which may be endless."""

from collections.abc import Iterator
from typing import TextIO

LONGEST = 1 << 20  # characters of one line


class LineTooLong(ValueError):  # noqa: N818 - what it is
    """A line has no end where lines of data end."""


def short_lines(file: TextIO, longest: int = LONGEST) -> Iterator[str]:
    """Yield the lines of a file; raise `LineTooLong` at one that is too long, without having read all of it."""
    while line := file.readline(longest + 1):
        if len(line) > longest:
            raise LineTooLong(f"a line is longer than {longest} characters")
        yield line
