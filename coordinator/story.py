"""The story of a run, from its journal, in words."""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import fields

from coordinator.journal import Journal
from coordinator.rounds import Rounds
from edgefl import events
from edgefl.errors import Interrupted
from edgefl.events import Fact
from edgefl.overview.words import is_names, words
from edgefl.printable import printable
from edgefl.system.disk import Disk

ALARMING = events.Refused, events.Quarantined, events.Paused, events.Resumed


def write_log(log: logging.Logger, fact: Fact) -> None:
    """One line: info is the story of a healthy run, a warning means that somebody should look."""
    level = logging.WARNING if isinstance(fact, ALARMING) else logging.INFO if fact.lasting else logging.DEBUG
    if log.isEnabledFor(level):
        log.log(level, "%s", log_line(fact))


def log_line(fact: Fact) -> str:
    """What happened, in key=value form, without what is long."""
    named = {one.name: getattr(fact, one.name) for one in fields(fact) if one.name != "at"}
    shown = {name: ",".join(value) if is_names(value) else value for name, value in named.items()}
    plain = [f"{name}={value}" for name, value in shown.items() if isinstance(value, str | int | float) and value != ""]
    return " ".join([type(fact).__name__.lower(), *plain])


def lines(disk: Disk, device: str | None = None, round: int | None = None, *, as_json: bool = False) -> Iterator[str]:
    """One line for each thing that happened; whose run it is may be at work meanwhile."""
    for fact in Journal(disk, reading=True).story(device, round):
        yield json.dumps(events.as_json(fact)) if as_json else line(fact)


def line(fact: Fact) -> str:
    """When, and what."""
    day = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(fact.at))
    return f"{day}.{int(fact.at * 1000) % 1000:03d}  {printable(words(fact))}"


def interrupted(run: str, s: Rounds, *, durable: bool) -> Interrupted:
    """The run was ended before its time."""
    where = "before the first round" if s.phase == "starting" else f"in round {s.round}"
    return Interrupted(f"run '{run}' was interrupted {where}" + "; the same command goes on with it" * durable)
