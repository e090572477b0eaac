"""The file of a server, which its operator writes; every key has a default, so that there need be none."""

from ipaddress import ip_network
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from edgefl.job.config.page import Page
from edgefl.job.config.section import Section
from edgefl.server.alert_settings import AlertSettings
from edgefl.server.people import Proxy, Role
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


class BehindProxy(Section):
    """A proxy that asks people who they are, and says so in a header."""

    addresses: tuple[str, ...] = ()  # its addresses or networks; from others the header counts nothing
    header: str = "X-Forwarded-User"
    roles: dict[str, Role] = Field(default_factory=dict)  # by name: "viewer", "operator" or "admin"

    @field_validator("addresses")
    @classmethod
    def _are_addresses(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for one in addresses:
            ip_network(one, strict=False)
        return addresses

    def as_people(self) -> Proxy:
        """The same, as the list of people wants it."""
        return Proxy(self.addresses, self.header, dict(self.roles))


class ServerFile(Section):
    """A whole server."""

    missing: ClassVar[str] = "every key has a default: leave the file out, or write one"

    server: Serving = Serving()
    page: Page = Page()
    proxy: BehindProxy = BehindProxy()
    alerts: AlertSettings = AlertSettings()
