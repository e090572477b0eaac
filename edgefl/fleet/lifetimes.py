"""How long a fleet's certificates last, as an operator writes it: `90d`, `26w`, `2y`."""

import re

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


def shown(count: int) -> str:
    """Return a number of days as an operator would write it."""
    for unit in ("y", "w"):
        if count and count % DAYS[unit] == 0:
            return f"{count // DAYS[unit]}{unit}"
    return f"{count}d"
