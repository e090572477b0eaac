"""The `[conditions]` table of an agent file: when this device may train, and otherwise rests."""

import re
from datetime import time
from typing import Annotated

from pydantic import BaseModel, Field, field_validator

from edgefl.job.config.strict import STRICT

_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")


class Conditions(BaseModel):
    """All that are given must hold, or a task is declined and the device rests until they do."""

    model_config = STRICT

    max_temperature: Annotated[float, Field(ge=0, le=150)] | None = None  # degrees Celsius, of the hottest processor
    min_battery: Annotated[float, Field(ge=0, le=100)] | None = None  # percent; no battery is no objection
    charging: bool = False  # only while it is; no battery is no objection
    hours: str | None = None  # "22:00-06:00", by the device's own clock and time zone
    max_load: Annotated[float, Field(gt=0)] | None = None  # per processor, over a minute; its own training counts
    min_disk_mb: Annotated[int, Field(ge=0)] | None = None  # free, where the agent keeps its files

    @field_validator("hours")
    @classmethod
    def _are_two_times(cls, hours: str | None) -> str | None:
        if hours is not None and _HOURS.fullmatch(hours) is None:
            raise ValueError('write two times of day, as in "22:00-06:00"')
        return hours

    def in_hours(self, now: time) -> bool:
        """Whether it is between the two times, perhaps over midnight; the same time twice is the whole day."""
        match = _HOURS.fullmatch(self.hours or "0:00-0:00")
        if match is None:  # checked when it was read
            return True
        begin, end = time(int(match[1]), int(match[2])), time(int(match[3]), int(match[4]))
        return begin <= now < end if begin < end else now >= begin or now < end
