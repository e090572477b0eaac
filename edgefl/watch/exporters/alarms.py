"""Which alarms an operator gets, from the facts of a run and the time. Pure: the caller passes the time in."""

import hashlib
import json
from dataclasses import asdict, dataclass, field

from edgefl.base.events import (
    Certificate,
    DataBroken,
    DataMended,
    Done,
    Fact,
    Failed,
    Joined,
    Lost,
    Resumed,
    Round,
    Started,
    Waiting,
)
from edgefl.job.config.export import Alarm, Webhook
from edgefl.learn.evaluation.figures import figures
from edgefl.watch.overview.sentences import trouble_of

HEARD: tuple[type[Fact], ...] = (
    *(Started, Resumed, Joined, Lost, DataBroken, DataMended, Certificate, Waiting, Round, Done, Failed),
)
DAY = 86_400.0
NAMED = 20  # devices in a text; the list has all of them


@dataclass(frozen=True, slots=True)
class AlarmMessage:
    """One alarm; `id` is the same however often it is sent. `text` is for people, in a mail or a chat."""

    event: Alarm
    run: str
    run_id: str
    at: float
    text: str
    round: int = 0  # the last that is merged
    devices: tuple[str, ...] = ()
    about: str = ""  # tells alarms of a kind apart

    @property
    def id(self) -> str:
        told = json.dumps([self.run_id, self.event, self.about, self.devices])
        return hashlib.sha256(told.encode()).hexdigest()[:32]

    def body(self) -> bytes:
        named = {name: value for name, value in asdict(self).items() if name != "about"}
        return json.dumps({"id": self.id, **named}).encode()


@dataclass(slots=True)
class Alarms:
    """The alarms of one run; `rules` names the wanted ones, and the times after which they are due."""

    rules: Webhook
    started: Started
    ends: dict[str, float] = field(default_factory=dict)  # the certificates of devices, in seconds since 1970
    gone: dict[str, float] = field(default_factory=dict)  # devices, and since when
    away: set[str] = field(default_factory=set)  # of these, those with an alarm already sent
    round: int = 0
    moved: float = 0.0  # when a round was last merged, or the run began
    stalled: bool = False
    waiting: str = ""
    ending: set[str] = field(default_factory=set)  # devices whose certificate has had its alarm
    broken: dict[str, str] = field(default_factory=dict)  # devices, and what is wrong with their data
    over: bool = False

    def tell(self, fact: Fact) -> list[AlarmMessage]:  # noqa: C901  one fact, one case
        """Return the alarms that follow from a fact."""
        match fact:
            case Started() | Resumed():
                self.moved, self.stalled = max(self.moved, fact.at), False
            case Joined(device=device):
                self.gone.pop(device, None)
                self.away.discard(device)
            case Lost(device=device, resting=False):
                self.gone.setdefault(device, fact.at)
            case DataBroken() | DataMended():
                return self._data(fact)
            case Lost(device=device):  # it rests, and has said why
                self.gone.pop(device, None)
            case Certificate(device=device, ends=ends):
                self.ending -= {device} if self.ends.get(device) != ends else set()
                self.ends[device] = ends
            case Waiting(reason=reason):
                self.waiting = reason
            case Round(round=round):
                self.round, self.moved, self.stalled = max(self.round, round), max(self.moved, fact.at), False
            case Done():
                self.over = True
                return self._done(fact)
            case Failed(reason=reason):
                self.over = True
                return self._wanted("run_failed", f"run '{self.started.run}' failed: {reason}", fact.at, str(fact.at))
        return []

    def woken(self, now: float) -> list[AlarmMessage]:
        """Return the alarms that follow from the time; devices that are away at the same time share one."""
        if self.over:
            return []
        lost = [name for name, since in self.gone.items() if now - since >= self.rules.device_away_seconds]
        news = tuple(sorted(name for name in lost if name not in self.away))
        self.away.update(news)
        messages = []
        if news:
            long = f"for {self.rules.device_away_seconds:g} s or more"
            messages += self._wanted("device_away", f"away {long}: {_some(news)}", now, str(self.gone[news[0]]), news)
        if self._stalls_at() is not None and now >= (self._stalls_at() or 0.0):
            self.stalled = True
            why = f": {self.waiting}" if self.waiting else ""
            text = f"run '{self.started.run}' has not merged a round for {self.rules.stalled_seconds:g} s{why}"
            messages += self._wanted("run_stalled", text, now, f"{self.round}/{self.moved}")
        soon = now + self.rules.certificate_days * DAY
        ending = tuple(sorted(name for name, ends in self.ends.items() if ends <= soon and name not in self.ending))
        self.ending.update(ending)
        if ending:
            text = f"certificates end within {self.rules.certificate_days:g} days: {_some(ending)}"
            first = min(self.ends[name] for name in ending)
            messages += self._wanted("certificate_ends", text, now, str(first), ending)
        return messages

    def deadline(self) -> float | None:
        """Return the time at which the next alarm may be due without a fact."""
        if self.over:
            return None
        away = [since + self.rules.device_away_seconds for name, since in self.gone.items() if name not in self.away]
        ends = [end - self.rules.certificate_days * DAY for name, end in self.ends.items() if name not in self.ending]
        due = [*away, *ends, *([self._stalls_at()] if self._stalls_at() is not None else [])]
        return min((moment for moment in due if moment is not None), default=None)

    def _data(self, fact: DataBroken | DataMended) -> list[AlarmMessage]:
        device, before = fact.device, self.broken.pop(fact.device, None)
        if isinstance(fact, DataMended):
            text = f"{device} can use its data again"
            return self._wanted("data_mended", text, fact.at, str(fact.at), (device,)) if before else []
        if fact.samples_from is None:  # it is connected, and says why it cannot train
            self.gone.pop(device, None)
        trouble = self.broken[device] = trouble_of(fact)
        if trouble == before:
            return []
        return self._wanted("data_broken", f"{device} {trouble}", fact.at, str(fact.at), (device,))

    def _stalls_at(self) -> float | None:
        return None if self.stalled or not self.moved else self.moved + self.rules.stalled_seconds

    def _done(self, fact: Done) -> list[AlarmMessage]:
        name, rounds = self.started.run, fact.rounds
        messages = []
        if fact.rounds_to_target is not None:
            text = f"run '{name}' reached its target in round {fact.rounds_to_target}"
            messages += self._wanted("target_reached", text, fact.at, str(fact.rounds_to_target))
        score = "".join(f", {one.title} {one.shown}" for one in figures(fact.scores)[:1])
        text = f"run '{name}' has finished after {rounds} rounds{score}"
        return [*messages, *self._wanted("run_finished", text, fact.at, str(rounds))]

    def _wanted(
        self, event: Alarm, text: str, at: float, about: str, devices: tuple[str, ...] = ()
    ) -> list[AlarmMessage]:
        message = AlarmMessage(event, self.started.run, self.started.run_id, at, text, self.round, devices, about)
        return [message] if event in self.rules.events else []


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
