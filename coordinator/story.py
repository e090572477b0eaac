"""The story of a run, from its journal, in words."""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import fields

from coordinator.journal import Journal
from edgefl import events
from edgefl.evaluation import wording
from edgefl.events import Fact
from edgefl.printable import printable
from edgefl.system.disk import Disk

ALARMING = events.Refused, events.Quarantined, events.Paused, events.Resumed
VERDICTS = {
    "late": "{device} answered round {round} too late: {reason}",
    "ignored": "an answer of {device} to round {round} is not counted: {reason}",
    "refused": "an answer of {device} to round {round} cannot be used: {reason}",
}
TOLD: dict[type[Fact], str] = {
    events.Joined: "{device} is there",
    events.Declined: "{device} declined round {round}: {reason}",
    events.Busy: "{device} works for another run first, then on round {round}: {reason}",
    events.Refused: "a message of {device} cannot be used ({code}): {reason}",
    events.Quarantined: "{device} is not heard for a while: {reason}",
    events.Released: "{device} is heard again",
    events.Certified: "{device} has a new certificate",
    events.Asked: "round {round} asks {devices}",
    events.Extended: "the time of round {round} is up, and goes on for {missing}",
    events.Abandoned: "round {round} is given up: {reason}",
    events.Resumed: "the coordinator is back, in round {round}",
    events.Connected: "the broker is there",
    events.Disconnected: "the broker is gone: {reason}",
    events.Paused: "nothing goes on: {reason}",
    events.Done: "finished after {rounds} rounds, model {model_sha256:.16}",
    events.Changed: "{key} is {now} from now on; it was {before}",
}


def write_log(log: logging.Logger, fact: Fact) -> None:
    """One line: info is the story of a healthy run, a warning means that somebody should look."""
    level = logging.WARNING if isinstance(fact, ALARMING) else logging.INFO if fact.lasting else logging.DEBUG
    if log.isEnabledFor(level):
        log.log(level, "%s", log_line(fact))


def log_line(fact: Fact) -> str:
    """What happened, in key=value form, without what is long."""
    named = {one.name: getattr(fact, one.name) for one in fields(fact) if one.name != "at"}
    shown = {name: ",".join(value) if _is_names(value) else value for name, value in named.items()}
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


def words(fact: Fact) -> str:  # noqa: PLR0911  one fact, one line
    """What happened, in words."""
    told = {one.name: getattr(fact, one.name) for one in fields(fact)}
    told = {name: ", ".join(value) if _is_names(value) else value for name, value in told.items()}
    match fact:
        case events.Lost(device=device, reason=reason):
            return f"{device} is gone" + (f": {reason}" if reason else "")
        case events.Answered(verdict="accepted", took=took, steps=steps, seconds_per_step=pace):
            took_so = "" if took is None else f", {took:.1f} s after it was asked"
            paced = "" if pace is None else f", {1000 * pace:.1f} ms a step"
            return f"{fact.device} answered round {fact.round}{took_so}: {steps} steps{paced}"
        case events.Answered(verdict=verdict):
            return VERDICTS[verdict].format(**told)
        case events.Closed(missing=missing, late=late):
            without = f", without {', '.join(missing)}" if missing else ""
            more = f", and late ones of {', '.join(late)}" if late else ""
            return f"round {fact.round} is closed with the answers of {told['devices']}{more}{without}"
        case events.Evaluating():
            return f"the run {wording.evaluating(fact)}"
        case events.Round():
            scores = wording.scores(fact)
            return f"round {fact.round} is merged after {fact.seconds:.1f} s" + (f": {scores}" if scores else "")
        case _ if type(fact) in TOLD:
            return TOLD[type(fact)].format(**told)
        case _:
            plain = " ".join(
                f"{name}={value}" for name, value in events.as_json(fact).items() if name not in ("event", "at")
            )
            return f"{type(fact).__name__.lower()} {plain}"


def _is_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
