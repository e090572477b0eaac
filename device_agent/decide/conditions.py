"""Whether this device may train now: its operator's conditions (`[conditions]` of the agent file). Pure."""

from datetime import time

from edgefl.base.vitals import VitalSigns
from edgefl.job.config.conditions import Conditions

MEGABYTE = 1_000_000


def unmet(c: Conditions, v: VitalSigns, now: time) -> str:  # noqa: PLR0911  one condition, one line or two
    """The first condition that does not hold, in words; empty if all do. What a machine does not tell holds."""
    if not c.in_hours(now):
        return f"it is {now:%H:%M}, its hours are {c.hours}"
    if c.max_temperature is not None and v.temperature is not None and v.temperature > c.max_temperature:
        return f"{v.temperature:.1f} °C, at most {c.max_temperature:g}"
    if c.charging and v.charging is False:
        return "it is not charging"
    if c.min_battery is not None and v.battery is not None and v.battery < c.min_battery / 100:
        return f"battery {v.battery:.0%}, at least {c.min_battery:g} %"
    if c.max_load is not None and v.load is not None and v.load > c.max_load:
        return f"load {v.load:.2f}, at most {c.max_load:g}"
    if c.min_disk_mb is not None and v.disk_free is not None and v.disk_free < c.min_disk_mb * MEGABYTE:
        return f"{v.disk_free // MEGABYTE} MB of disk free, at least {c.min_disk_mb}"
    return ""


def silent(c: Conditions, v: VitalSigns) -> list[str]:
    """The conditions that this machine has nothing to say about: they always hold here."""
    asked = {
        "max_temperature": (c.max_temperature is not None, v.temperature),
        "min_battery": (c.min_battery is not None, v.battery),
        "charging": (c.charging, v.charging),
        "max_load": (c.max_load is not None, v.load),
    }
    return [name for name, (is_asked, reading) in asked.items() if is_asked and reading is None]
