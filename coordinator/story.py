"""The story of a run, from its journal, in words."""

import json
import time
from collections.abc import Iterator
from typing import Any

from coordinator.journal import Journal
from edgefl.printable import printable
from edgefl.system.disk import Disk

TOLD = {
    "joined": "{device} is there",
    "lost": "{device} is gone",
    "answered": "{device} answered round {round}",
    "declined": "{device} declined round {round}: {reason}",
    "busy": "{device} works for another run first, then on round {round}: {reason}",
    "asked": "round {round} asks {devices}",
    "expired": "the time of round {round} is up",
    "closed": "round {round} is closed with the answers of {devices}",
    "abandoned": "round {round} is given up: {reason}",
    "merged": "round {round} is merged",
    "resumed": "the coordinator is back",
    "changed": "{key} is {now} from now on; it was {before}",
}


def lines(disk: Disk, device: str | None = None, round: int | None = None, *, as_json: bool = False) -> Iterator[str]:
    """One line for each thing that happened; whose run it is may be at work meanwhile."""
    for at, what, detail in Journal(disk, reading=True).story(device, round):
        yield json.dumps({"at": at, "event": what, **detail}) if as_json else _line(at, what, detail)


def _line(at: float, what: str, detail: dict[str, Any]) -> str:
    day = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    told = {key: ", ".join(value) if isinstance(value, list) else value for key, value in detail.items()}
    plain = what + " " + " ".join(f"{key}={value}" for key, value in told.items())
    words = TOLD[what].format(**{"reason": "-", **told}) if what in TOLD else plain
    return f"{day}.{int(at * 1000) % 1000:03d}  {printable(words)}"
