"""How much memory one data source may take: `[data] most_mb`, checked before the memory is taken.

A small file may stand for very much: an archive, a compressed image, a view of a database. Each reader of a file adds
up what it is about to hold, from the headers where a format has any, and a source above the limit is refused.
"""

from typing import NoReturn

from edgefl.base.errors import ConfigError
from edgefl.system.portable import memory_size

USUAL_MB = 2048  # the largest default


def usual_mb() -> int:
    """Return what a source may hold unless `[data] most_mb` says it: half of the machine's memory, at most 2048 MB."""
    return max(1, min(USUAL_MB, memory_size() // 2 >> 20))


class DataLimit:
    """Counts the bytes that the samples of one source take."""

    def __init__(self, name: str, most_mb: int | None = None) -> None:
        self.name, self.most_mb = name, most_mb or usual_mb()
        self.left = self.most_mb << 20

    def take(self, size: int) -> None:
        """Count `size` more bytes; raise `ConfigError` if the source then holds more than it may."""
        self.left -= size
        if self.left < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise the `ConfigError` of a source that is too large."""
        most = self.most_mb
        raise ConfigError(
            f"{self.name}: takes more than {most} MB of memory; give fewer samples, or raise data.most_mb",
            told=f"it takes more than {most} MB of memory; give fewer samples, or raise data.most_mb",
        )
