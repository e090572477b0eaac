"""What may stand in a gateway's file: who it is to the coordinator, where its site is, and how rounds go there."""

from typing import Annotated, ClassVar

from pydantic import Field

from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import Identity
from edgefl.job.config.local_compute import LocalCompute
from edgefl.job.config.schema import BrokerSection, Guards
from edgefl.job.config.section import Section


class SiteRounds(Section):
    """Whom a round at the site asks, and how long it waits: less than `rounds.deadline` of the runs."""

    devices: Annotated[int, Field(ge=1, le=10_000)]  # that the site has; all of them are asked
    quorum: Annotated[int, Field(ge=1)] | None = None  # answers that make a sum; unless said, 0.8 of the devices
    deadline: Annotated[float, Field(gt=0)] = 40.0  # seconds; with a quorum the sum is then made without the rest

    @property
    def least(self) -> int:
        """Answers that make a sum."""
        if self.quorum is not None and self.quorum > self.devices:
            raise ConfigError(f"site.quorum = {self.quorum} is larger than site.devices = {self.devices}")
        return max(1, int(0.8 * self.devices)) if self.quorum is None else self.quorum


class GatewayFile(Section):
    """A whole gateway."""

    missing: ClassVar[str] = "docs/guides/gateway.md has one"

    gateway: Identity = Identity()  # as an agent has it: its name, and the coordinator's broker
    broker: BrokerSection = BrokerSection()  # of the site; its fleet is another one than the coordinator's
    site: SiteRounds
    guards: Guards = Guards()  # what it puts up with
    seal: bool = False  # devices seal their answers for the gateway
    # name = "key": only these are heard; where the site's fleet has no members
    devices: dict[str, str] = Field(default_factory=dict)
    compute: LocalCompute = LocalCompute()
