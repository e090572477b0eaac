"""Files for `mqtts://`, as a run or agent file names them."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_validator


class Tls(BaseModel):
    """Whom to trust, and how to prove who we are."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    ca: Path | None = None  # the authority that signed the broker's certificate; those of the system unless said
    certificate: Path | None = None  # our own, where the broker asks for one
    key: Path | None = None  # its private key; refused if others can read it

    @model_validator(mode="after")
    def _key_belongs_to_a_certificate(self) -> "Tls":
        if self.key is not None and self.certificate is None:
            raise ValueError("tls.key needs tls.certificate beside it")
        return self
