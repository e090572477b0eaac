"""Where a server keeps what it knows, and how commands on the same machine find it.

server/state-000001.log   runs, schedules, and facts on their way to readers
      /audit.log          who did what
      /files/NAME.toml    the run files that coordinators were started with
      /logs/NAME.log      what they said
      /runs/NAME          folders of runs that were submitted without one
      /here.json          where the running server is reached
../replaced/TIME/          fleets and servers in whose place a back-up was restored
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edgefl.base.errors import ConfigError
from edgefl.fleet.folder import state_folder
from edgefl.system.locks import owner
from edgefl.system.store import write_atomically

HERE = "here.json"
RUNS = "runs"


class Here(BaseModel):
    """How the running server is reached."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    url: str
    fleets: tuple[str, ...]
    token_file: Path  # an admin's: who can read it is the server's owner
    authority: Path | None = None  # who certified the page, where it has TLS


def folder() -> Path:
    """The folder of this operator's server."""
    return state_folder() / "server"


def announce(here: Here) -> None:
    """Let commands on this machine find the server."""
    write_atomically(folder() / HERE, here.model_dump_json(indent=1).encode())


def running() -> Here | None:
    """The server that runs on this machine for this operator, if there is one."""
    if owner(folder()) is None:
        return None
    try:
        return Here.model_validate_json((folder() / HERE).read_bytes())
    except OSError:
        return None  # it has just been started
    except ValidationError as error:
        raise ConfigError(
            f"{folder() / HERE}: cannot be read ({error.errors()[0]['msg']}); restart the server"
        ) from None
