"""A fact as a sentence, for people: one line, without its time."""

from collections.abc import Mapping
from dataclasses import fields

from edgefl.base import events
from edgefl.base.events import Fact, as_json
from edgefl.base.printable import printable
from edgefl.base.vitals import described
from edgefl.learn.evaluation import wording
from edgefl.system.moments import date

LINE = 300  # letters of a text from a device
VERDICTS = {
    "late": "{device} answered round {round} too late: {reason}",
    "ignored": "an answer of {device} to round {round} is not counted: {reason}",
    "refused": "an answer of {device} to round {round} cannot be used: {reason}",
}
SENTENCES: dict[type[Fact], str] = {
    events.Joined: "{device} is connected",
    events.DataMended: "{device} can use its data again",
    events.Excluded: "{device} is not asked, rounds.where does not mean it: {reason}",
    events.Included: "{device} is asked from now on: rounds.where means it",
    events.Declined: "{device} declined round {round}: {reason}",
    events.Busy: "{device} works for another run first, then on round {round}: {reason}",
    events.Refused: "a message of {device} cannot be used ({code}): {reason}",
    events.Quarantined: "{device} is in quarantine: {reason}",
    events.Released: "the quarantine of {device} has ended",
    events.Certified: "{device} has a new certificate",
    events.Asked: "round {round} asks {devices}",
    events.Extended: "the deadline of round {round} has passed; the round is extended for {missing}",
    events.Abandoned: "round {round} is abandoned: {reason}",
    events.Resumed: "the coordinator has resumed the run, in round {round}",
    events.Connected: "connected to the broker",
    events.Disconnected: "no connection to the broker: {reason}",
    events.Interrupted: "no coordinator is running",
    events.Paused: "the run is paused: {reason}",
    events.Failed: "the run failed: {reason}",
    events.Done: "finished after {rounds} rounds, model {model_sha256:.16}",
    events.Changed: "{key} is {now} from now on; it was {before}",
}


def words(fact: Fact) -> str:  # noqa: C901, PLR0911, PLR0912  one fact, one line
    """Return the sentence that says what happened."""
    values = {one.name: getattr(fact, one.name) for one in fields(fact)}
    values = {name: ", ".join(value) if is_names(value) else value for name, value in values.items()}
    match fact:
        case events.Lost(device=device, reason=reason):
            return f"{device} is disconnected" + (f": {reason}" if reason else "")
        case events.DataBroken(device=device):
            return f"{device} {trouble_of(fact)}"
        case events.Enrolled():
            return f"{len(fact.devices)} devices belong to the run: {values['devices']}"
        case events.Labelled(labels=labels):
            each = (f"{name} ({_pairs(of_device) or 'none'})" for name, of_device in labels.items())
            return f"labels of devices: {', '.join(each)}"
        case events.Expired(device=device, ended=ended, remedy=remedy):
            return f"{device} cannot connect: its certificate expired on {date(ended)}" + (
                f": {remedy}" if remedy else ""
            )
        case events.Refused(device=device, barred=True, reason=reason):
            return f"{device} does not take part: {reason}"
        case events.Answered(verdict="accepted", took=took, steps=steps, seconds_per_step=pace):
            took_so = "" if took is None else f", {took:.1f} s after it was asked"
            paced = "" if pace is None else f", {1000 * pace:.1f} ms a step"
            return f"{fact.device} answered round {fact.round}{took_so}: {steps} steps{paced}"
        case events.Answered(verdict=verdict):
            return VERDICTS[verdict].format(**values)
        case events.Closed(missing=missing, late=late):
            without = f", without {', '.join(missing)}" if missing else ""
            more = f", and late ones of {', '.join(late)}" if late else ""
            return f"round {fact.round} is closed with the answers of {values['devices']}{more}{without}"
        case events.Evaluating():
            return f"the run {wording.evaluating(fact)}"
        case events.Described():
            return wording.described(fact)
        case events.Inherited():
            return f"the run {wording.inherited(fact)}"
        case events.LeftOut(device=device, times=times):
            kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(times.items()))
            return f"{device} did this {sum(times.values()):,} times more in this hour: {kinds}"
        case events.Vitals(device=device):
            return f"{device} reports: {described(as_json(fact))}"
        case events.Evaluated(round=round):
            return f"devices evaluated the model after round {round}: {wording.evaluated(fact)}"
        case events.Asked(round=round, purpose="evaluate"):
            return f"{values['devices']} are asked to evaluate the last model"
        case events.Round():
            scores = wording.scores(fact)
            return f"round {fact.round} is merged after {fact.seconds:.1f} s" + (f": {scores}" if scores else "")
        case _ if type(fact) in SENTENCES:
            return SENTENCES[type(fact)].format(**values)
        case _:
            plain = " ".join(
                f"{name}={value}" for name, value in events.as_json(fact).items() if name not in ("event", "at")
            )
            return f"{type(fact).__name__.lower()} {plain}"


def trouble_of(fact: events.DataBroken) -> str:
    """Return what is wrong with the data of a device."""
    if fact.samples_from is None:
        return f"has no usable data: {fact.reason}"
    return f"trains on samples from {date(fact.samples_from)}: {fact.reason}"


def about(fact: Fact, device: str) -> str:
    """Return the sentence in the story of this device: what the fact means to it."""
    match fact:
        case events.Asked(purpose="evaluate"):
            return "asked to evaluate the last model"
        case events.Asked(round=round):
            return f"asked for round {round}"
        case events.Extended(round=round):
            return f"the deadline of round {round} has passed, and this device gets more time"
        case events.Closed(round=round):
            return f"round {round} is closed without it"
        case _:
            return words(fact).removeprefix(f"{device} ")


def cut(text: str) -> str:
    """Cut a text to the length of a line, and drop what cannot be printed."""
    return printable(text[:LINE])


def _pairs(labels: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in labels.items())


def is_names(value: object) -> bool:
    """Return whether these are names of devices or of classes."""
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
