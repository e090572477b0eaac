"""How long a fleet's certificates last, as an operator writes it: `90d`, `26w`, `2y`."""

import re
from datetime import datetime, timedelta, timezone

from edgefl.base.errors import ConfigError

DAYS = {"d": 1, "w": 7, "y": 365}
SPAN = re.compile(r"(\d{1,4}) ?([dwy])")
DEVICE_DAYS = 90  # of a device's certificate, unless the fleet says otherwise
GRACE_DAYS = 180  # after its end, in which a device renews it with its own key for messages
PERMIT_DAYS = 30  # in which a device that `edgefl fleet renew` named may do so however long ago that was
LONGEST = 3650  # as long as the authority itself


def days(text: str, option: str, least: int = 1) -> int:
    """Return the number of days of a span; `option` names it where it cannot be used."""
    match = SPAN.fullmatch(text.strip().lower())
    count = int(match[1]) * DAYS[match[2]] if match else -1
    if not least <= count <= LONGEST:
        raise ConfigError(f"{option} {text}: say {least}d to 10y, for example 90d, 26w or 2y")
    return count


def moment(text: str, option: str, now: datetime) -> datetime:
    """Return the time that is meant: a day, `2027-01-31`, is its end here; or a span from now. A year at most."""
    if SPAN.fullmatch(text.strip().lower()):
        at = now + timedelta(days=days(text, option))
    else:
        try:
            at = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ConfigError(f"{option} {text}: say a day such as 2027-01-31, or 7d, 2w from now") from None
        at += timedelta(days=1) if len(text.strip()) == len("2027-01-31") else timedelta()
    at = at.astimezone(timezone.utc)
    if at > now + timedelta(days=366):
        raise ConfigError(f"{option} {text}: a year from now at most")
    return at


def shown(count: int) -> str:
    """Return a number of days as an operator would write it."""
    for unit in ("y", "w"):
        if count and count % DAYS[unit] == 0:
            return f"{count // DAYS[unit]}{unit}"
    return f"{count}d"
