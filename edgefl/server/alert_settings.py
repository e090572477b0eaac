"""The `[alerts]` table of a server's file: what a person is told of, when, and where messages go."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_serializer, field_validator, model_validator

from edgefl.base.errors import ConfigError
from edgefl.job.config.export import REFERENCES, checked_address, looked_up
from edgefl.job.config.section import Section
from edgefl.server.decide.alerts import AlertKind, AlertRules
from edgefl.wire.address import is_loopback

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
QUIET = {"temperature": 600.0, "disk": 600.0, "certificate": 86_400.0, "broker": 300.0}  # seconds; others: none
MEGABYTE = 1e6


def _seconds(value: Any) -> Any:
    """A length of time in seconds: "90s", "10m", "1h", "30d", "2w"."""
    if not isinstance(value, str):
        return value
    match = LENGTH.fullmatch(value.strip())
    if match is None:
        raise ValueError(f'\'{value}\' is no length of time; write e.g. "90s", "10m", "1h", "30d"')
    return float(match[1]) * UNITS[match[2]]


Length: TypeAlias = Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=3650 * 86_400)]


class AlertWebhook(Section):
    """An address that is told of alerts, as CloudEvents."""

    url: Annotated[str, Field(repr=False)]  # https://..., env:NAME or file:PATH
    secret: str | None = None  # env:NAME or file:PATH: what messages are signed with
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0  # seconds for one attempt
    allow_http: bool = False  # without TLS off loopback: the network between can read it

    @field_serializer("url", when_used="json")
    def _without_address(self, url: str) -> str:
        """The path of many such addresses is a password."""
        return url if url.startswith(REFERENCES) else "..."

    @field_validator("secret")
    @classmethod
    def _is_elsewhere(cls, secret: str | None) -> str | None:
        return _elsewhere("alerts.webhook.secret", secret)

    @model_validator(mode="after")
    def _is_safe(self) -> "AlertWebhook":
        if not self.url.startswith(REFERENCES):
            checked_address("alerts.webhook.url", self.url, allow_http=self.allow_http)
        return self

    def address(self, environment: Mapping[str, str] = os.environ) -> str:
        """Where messages go."""
        url = looked_up("alerts.webhook.url", self.url, environment)
        return checked_address("alerts.webhook.url", url, allow_http=self.allow_http)

    def key(self, environment: Mapping[str, str] = os.environ) -> bytes | None:
        """What they are signed with."""
        return None if self.secret is None else looked_up("alerts.webhook.secret", self.secret, environment).encode()


class AlertMail(Section):
    """A mail server that takes messages, and who gets them."""

    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"  # none: only where no password is sent, or on this machine
    user: str = ""
    password: str | None = None  # env:NAME or file:PATH
    from_: Annotated[str, Field(alias="from", min_length=3)]
    to: Annotated[tuple[str, ...], Field(min_length=1)]
    timeout: Annotated[float, Field(gt=0, le=60)] = 20.0  # seconds

    @field_validator("password")
    @classmethod
    def _is_elsewhere(cls, password: str | None) -> str | None:
        return _elsewhere("alerts.mail.password", password)

    @field_validator("from_", "to")
    @classmethod
    def _are_addresses(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for one in (value,) if isinstance(value, str) else value:
            if "@" not in one or not one.isprintable() or not one.isascii() or "," in one:
                raise ValueError(f"'{one}' is no mail address; write name@host")
        return value

    @model_validator(mode="after")
    def _hides_its_password(self) -> "AlertMail":
        if self.tls == "none" and self.user and not is_loopback(self.host):
            raise ConfigError(f"alerts.mail: without TLS the network can read the password: say tls for '{self.host}'")
        if bool(self.user) != (self.password is not None):
            raise ConfigError("alerts.mail: user and password belong together")
        return self

    def word(self, environment: Mapping[str, str] = os.environ) -> str:
        """The password; empty if there is no user."""
        return "" if self.password is None else looked_up("alerts.mail.password", self.password, environment)


class AlertSettings(Section):
    """What a person is told of. Lengths of time are "90s", "10m", "1h", "30d"."""

    away: Length = 3600.0  # a device was not there for so long, and does not rest
    stale: Length = 86_400.0  # a device could not use its newest data for so long
    certificate: Length = 30 * 86_400.0  # a certificate ends within this time
    disk_free_mb: Annotated[float, Field(ge=0)] = 500.0  # of a device, or of the server: less is free
    temperature: float = 80.0  # degrees Celsius of a device
    stalled: Length = 7200.0  # a run that works has closed no round for so long
    accuracy_drop: Annotated[float, Field(gt=0, le=1)] = 0.1  # below what is usual on a device (evaluation.per_device)
    # By kind: for how long the threshold must hold before a person is told; kinds that are not named keep theirs.
    quiet: dict[AlertKind, Length] = Field(default_factory=dict)
    off: tuple[AlertKind, ...] = ()  # kinds that are not told, and not listed
    hold: Length = 1800.0  # an alert is over when its threshold has not held for so long: what flaps is told once
    closed: bool = True  # whether the end of an alert is told as well
    webhook: tuple[AlertWebhook, ...] = ()
    mail: AlertMail | None = None

    def as_rules(self, channels: tuple[str, ...]) -> AlertRules:
        """The same, as decisions want it."""
        return AlertRules(
            self.away,
            self.stale,
            self.certificate,
            self.disk_free_mb * MEGABYTE,
            self.temperature,
            self.stalled,
            self.accuracy_drop,
            QUIET | {str(kind): length for kind, length in self.quiet.items()},
            frozenset(self.off),
            self.hold,
            self.closed,
            channels,
        )


def _elsewhere(key: str, value: str | None) -> str | None:
    if value is not None and not value.startswith(REFERENCES):
        raise ConfigError(f"{key} is no secret in a file like this: write env:NAME or file:PATH")
    return value
