"""What somebody who watches a run knows: every fact folded into one picture. Pure; a view only has to draw it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from edgefl import events
from edgefl.events import Fact


class Doing(Enum):
    """What a device was last heard of."""

    IDLE = "idle"
    ASKED = "asked"
    TRAINING = "training"
    SENDING = "sending"
    ANSWERED = "answered"
    BUSY = "busy"
    DECLINED = "declined"
    REFUSED = "refused"
    QUARANTINED = "in quarantine"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Seen:
    """One device, as it is seen from outside."""

    id: str
    doing: Doing = Doing.IDLE
    why: str = ""  # in its own words
    steps: int = 0
    samples: int = 0
    seconds_per_step: float | None = None
    bytes_up: int = 0
    live: bool = True  # it was here in this life of the coordinator; if not, only the broker remembers it
    gone: float = 0.0  # since when it is away

    @property
    def online(self) -> bool:
        return self.doing is not Doing.OFFLINE


@dataclass(frozen=True, slots=True)
class Picture:
    """Where a run stands."""

    started: events.Started = events.Started("", "")  # noqa: RUF009 - it never changes
    opening: events.Evaluating | None = None
    last: events.Round | None = None
    round: int = 1  # the one in hand
    waiting: str = ""
    devices: Mapping[str, Seen] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()  # in the round that is open
    answered: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()
    bytes_up: int = 0
    bytes_down: int = 0


def fold(p: Picture, fact: Fact, now: float) -> Picture:  # noqa: PLR0911, PLR0912, C901  one fact, one case
    """The picture after this fact."""
    match fact:
        case events.Started():
            return replace(p, started=fact)
        case events.Evaluating():
            return replace(p, opening=fact)
        case events.Waiting(reason=reason):
            return replace(p, waiting=reason)
        case events.Resumed(round=round):
            return replace(p, round=max(p.round, round))
        case events.Joined(device=device, samples=samples):
            return _seen(p, device, doing=Doing.IDLE, why="", samples=samples, live=True)
        case events.Lost(device=device):
            known = p.devices.get(device)
            gone = known.gone if known and not known.online else now
            p = _seen(p, device, doing=Doing.OFFLINE, live=known is not None and known.live, gone=gone)
            return replace(p, awaited=p.awaited - {device})
        case events.Asked(round=round, devices=devices, bytes_down=bytes_down):
            for device in devices:
                p = _seen(p, device, doing=Doing.ASKED, why="")
            asked, awaited = p.asked.union(devices), p.awaited.union(devices)
            return replace(p, round=round, asked=asked, awaited=awaited, bytes_down=p.bytes_down + bytes_down)
        case events.Progressed(device=device, steps=steps):
            return _seen(p, device, doing=Doing.TRAINING, steps=steps)
        case events.Sending(device=device):
            return _seen(p, device, doing=Doing.SENDING)
        case events.Answered():
            return _answered(p, fact)
        case events.Declined(device=device, reason=reason):
            return _seen(replace(p, awaited=p.awaited - {device}), device, doing=Doing.DECLINED, why=reason)
        case events.Busy(device=device, reason=reason):
            return _seen(p, device, doing=Doing.BUSY, why=reason)
        case events.Quarantined(device=device) if device in p.devices:
            return _seen(p, device, doing=Doing.QUARANTINED)
        case events.Released(device=device):
            return _seen(p, device, doing=Doing.IDLE)
        case events.Closed(round=round, devices=devices):
            return _at_rest(replace(p, waiting=f"round {round}: merging {len(devices)} answers"))
        case events.Abandoned():
            return _at_rest(p)
        case events.Done(rounds=rounds, model_sha256=digest):
            model = f", model {digest[:16]}" if digest else ""
            return replace(p, waiting=f"finished after {rounds} rounds{model}")
        case events.Round():
            devices_now = {
                id: replace(one, doing=Doing.IDLE) if _is_over(one) else one for id, one in p.devices.items()
            }
            return replace(p, last=fact, round=max(p.round, fact.round + 1), devices=devices_now)
        case _:
            return p


def _at_rest(p: Picture) -> Picture:
    """No round is open."""
    return replace(p, asked=frozenset(), answered=frozenset(), awaited=frozenset())


def _seen(p: Picture, id: str, **changed: object) -> Picture:
    device = replace(p.devices.get(id, Seen(id)), **changed)  # type: ignore[arg-type]  # fields of Seen, all of them
    return replace(p, devices={**p.devices, id: device})


def _answered(p: Picture, fact: events.Answered) -> Picture:
    id, device = fact.device, p.devices.get(fact.device, Seen(fact.device))
    doing = {"accepted": Doing.ANSWERED, "refused": Doing.REFUSED}.get(fact.verdict, Doing.IDLE)
    pace, sent = fact.seconds_per_step or device.seconds_per_step, device.bytes_up + fact.bytes
    p = _seen(p, id, doing=doing, why=fact.reason, bytes_up=sent, seconds_per_step=pace)
    p = replace(p, bytes_up=p.bytes_up + fact.bytes, awaited=p.awaited - {id})
    return replace(p, answered=p.answered | {id}) if fact.verdict == "accepted" else p


def _is_over(device: Seen) -> bool:
    """Whether what it did was for a round that is merged."""
    return device.doing not in (Doing.OFFLINE, Doing.QUARANTINED, Doing.ASKED, Doing.TRAINING, Doing.SENDING)
