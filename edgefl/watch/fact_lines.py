"""Facts in words: as a line of the log, and as a line of the story."""

import logging
import time
from dataclasses import fields

from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.base.printable import printable
from edgefl.watch.overview.sentences import is_names, words

ALARMING = events.Refused, events.Quarantined, events.Paused, events.Resumed


def write_log(log: logging.Logger, fact: Fact) -> None:
    """One line: info is the story of a healthy run, a warning means that an operator should look."""
    level = logging.WARNING if isinstance(fact, ALARMING) else logging.INFO if fact.lasting else logging.DEBUG
    if log.isEnabledFor(level):
        log.log(level, "%s", log_line(fact))


def log_line(fact: Fact) -> str:
    """What happened, in key=value form, without what is long."""
    named = {one.name: getattr(fact, one.name) for one in fields(fact) if one.name != "at"}
    shown = {name: ",".join(value) if is_names(value) else value for name, value in named.items()}
    plain = [f"{name}={value}" for name, value in shown.items() if isinstance(value, str | int | float) and value != ""]
    return " ".join([type(fact).__name__.lower(), *plain])


def line(fact: Fact) -> str:
    """When, and what."""
    day = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(fact.at))
    return f"{day}.{int(fact.at * 1000) % 1000:03d}  {printable(words(fact))}"
