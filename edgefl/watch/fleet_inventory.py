"""Who was seen in a run, for the inventory of its fleet: one more reader of the facts."""

import logging
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from edgefl.base import events
from edgefl.base.errors import StoreError
from edgefl.base.events import Fact
from edgefl.fleet import last_seen
from edgefl.fleet.last_seen import Sighting
from edgefl.watch.overview.sentences import about, cut, trouble_of
from edgefl.wire.messages import NOT_IN_RUN

log = logging.getLogger(__name__)

EVERY = 60.0  # seconds between two writes, unless a device comes for the first time


@dataclass(slots=True)
class _Seen:
    """A device of this run."""

    at: float
    reason: str = ""
    since: float | None = None  # the reason holds
    data_trouble: tuple[str, float] | None = None  # what is wrong with its data, and since when: answers do not mend it
    version: str = ""
    host: str = ""
    elsewhere: bool = False  # the run is for other devices, and says nothing of this one but that it was heard
    joined: events.Joined | None = None  # what it said of itself when it last came


class LastSeenWriter:
    """Writes them down once in a while. No run depends on it: what cannot be written is only logged."""

    def __init__(self, file: Path, run: str) -> None:
        self.file, self.run = file, run
        self._seen: dict[str, _Seen] = {}
        self._news: set[str] = set()  # not written yet; the rest may have been forgotten by an operator
        self._written_at = 0.0

    def __call__(self, fact: Fact) -> None:  # noqa: C901  one fact, one case
        match fact:
            case events.Joined(device=device, version=version, host=host):
                if device not in self._seen:  # one that comes and goes is not written each time
                    self._written_at = 0.0
                before = self._seen.get(device)
                broken = before.data_trouble if before and fact.stale else None
                self._seen[device] = _Seen(fact.at, data_trouble=broken, version=version, host=host, joined=fact)
                if fact.stale:  # what is wrong with its data is told next, and written with it
                    return
            case events.DataBroken(device=device):
                self._broken(fact)
            case events.DataMended(device=device) if device in self._seen:
                self._seen[device].data_trouble = None
            case events.Refused(device=device, barred=True):
                elsewhere = fact.code == NOT_IN_RUN
                seen = self._heard(device, fact, "" if elsewhere else cut(about(fact, device)))
                seen.version, seen.host, seen.elsewhere = cut(fact.version), cut(fact.host), elsewhere
            case events.Answered(device=device):
                self._heard(device, fact, "")
            case events.Declined(device=device) | events.Busy(device=device):
                self._heard(device, fact, cut(about(fact, device)))
            case events.Lost(device=device) | events.Quarantined(device=device) if device in self._seen:
                seen = self._seen[device]
                seen.reason, seen.since = cut(about(fact, device)), fact.at
            case _:
                return
        self._news.add(device)
        if fact.at - self._written_at >= EVERY:
            self._written_at = fact.at
            self.write()

    def write(self) -> None:
        """What was seen since the last time."""
        news = {device: self._sighting(self._seen[device]) for device in self._news}
        if not news:
            return
        try:
            last_seen.write(self.file, news)
        except StoreError as error:
            log.warning("the list of devices seen is not written why=%s", error)
        else:
            self._news.clear()

    def _heard(self, device: str, fact: Fact, reason: str) -> _Seen:
        if device not in self._seen:
            self._written_at = 0.0
        seen = self._seen.setdefault(device, _Seen(fact.at))
        since = seen.since if reason and seen.reason == reason else fact.at
        seen.at, seen.reason, seen.since = fact.at, reason, since if reason else None
        return seen

    def _broken(self, fact: events.DataBroken) -> None:
        seen = self._heard(fact.device, fact, "")
        trouble = cut(trouble_of(fact))
        before = seen.data_trouble
        if before is None or before[0] != trouble:
            seen.data_trouble, self._written_at = (trouble, before[1] if before else fact.at), 0.0
        seen.version, seen.host = cut(fact.version) or seen.version, cut(fact.host) or seen.host

    def _sighting(self, seen: _Seen) -> Sighting:
        reason, since = (seen.reason, seen.since) if seen.reason or not seen.data_trouble else seen.data_trouble
        at, began = _moment(seen.at), None if since is None else _moment(since)
        runs = () if seen.elsewhere else (self.run,)
        about = {"version": seen.version, "host": seen.host, "reason": reason, "since": began, "runs": runs}
        return Sighting(at=at, **about, **_measured(seen.joined))


def _measured(joined: events.Joined | None) -> dict[str, str | int | None]:
    """Return the properties that a device told of itself, as far as they may be written down."""
    if joined is None:
        return {}
    words = {"arch": cut(joined.arch), "backend": cut(joined.back_end).partition(" ")[0]}
    return {**words, "memory_mb": joined.memory_mb, "samples": joined.samples}


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc)
