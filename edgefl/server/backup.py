"""Copy what belongs to an operator into one file, while servers, brokers and coordinators go on.

A folder is copied as it was at one moment: all of its files are opened, and if none was added, taken away or put in the
place of another meanwhile, their lengths at that moment are what counts. What has been appended since is left out.
A log whose last record is torn in the copy loses that record when it is read, as after a power cut: no receipt was
sent for it. Fleets and the audit log are copied under their own locks.
"""

import os
import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from coordinator.durable import journal
from edgefl.base.errors import ConfigError, StoreError
from edgefl.fleet import audit
from edgefl.fleet.folder import SETTINGS, FleetFolder, state_folder
from edgefl.server import folder as places
from edgefl.server.backup_file import FLEETS, RUNS, SERVER, BackupDescription, BackupWriter, is_plain, written
from edgefl.server.decide.vocabulary import Submission
from edgefl.server.durable import queue_file, rows
from edgefl.server.durable.rows import RowStore
from edgefl.system.disk import FolderDisk
from edgefl.system.memory_disk import MemoryDisk

SMALL = 64 << 10  # bytes of a file that is read at once; larger ones stay open until they are copied
ATTEMPTS, PAUSE = 200, 0.02  # looks at a folder that changes, and seconds between two of them
NOT_COPIED = ("lock", "changing", audit.LOCK, places.HERE)
LOGS = "logs"  # of coordinators: not copied


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file of a folder as it was at one moment."""

    name: str  # in the back-up
    size: int
    source: BinaryIO


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """What was copied, and which runs of the queue were not."""

    description: BackupDescription
    files: int
    missing: tuple[str, ...]  # folders of runs that have not ended and are not in the copy


def back_up(path: Path, now: datetime, *, runs: Sequence[Path] = (), reader: bytes | None = None) -> BackupSummary:
    """Copy this operator's fleets, server and runs into a new file; `runs` are folders outside of the server's."""
    state, server = state_folder(), places.folder()
    outside = _outside(runs, server / places.RUNS)
    fleets, there = _fleets(state / FLEETS), server.is_dir()
    if not fleets and not there and not outside:
        raise ConfigError(f"there is nothing to copy in {state}: no fleet, no server")
    description = BackupDescription(
        created=now,
        host=socket.gethostname(),
        state=str(state.absolute()),
        fleets=tuple(fleets),
        server=there,
        runs={name: str(folder) for name, folder in outside.items()},
    )
    files, queued = 0, list[tuple[str, Submission]]()
    with written(path, description, reader) as writer:
        for fleet in fleets:
            with _fleet(fleet) as pinned:
                files += _write(writer, pinned)
        if there:
            with _server(server) as pinned:
                queued = unended(pinned)
                files += _write(writer, pinned)
            for run in _runs_in(server / places.RUNS):
                files += _add_run(writer, run, f"{SERVER}/{places.RUNS}/{run.name}")
        for name, folder in outside.items():
            files += _add_run(writer, folder, f"{RUNS}/{name}")
    here = {str(folder) for folder in outside.values()}
    each = ((name, Path(one.folder)) for name, one in queued if Path(one.folder) != server / places.RUNS)
    missing = tuple(str(folder / name) for name, folder in each if str(folder / name) not in here)
    return BackupSummary(description, files, missing)


# ---- what is copied --------------------------------------------------------------------------------------------------


def _fleets(folder: Path) -> list[str]:
    """The names of fleets: those with a folder, and those that have a key alone."""
    if not folder.is_dir():
        return []
    keys = (path.stem for path in folder.glob("*.key"))
    return sorted({*keys, *(path.parent.name for path in folder.glob(f"*/{SETTINGS}"))})


@contextmanager
def _fleet(name: str) -> Iterator[list[PinnedFile]]:
    fleet = FleetFolder(name)
    folder = fleet.path.parent
    beside = (f"{name}.key", f"{name}.questions", f"{name}.seen.json")

    def belongs(path: str) -> bool:
        return path in beside or path.startswith(f"{name}/")

    with ExitStack() as files:
        with fleet.changing() if fleet.exists() else nullcontext():
            pinned = files.enter_context(_pinned(folder, FLEETS, belongs))
        yield pinned


@contextmanager
def _server(folder: Path) -> Iterator[list[PinnedFile]]:
    """The server's own files; the lock of its audit log is free again when they are copied."""

    def belongs(path: str) -> bool:
        return path.split("/", maxsplit=1)[0] not in (places.RUNS, LOGS)

    with ExitStack() as files:
        with audit.locked(folder):
            pinned = files.enter_context(_pinned(folder, SERVER, belongs))
        yield pinned


def _add_run(writer: BackupWriter, folder: Path, prefix: str) -> int:
    try:
        with _pinned(folder, prefix, lambda _: True) as pinned:
            return _write(writer, pinned)
    except FileNotFoundError:  # the server has deleted it meanwhile, as its file says
        return 0


def _write(writer: BackupWriter, pinned: Sequence[PinnedFile]) -> int:
    for file in pinned:
        writer.add(file.name, file.size, file.source)
    return len(pinned)


def _runs_in(folder: Path) -> list[Path]:
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in inside if path.name[0] != "." and path.is_dir() and not path.is_symlink()]


def _outside(folders: Sequence[Path], own: Path) -> dict[str, Path]:
    """The runs in these folders by name; each is the folder of a run, or of several."""
    by_name: dict[str, Path] = {}
    for folder in folders:
        whole = Path(os.path.abspath(folder))  # noqa: PTH100 - without following links
        runs = [path for path in (whole, *_runs_in(whole)) if journal.exists(FolderDisk(path))]
        if not runs:
            raise ConfigError(f"{folder}: no folder of a run, or of runs")
        for run in runs:
            if run.parent == own:
                continue
            if by_name.setdefault(run.name, run) != run or (own / run.name).exists() or not is_plain(run.name):
                raise ConfigError(f"{run}: there is another run '{run.name}'; a back-up holds one of a name")
    return by_name


def unended(pinned: Sequence[PinnedFile]) -> list[tuple[str, Submission]]:
    """Return the runs that have not ended, by a copy of the server's files."""
    disk = MemoryDisk()
    for file in pinned:
        name = file.name.removeprefix(f"{SERVER}/")
        if fnmatchcase(name, rows.FILES):
            disk.write(name, file.source.read(file.size))
            file.source.seek(0)
    state = queue_file.read(RowStore(disk), at_once=1)
    return [(run.name, run.submission) for run in state.runs.values() if not run.over and run.started is not None]


# ---- a folder at one moment ------------------------------------------------------------------------------------------


@contextmanager
def _pinned(folder: Path, prefix: str, belongs: Callable[[str], bool]) -> Iterator[list[PinnedFile]]:
    """The files of a folder as they were at one moment; they are open until the block ends."""
    for _ in range(ATTEMPTS):
        with ExitStack() as opened:
            if (pinned := _at_once(folder, prefix, belongs, opened)) is not None:
                yield pinned
                return
        time.sleep(PAUSE)
    raise StoreError(f"{folder}: its files change all the time; pause the run, and make the back-up again")


def _at_once(folder: Path, prefix: str, belongs: Callable[[str], bool], opened: ExitStack) -> list[PinnedFile] | None:
    """Open all files, and return them if the folder did not change meanwhile.

    A journal is written ahead of the checkpoints that follow from it, so the lengths of journals are taken last.
    """
    try:
        names = _names(folder, belongs)
        files, at = [], []
        for name in sorted(names, key=lambda name: ("journal" in name, name)):
            file, place = _opened(folder / name, f"{prefix}/{name}", opened)
            files.append(file)
            at.append((folder / name, place))
        if _names(folder, belongs) != names or any(_place(path.lstat()) != place for path, place in at):
            return None
    except FileNotFoundError:
        if not folder.exists():
            raise
        return None
    return files


def _names(folder: Path, belongs: Callable[[str], bool]) -> list[str]:
    """The plain files below a folder that are to be copied; hidden ones are being written, or are locks."""
    names = []
    for at, inside, files in os.walk(folder, onerror=_raised):
        inside[:] = sorted(name for name in inside if name[0] != ".")
        for name in files:
            path = Path(at) / name
            relative = path.relative_to(folder).as_posix()
            plain = name[0] != "." and name not in NOT_COPIED and belongs(relative)
            if plain and stat.S_ISREG(path.lstat().st_mode):
                names.append(relative)
    return sorted(names)


def _raised(error: OSError) -> None:
    raise error


def _opened(path: Path, name: str, opened: ExitStack) -> tuple[PinnedFile, tuple[int, int]]:
    """A file at its present length, and which file of the disk it is."""
    file = path.open("rb")
    about = os.fstat(file.fileno())
    if about.st_size > SMALL:
        opened.enter_context(file)
        return PinnedFile(name, about.st_size, file), _place(about)
    with file:
        data = file.read(about.st_size)
    return PinnedFile(name, len(data), BytesIO(data)), _place(about)


def _place(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino
