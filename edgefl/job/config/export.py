"""The `[export]` table of a run file: who else is told how a run goes. docs/monitoring.md says what each of them gets.

What is secret is named and not written: `env:NAME` is a variable of the environment, `file:PATH` the
first line of a file.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_serializer, field_validator, model_validator

from edgefl.base.errors import ConfigError
from edgefl.job.config.strict import STRICT
from edgefl.wire.address import is_loopback

Alarm: TypeAlias = Literal[
    "device_away",
    "run_stalled",
    "target_reached",
    "certificate_ends",
    "data_broken",
    "data_mended",
    "run_finished",
    "run_failed",
]
REFERENCES = ("env:", "file:")
SHORTENED = "/..."  # in the place of a path that is not written down


class TensorBoard(BaseModel):
    """Event files, a folder for each run."""

    model_config = STRICT
    folder: Path | None = None  # `tensorboard` in the run's own folder unless said


class Mlflow(BaseModel):
    """A run at an MLflow server, or in its files."""

    model_config = STRICT
    tracking_uri: str | None = None  # what MLFLOW_TRACKING_URI says, unless said
    experiment: Annotated[str, Field(min_length=1)] = "edgefl"  # the experiment that the run belongs to

    @field_validator("tracking_uri")
    @classmethod
    def _holds_no_password(cls, uri: str | None) -> str | None:
        if uri is not None and urlsplit(uri).password:
            raise ConfigError(
                "export.mlflow.tracking_uri holds a password; put it into MLFLOW_TRACKING_USERNAME and"
                " MLFLOW_TRACKING_PASSWORD"
            )
        return uri


class Wandb(BaseModel):
    """A run for Weights & Biases: on disk, for `wandb sync`, unless it may go online (key: WANDB_API_KEY)."""

    model_config = STRICT
    project: Annotated[str, Field(min_length=1)] = "edgefl"  # the project that the run belongs to
    entity: str | None = None  # the team or user; your own unless said
    mode: Literal["offline", "online"] = "offline"  # whether it may go over the network


class Webhook(BaseModel):
    """An address that is told of what an operator should know at once."""

    model_config = STRICT
    url: Annotated[str, Field(repr=False)]  # https://..., env:NAME or file:PATH
    secret: str | None = None  # env:NAME or file:PATH: what messages are signed with
    events: tuple[Alarm, ...] = get_args(Alarm)  # which of them are told
    device_away_seconds: Annotated[float, Field(ge=1)] = 300.0  # device_away: when it was away for so long
    stalled_seconds: Annotated[float, Field(ge=1)] = 1800.0  # run_stalled: when no round ended for so long
    certificate_days: Annotated[float, Field(gt=0)] = 14.0  # certificate_ends: this number of days before
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0  # seconds for one attempt
    allow_http: bool = False  # without TLS off loopback: the network between can read it

    @field_serializer("url", when_used="json")
    def _without_path(self, url: str) -> str:
        """As JSON it is written down, and the path of many such addresses is a password."""
        return url if url.startswith(REFERENCES) else f"{urlsplit(url).scheme}://{urlsplit(url).hostname}{SHORTENED}"

    @property
    def shortened(self) -> bool:
        """Whether this comes from where the address was not written down: a run's own folder."""
        return self.url.endswith(SHORTENED)

    @field_validator("secret")
    @classmethod
    def _is_elsewhere(cls, secret: str | None) -> str | None:
        if secret is not None and not secret.startswith(REFERENCES):
            raise ConfigError("export.webhooks.secret is no secret in a run file: write env:NAME or file:PATH")
        return secret

    @model_validator(mode="after")
    def _is_safe(self) -> "Webhook":
        if not self.url.startswith(REFERENCES):
            self.checked(self.url)
        return self

    def address(self, environment: Mapping[str, str] = os.environ) -> str:
        """Where messages go."""
        return self.checked(looked_up("export.webhooks.url", self.url, environment))

    def key(self, environment: Mapping[str, str] = os.environ) -> bytes | None:
        """What they are signed with."""
        return None if self.secret is None else looked_up("export.webhooks.secret", self.secret, environment).encode()

    def checked(self, url: str) -> str:
        """The address, if messages may go there."""
        return checked_address("export.webhooks.url", url, allow_http=self.allow_http)


def checked_address(key: str, url: str, *, allow_http: bool) -> str:
    """The address that stands under this key, if messages may go there; it is not quoted: it may be a secret."""
    try:
        parts = urlsplit(url)
        host, scheme, _ = parts.hostname or "", parts.scheme, parts.port
    except ValueError:
        host, scheme = "", ""
    if scheme not in ("http", "https") or not host or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{key} is no address: write https://host/path")
    if scheme == "http" and not (allow_http or is_loopback(host)):
        raise ConfigError(
            f"{key}: http to '{host}' can be read by the network between: use https, or say allow_http = true"
        )
    return url


class Export(BaseModel):
    """An empty table turns one on: `[export.tensorboard]`. Prometheus finds everything at /metrics of the page."""

    model_config = STRICT
    tensorboard: TensorBoard | None = None
    mlflow: Mlflow | None = None
    wandb: Wandb | None = None
    webhooks: tuple[Webhook, ...] = ()


def looked_up(key: str, value: str, environment: Mapping[str, str]) -> str:
    """What stands behind `env:NAME` or `file:PATH`; anything else stands for itself."""
    kind, _, name = value.partition(":")
    if kind == "env":
        if not environment.get(name):
            raise ConfigError(f'{key} = "{value}": the environment has no variable {name}')
        return environment[name]
    if kind == "file":
        try:
            lines = Path(name).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f'{key} = "{value}": cannot be read ({error})') from None
        if not lines or not lines[0].strip():
            raise ConfigError(f'{key} = "{value}": its first line is empty')
        return lines[0].strip()
    return value
