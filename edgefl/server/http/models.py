"""What the API takes and gives: from these models its OpenAPI document is made."""

from datetime import datetime, timezone
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from edgefl.fleet.audit import AuditEntry
from edgefl.server.decide import alert_texts
from edgefl.server.decide.alerts import Alert, AlertKind
from edgefl.server.decide.runs import QueuedRun, RunSchedule, ServerState
from edgefl.server.decide.vocabulary import Phase
from edgefl.watch.overview.rows import DeviceRow
from edgefl.wire.topics import NAME

Name = Annotated[str, Field(pattern=f"^{NAME}$", max_length=64)]


def _no_truth(value: object) -> object:
    """Refuse true and false, which Python takes for 1 and 0, and JSON does not."""
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")
    return value


NO_TRUTH = BeforeValidator(_no_truth)


class ApiModel(BaseModel):
    """What all of them share."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NewRun(ApiModel):
    """A run file that is handed over."""

    run_file: Annotated[str, Field(max_length=1 << 20, description="The run file (TOML).")]
    request: Annotated[
        str,
        Field(min_length=1, max_length=64, description="Any word; sent again, the same word queues nothing twice."),
    ]
    sets: Annotated[tuple[str, ...], Field(max_length=200, description="Keys that go before it: run.rounds=5")] = ()
    priority: Annotated[int, Field(ge=-1000, le=1000, description="Larger numbers go first."), NO_TRUTH] = 0
    beside: Annotated[
        str,
        Field(max_length=4096, description="Admins only: the folder on the server where files lie that it names."),
    ] = ""


class RunInfo(ApiModel):
    """A run of this server."""

    name: str
    fleet: str
    phase: Phase
    reason: str
    priority: int
    by: str
    schedule: str
    submitted: datetime
    started: datetime | None
    ended: datetime | None
    deleted: Annotated[bool, Field(description="Whether its folder is gone; what stands here stays.")]
    position: Annotated[int | None, Field(description="In the queue, from 1; none if it does not wait.")] = None


class ScheduleInfo(ApiModel):
    """A run file that is started again and again."""

    name: str
    fleet: str
    cron: str
    zone: str
    when: str
    paused: bool
    by: str
    last_due: datetime
    next_due: datetime | None
    runs: Annotated[int, Field(description="How many it has started.")]
    last_run: str | None


class Submitted(ApiModel):
    """What became of a run file."""

    name: str
    kind: Literal["run", "schedule"]


class Priority(ApiModel):
    """Larger numbers go first."""

    priority: Annotated[int, Field(ge=-1000, le=1000), NO_TRUTH]


class Prune(ApiModel):
    """How many finished runs are kept, of those that no schedule has started."""

    keep: Annotated[int, Field(ge=0, le=100_000), NO_TRUTH]


class Pruning(ApiModel):
    """The runs whose folders are deleted."""

    deleted: tuple[str, ...]


class LogLines(ApiModel):
    """The end of what a run's coordinator has written."""

    lines: tuple[str, ...]


class AlertInfo(ApiModel):
    """Something that needs a person, or that a person knows of already."""

    id: str
    kind: AlertKind
    fleet: Annotated[str, Field(description="Empty for the server itself.")]
    subject: Annotated[str, Field(description="A device, a run, a schedule; 'server' or 'broker'.")]
    since: datetime
    told: datetime
    text: str
    remedy: str
    quieted_by: Annotated[str, Field(description="The person who knows of it; empty: it needs a person now.")]


class FleetInfo(ApiModel):
    """A fleet of this server."""

    name: str
    broker: str
    members: int
    online: int
    samples: int


class DeviceInfo(ApiModel):
    """A device of a fleet, as the server sees it."""

    name: str
    state: str
    since: datetime | None
    why: str
    samples: int
    host: str
    version: str
    back_end: str
    last_seen: datetime | None
    certificate_ends: datetime | None
    data_trouble: str


class LabelsBody(ApiModel):
    """LabelsBody of a device; one without a value is taken away."""

    labels: Annotated[dict[str, str], Field(max_length=100)]


class AnswerFinding(ApiModel):
    """One thing that a device has looked at."""

    what: str
    level: str
    text: str
    remedy: str


class DeviceAnswer(ApiModel):
    """What a device answers: findings of its doctor, lines of its log, or its vital signs; or why it does not."""

    refused: str
    findings: tuple[AnswerFinding, ...] = ()
    lines: tuple[str, ...] = ()
    vitals: dict[str, float | bool | str | None] | None = None


class Problem(ApiModel):
    """Why a request was not carried out, and what to do."""

    error: str


class AuditLines(ApiModel):
    """Lines of the audit log, the newest last; `fault` says what is wrong with the log, if anything is."""

    head: str
    fault: str
    entries: tuple[AuditEntry, ...]


def run_info(run: QueuedRun, state: ServerState) -> RunInfo:
    """A run as the API shows it."""
    waiting = [one.name for one in state.waiting]
    return RunInfo(
        name=run.name,
        fleet=run.submission.fleet,
        phase=run.phase,
        reason=run.reason,
        priority=run.priority,
        by=run.by,
        schedule=run.schedule,
        submitted=moment(run.submitted),
        started=None if run.started is None else moment(run.started),
        ended=None if run.ended is None else moment(run.ended),
        deleted=run.deleted,
        position=waiting.index(run.name) + 1 if run.name in waiting else None,
    )


def schedule_info(schedule: RunSchedule, state: ServerState, next_due: float | None) -> ScheduleInfo:
    """A schedule as the API shows it."""
    recurring, runs = schedule.submission.recurring, state.runs_of(schedule.name)
    return ScheduleInfo(
        name=schedule.name,
        fleet=schedule.submission.fleet,
        cron=recurring.cron if recurring else "",
        zone=recurring.zone if recurring else "",
        when=recurring.when if recurring else "",
        paused=schedule.paused,
        by=schedule.by,
        last_due=moment(schedule.last_due),
        next_due=None if next_due is None or schedule.paused else moment(next_due),
        runs=schedule.count,
        last_run=runs[-1].name if runs else None,
    )


def device_info(row: DeviceRow) -> DeviceInfo:
    """A device as the API shows it."""
    return DeviceInfo(
        name=row.name,
        state=row.state,
        since=moment(row.since) if row.since else None,
        why=row.why,
        samples=row.samples,
        host=row.host,
        version=row.version,
        back_end=row.back_end,
        last_seen=None if row.last_seen is None else moment(row.last_seen),
        certificate_ends=None if row.certificate_ends is None else moment(row.certificate_ends),
        data_trouble=row.data_trouble,
    )


def alert_info(alert: Alert, wall: float) -> AlertInfo:
    """An open alert as the API shows it."""
    return AlertInfo(
        id=alert.id,
        kind=alert.kind,
        fleet=alert.fleet,
        subject=alert.subject,
        since=moment(alert.since),
        told=moment(alert.since if alert.told is None else alert.told),
        text=alert_texts.text(alert, wall),
        remedy=alert_texts.remedy(alert),
        quieted_by=alert.quieted_by,
    )


def moment(wall: float) -> datetime:
    """Seconds since 1970, with their zone."""
    return datetime.fromtimestamp(wall, timezone.utc)
