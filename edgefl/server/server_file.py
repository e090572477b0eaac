"""The file of a server, which its operator writes; every key has a default, so that there need be none."""

from typing import Annotated

from pydantic import Field, field_validator

from edgefl.job.config.page import Page
from edgefl.job.config.section import Section
from edgefl.wire.topics import check_name


class Serving(Section):
    """Which fleets are served, and how many of their runs work at once."""

    fleets: Annotated[tuple[str, ...], Field(min_length=1)] = ("default",)
    at_once: Annotated[int, Field(ge=1, le=64)] = 2  # coordinators that work at the same time
    broker: bool = True  # run each fleet's broker, unless another process does
    enrolment: bool = True  # let devices with a token or a claim in

    @field_validator("fleets")
    @classmethod
    def _fit_topics(cls, fleets: tuple[str, ...]) -> tuple[str, ...]:
        for name in fleets:
            check_name("server.fleets", name)
        if len(set(fleets)) < len(fleets):
            raise ValueError("a fleet is named twice")
        return fleets


class ServerFile(Section):
    """A whole server."""

    server: Serving = Serving()
    page: Page = Page()
