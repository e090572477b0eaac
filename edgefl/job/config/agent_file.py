"""The file that an operator writes for each device. What a device never reads stands elsewhere: it starts often."""

import socket
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_serializer, field_validator

from edgefl.job.config.allowance import Allowance
from edgefl.job.config.conditions import Conditions
from edgefl.job.config.local_compute import LocalCompute
from edgefl.job.config.remote import Remote
from edgefl.job.config.section import Section
from edgefl.learn.data.partition import Partition
from edgefl.learn.data.reading import Reading
from edgefl.wire.address import without_password
from edgefl.wire.signing import KeyText
from edgefl.wire.tls import Tls
from edgefl.wire.topics import check_name

LIMIT_MB = 256  # of a model, on a device


class Identity(Section):
    """Who this device is, and where it finds the others."""

    id: str = Field(default_factory=lambda: socket.gethostname().split(".")[0])  # its name; the host's unless said
    # Its address, mqtts:// for TLS; or a list of them, that are tried in this order.
    broker: Annotated[str | tuple[str, ...], Field(repr=False)] = "mqtt://localhost:1883"
    fleet: str = "default"  # the same as in the run file
    site: str = ""  # whose broker this is, where it is bridged to the fleet's (docs/guides/sites.md)
    folder: Path = Path("~/.local/state/edgefl")  # what the device keeps between rounds is in a folder of its name here
    connect_timeout: Annotated[float, Field(ge=0)] = 30.0  # seconds; 0 waits for ever
    coordinator: KeyText | None = None  # the key whose models are trained on; else (loopback only) the first one seen
    models: KeyText | None = None  # behind a gateway: the key of the coordinator whose models it passes on
    limit_mb: Annotated[int, Field(ge=1)] = LIMIT_MB  # the largest model that is fetched
    own_models: Annotated[int, Field(ge=0)] = 4  # runs whose model of this device's own is kept in `folder`; 0: none
    own_models_mb: Annotated[int, Field(ge=1)] = 1024  # that these may have together; the oldest go first
    tls: Tls = Field(default_factory=Tls)  # files for mqtts://

    @field_serializer("broker", when_used="json")
    def _without_password(self, url: str | tuple[str, ...]) -> str | list[str]:
        shown: str | list[str] = without_password(url)
        return shown

    @field_validator("broker")
    @classmethod
    def _has_an_address(cls, broker: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not broker:
            raise ValueError("names no address: write mqtts://host:8883")
        return broker

    @property
    def brokers(self) -> tuple[str, ...]:
        """Its addresses, in the order in which they are tried."""
        return (self.broker,) if isinstance(self.broker, str) else self.broker

    @field_validator("id", "fleet", "site")
    @classmethod
    def _fits_a_topic(cls, name: str, info: ValidationInfo) -> str:
        return check_name(f"agent.{info.field_name}", name) if name or info.field_name != "site" else name


class LocalData(Reading):
    """The device's own data. `partition` and what follows are for trials: take part `part` of a divided set."""

    source: str = "digits"  # "csv:path", "npz:path", "sqlite:path", ..., "package.module:function", or a built-in name
    classes: tuple[str, ...] | None = None  # the names of text labels in the run's order, where the run has no names
    # Whether sums over these data may be sent, once a run that asks for them (task.normalise, task.class_weights).
    statistics: bool = True
    partition: Partition | None = None  # how the set is divided, as in the run file
    part: Annotated[int, Field(ge=0)] = 0  # which part is this device's, from 0
    public: Annotated[float, Field(ge=0, le=0.9)] = 0.0  # task.public of the run file
    seed: int = 0  # run.seed of the run file


# Its tables are made where they are missing: as defaults they were built with every start, whatever the file says.
class AgentFile(Section):
    """A whole agent."""

    missing: ClassVar[str] = "`edgefl agent enrol NAME.kit` writes one, or `edgefl init`"

    agent: Identity = Field(default_factory=Identity)
    data: LocalData = Field(default_factory=LocalData)
    compute: LocalCompute = Field(default_factory=LocalCompute)
    conditions: Conditions = Field(default_factory=Conditions)
    privacy: Allowance = Field(default_factory=Allowance)
    remote: Remote = Field(default_factory=Remote)
