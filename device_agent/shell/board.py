"""What this machine is, as long as it runs: a device says so in its presence, and `rounds.where` may ask for it."""

import os
from dataclasses import dataclass
from pathlib import Path

MEMORY = "proc/meminfo"


@dataclass(frozen=True, slots=True)
class Board:
    """A machine; what it does not tell is empty or None."""

    arch: str = ""  # the kind of its processor, as `uname -m` says
    memory_mb: int | None = None  # MiB that its system can use: a little less than is built in


def measured(root: Path = Path("/")) -> Board:
    """Return what this machine is; `root` is where /proc is."""
    return Board(os.uname().machine, _memory_mb(root / MEMORY))


def _memory_mb(path: Path) -> int | None:
    """Return the total that the kernel tells, or None."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        match line.split():
            case ["MemTotal:", amount, "kB"] if amount.isdecimal():
                return int(amount) // 1024
    return None
