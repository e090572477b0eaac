"""`[page]` of a run file: where a browser can watch the run."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from edgefl.base.errors import ConfigError
from edgefl.wire.address import is_loopback

PORT = 8600


class Page(BaseModel):
    """Served on this machine alone unless `host` says otherwise; then the token is needed to see it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serve: bool = True  # false: no page
    host: str = "127.0.0.1"  # the address it listens on; "0.0.0.0" for other machines too
    port: Annotated[int, Field(ge=0, le=65535)] = PORT  # the next free one, if it is taken; 0: any
    token: Path | None = None  # a file with the token: then it is asked for on loopback too
    certificate: Path | None = None  # for https; off loopback the fleet's own unless said
    key: Path | None = None  # the certificate's

    @model_validator(mode="after")
    def _has_both(self) -> "Page":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("page.certificate and page.key belong together: give both, or none")
        return self

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def place(text: str) -> dict[str, str]:
    """Where `--page` says: a port, a host, or both with a colon between them."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = ("", text) if text.isdigit() else (text, "")
    host = host.strip("[]")
    if not (host or port) or (port and not port.isdigit()):
        raise ConfigError(f"--page {text}: write a port, a host or both, e.g. --page 0.0.0.0:{PORT}")
    return {name: value for name, value in (("host", host), ("port", port)) if value}
