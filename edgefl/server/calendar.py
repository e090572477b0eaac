"""When a schedule is due, by the clock on the wall."""

from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim

from edgefl.server.decide.vocabulary import Due, Recurring


def due(recurring: Recurring, wall: float) -> Due:
    """Return when it was due last, at this moment or before, and when it is next."""
    at = datetime.fromtimestamp(wall, _zone(recurring))
    last = next(CronSim(recurring.cron, at + timedelta(seconds=1), reverse=True))
    return Due(last.timestamp(), next(CronSim(recurring.cron, at)).timestamp())


def _zone(recurring: Recurring) -> tzinfo:
    """The zone that it names, else this machine's."""
    if recurring.zone:
        return ZoneInfo(recurring.zone)
    return datetime.now().astimezone().tzinfo or timezone.utc
