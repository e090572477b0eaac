"""Which runs this operator has on this machine, so that `edgefl status` finds them wherever their folders are.

One small file for each folder of a run, in the operator's state folder; who starts a run writes it. No run depends on
it: what cannot be written is only logged.
"""

import logging
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from coordinator.durable import journal
from edgefl.base.errors import ConfigError, StoreError
from edgefl.fleet.folder import state_folder
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import owner
from edgefl.system.store import write_atomically

log = logging.getLogger(__name__)

LIMIT = 64 << 10  # bytes of such a file
KEPT = 500  # runs; the oldest go first


class KnownRun(BaseModel):
    """Where a run is, and where it shows itself while it goes on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    folder: Path
    announced: float
    page: str | None = None
    token_file: Path | None = None  # which the page wants to be shown
    authority: Path | None = None  # who certified the page

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def process(self) -> int | None:
        """The coordinator that is at work on it, or None."""
        return owner(lock_of(self.folder))


def lock_of(folder: Path) -> Path:
    """What a coordinator owns while it is at work on the run in this folder."""
    return folder.with_name(f".{folder.name}")


def announce(
    folder: Path, page: str | None = None, token_file: Path | None = None, authority: Path | None = None
) -> None:
    """A coordinator is at work here, and shows it there."""
    folder = folder.absolute()
    run = KnownRun(folder=folder, announced=time.time(), page=page, token_file=token_file, authority=authority)
    try:
        write_atomically(_file(folder), run.model_dump_json().encode())
    except StoreError as error:
        log.warning("edgefl status will not find this run by itself why=%s", error)
    for file in _files()[KEPT:]:
        with suppress(OSError):
            file.unlink()


def known() -> list[KnownRun]:
    """All whose folders are still there, the last one that was started first."""
    runs = (_read(file) for file in _files())
    there = [run for run in runs if run is not None and journal.exists(FolderDisk(run.folder))]
    return sorted(there, key=lambda run: -run.announced)


def find(word: str) -> KnownRun:
    """The run of this name, or in this folder."""
    path = Path(word).expanduser()
    folder = path.parent if path.is_file() else path
    runs = known()
    if journal.exists(FolderDisk(folder)):
        there = [run for run in runs if run.folder == folder.absolute()]
        return there[0] if there else KnownRun(folder=folder.absolute(), announced=0.0)
    named = [run for run in runs if run.name == word]
    if len(named) > 1:
        folders = ", ".join(str(run.folder) for run in named)
        raise ConfigError(f"there are {len(named)} runs '{word}': name one by its folder ({folders})")
    if not named:
        names = ", ".join(run.name for run in runs[:10])
        raise ConfigError(f"{word}: no folder of a run, and no run of this name ({names or 'none is known here'})")
    return named[0]


def _read(file: Path) -> KnownRun | None:
    try:
        return KnownRun.model_validate_json(file.read_bytes()) if file.stat().st_size <= LIMIT else None
    except (OSError, ValidationError):
        return None


def _files() -> list[Path]:
    """The newest first."""
    stamps = {}
    for file in (state_folder() / "runs").glob("*.json"):
        with suppress(OSError):
            stamps[file] = file.stat().st_mtime
    return sorted(stamps, key=lambda file: -stamps[file])


def _file(folder: Path) -> Path:
    return state_folder() / "runs" / f"{sha256(str(folder).encode()).hexdigest()[:24]}.json"
