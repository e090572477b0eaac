"""`[schedule]` and `[keep]` of a run file: when a server starts such a run, and what is kept of finished ones."""

from functools import cached_property
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from edgefl.base.errors import ConfigError
from edgefl.base.where import Where, parse
from edgefl.job.config.section import Section

NEW_SAMPLES, SAMPLES, DEVICES = "new_samples", "samples", "devices"
FIGURES = frozenset({NEW_SAMPLES, SAMPLES, DEVICES})  # what `when` may name


class Recurrence(Section):
    """When a server starts this run: each time as a run of its own, NAME-1, NAME-2, ..."""

    cron: str  # minute, hour, day of month, month, day of week, as in crontab(5): "0 2 * * *" is every night at two
    zone: str = ""  # the time zone, e.g. "Europe/Berlin"; the server's own unless said
    from_: Annotated[Literal["last"] | None, Field(alias="from")] = None  # "last": the last finished model
    when: str = ""  # start only if this holds: new_samples (since the last began), samples, devices (online now)
    missed: Literal["once", "skip"] = "once"  # a time that passed while the server was away: run once, or not at all

    @field_validator("cron")
    @classmethod
    def _is_a_schedule(cls, cron: str) -> str:
        from datetime import datetime, timezone  # noqa: PLC0415

        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - few run files have one

        try:
            next(CronSim(cron, datetime.now(timezone.utc)))
        except (CronSimError, StopIteration) as error:
            raise ValueError(f"'{cron}' is no schedule ({error}); \"0 2 * * *\" is every night at two") from None
        return cron

    @field_validator("zone")
    @classmethod
    def _is_a_zone(cls, zone: str) -> str:
        if zone:
            try:
                ZoneInfo(zone)
            except (OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError
                raise ValueError(f"'{zone}' is no time zone") from None
            except KeyError:
                raise ValueError(f"'{zone}' is no time zone that this machine knows; write one such as 'UTC'") from None
        return zone

    @field_validator("when")
    @classmethod
    def _names_figures(cls, when: str) -> str:
        if when:
            try:
                unknown = parse(when).names() - FIGURES
            except ConfigError as error:
                raise ValueError(str(error)) from None
            if unknown:
                raise ValueError(f"{', '.join(sorted(unknown))}: not known; there are {', '.join(sorted(FIGURES))}")
        return when

    @model_serializer(mode="wrap")
    def _as_in_the_file(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        table: dict[str, Any] = plain(self)
        return {("from" if key == "from_" else key): value for key, value in table.items()}  # a word of Python's own

    @cached_property
    def condition(self) -> Where | None:
        """What must hold; None: nothing."""
        return parse(self.when) if self.when else None


class Keep(Section):
    """What is kept of runs that have finished."""

    runs: Annotated[int, Field(ge=1)] = 30  # of a schedule's; folders of older ones are deleted, their history stays
    updates: Literal["none", "all"] = "none"  # what devices sent: it tells about their samples
