"""Bring a back-up to this machine: unpack it aside, check it, revoke, and only then put it in its place.

What was revoked after the copy is a member in it. So a person is asked, and these members are revoked before any broker
can read the files. The queue learns where its runs are now. A kill before the last step leaves everything as it was.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from coordinator.durable import journal
from coordinator.shell import known_runs
from edgefl.base.errors import ConfigError
from edgefl.fleet import audit
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.audit import AuditLog, Deed
from edgefl.fleet.folder import FleetFolder, state_folder
from edgefl.fleet.members import Member
from edgefl.server import folder as places
from edgefl.server.backup_file import FLEETS, RUNS, SERVER, BackupDescription, extract
from edgefl.server.decide.runs import QueuedRun, RunSchedule, ServerState
from edgefl.server.decide.vocabulary import Submission
from edgefl.server.durable import queue_file
from edgefl.server.durable.rows import RowStore
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own, owner
from edgefl.system.store import make_folder, make_private

STAGING = ".restore"
ASIDE = "replaced"  # what stood in the place of a restored fleet or server

Listed = Mapping[str, Mapping[str, Member]]  # the members of each fleet, as the copy knows them
Revoked = Sequence[tuple[str, str]]  # fleet and member
Asked = TypeVar("Asked", RunSchedule, QueuedRun)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where things go on this machine."""

    replace: bool = False  # move aside what is there
    runs: Path | None = None  # for runs that stood outside of the server's folder; None: into the server's
    beside: Path | None = None  # where the files are that run files name, if not where they were


@dataclass(frozen=True, slots=True)
class RestoreSummary:
    """What was done, and what a person should look at."""

    description: BackupDescription
    revoked: tuple[tuple[str, str], ...]
    runs: tuple[Path, ...]
    aside: Path | None  # where that lies which was replaced
    cautions: tuple[str, ...]


def restore(  # noqa: PLR0917 - what a restore is told
    path: Path,
    key: Any,  # a secret key of sealed_stream.py, if the file is sealed
    to: Destination,
    ask: Callable[[BackupDescription, Listed], Revoked],
    by: str,
    now: datetime,
) -> RestoreSummary:
    """Restore a back-up. `ask` is told the members as they were, and returns who was revoked since."""
    state = state_folder()
    if (process := owner(places.folder())) is not None:
        raise ConfigError(f"a server of this operator runs here (process {process}): stop it first")
    with own(state / STAGING, remedy="another restore is at work"):
        fresh = state / STAGING / "files"
        shutil.rmtree(fresh, ignore_errors=True)
        make_private(fresh)
        try:
            return _restored(path, key, to, ask, by, now, state, fresh)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _restored(  # noqa: PLR0917
    path: Path,
    key: Any,
    to: Destination,
    ask: Callable[[BackupDescription, Listed], Revoked],
    by: str,
    now: datetime,
    state: Path,
    fresh: Path,
) -> RestoreSummary:
    description = extract(path, fresh, key, lambda one: _check_free(one, to, state))
    fleets = {
        name: FleetAdministration(name, fresh) for name in description.fleets if FleetFolder(name, fresh).exists()
    }
    revoked = tuple(ask(description, {name: fleet.members.active() for name, fleet in fleets.items()}))
    for fleet, member in revoked:
        fleets[fleet].revoke(member, now)
    cautions: list[str] = []
    runs = _destinations(description, to)
    if description.server:
        fault = _fault_of_audit(fresh / SERVER)
        cautions += [f"the audit log in the copy is not whole: {fault}"] if fault else []
        cautions += _relocate(fresh / SERVER, description, runs, to, now)
    aside = _put_in_place(description, state, fresh, runs, now)
    inside = places.folder() / places.RUNS
    each = {*runs.values(), *(inside.iterdir() if description.server and inside.is_dir() else ())}
    standing = tuple(sorted(run for run in each if journal.exists(FolderDisk(run))))
    for run in standing:
        known_runs.announce(run)
    about = f"copy of {description.created:%Y-%m-%d %H:%M:%S} from {description.host}; revoked again: " + (
        ", ".join(f"{fleet}/{name}" for fleet, name in revoked) or "none"
    )
    book = AuditLog.opened(places.folder())
    book.write(
        Deed(by, "restore", "this machine", ",".join(description.fleets), path.name, "done", about), now.timestamp()
    )
    return RestoreSummary(description, revoked, standing, aside, tuple(cautions))


# ---- what is there already -------------------------------------------------------------------------------------------


def _check_free(description: BackupDescription, to: Destination, state: Path) -> None:
    """Refuse to write over anything, unless it may be moved aside; a broker that runs keeps its files."""
    for name in description.fleets:
        fleet = FleetFolder(name)
        if (process := owner(fleet.broker)) is not None:
            raise ConfigError(f"the broker of fleet '{name}' runs here (process {process}): stop it first")
        if not to.replace and (there := _of_fleet(name, state)):
            raise ConfigError(
                f"there is a fleet '{name}' here ({there[0]}); --replace moves it aside, into {state / ASIDE}"
            )
    if description.server and not to.replace and _is_used(places.folder()):
        raise ConfigError(f"there is a server here ({places.folder()}); --replace moves it aside, into {state / ASIDE}")
    for run in _destinations(description, to).values():
        replaced = description.server and run.is_relative_to(places.folder())  # with the server that is there
        if run.exists() and not replaced:
            raise ConfigError(f"{run}: is there already; --runs FOLDER names another place for runs")


def _of_fleet(name: str, state: Path) -> list[Path]:
    folder = state / FLEETS
    each = (folder / name, *(folder / f"{name}.{kind}" for kind in ("key", "questions", "seen.json")))
    return [path for path in each if path.exists()]


def _is_used(folder: Path) -> bool:
    """Whether a server has been at work there: commands that were refused leave an audit log alone."""
    return any(not path.name.startswith("audit.") for path in _inside(folder))


def _inside(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != "lock"] if folder.is_dir() else []


def _destinations(description: BackupDescription, to: Destination) -> dict[str, Path]:
    """Where each run goes that stood outside of the server's folder."""
    folder = (to.runs or places.folder() / places.RUNS).absolute()
    return {name: folder / name for name in description.runs}


def _put_in_place(
    description: BackupDescription, state: Path, fresh: Path, runs: Mapping[str, Path], now: datetime
) -> Path | None:
    """Move what was there aside, and what was unpacked into its place; the server comes last."""
    aside = state / ASIDE / f"{now:%Y%m%d-%H%M%S}"
    old = [path for name in description.fleets for path in _of_fleet(name, state)]
    old += [places.folder()] if description.server and _inside(places.folder()) else []
    for path in old:  # fleets and a server that was at work: only if a person said so, see `_check_free`
        make_folder((aside / path.relative_to(state)).parent)
        path.replace(aside / path.relative_to(state))
    make_folder(state / FLEETS)
    for name in description.fleets:
        for path in _of_fleet(name, fresh):
            path.replace(state / FLEETS / path.name)
    if description.server:
        make_private(fresh / SERVER)
        for path in (fresh / SERVER).iterdir():
            make_folder(places.folder())
            path.replace(places.folder() / path.name)
    for name, run in runs.items():
        if (fresh / RUNS / name).exists():
            make_folder(run.parent)
            shutil.move(fresh / RUNS / name, run)
    return aside if aside.exists() else None


# ---- the server's own files ------------------------------------------------------------------------------------------


def _fault_of_audit(folder: Path) -> str:
    """What is wrong with the audit log of the copy; empty if nothing is."""
    if not (folder / audit.NAME).exists():
        return ""
    book = AuditLog.opened(folder)
    book.head()  # cuts off a line that a power cut tore
    return audit.verify(book.disk, book.signer.key)


def _relocate(
    folder: Path, description: BackupDescription, outside: Mapping[str, Path], to: Destination, now: datetime
) -> list[str]:
    """Tell the queue of the copy where its runs are from now on; return what a person should look at."""
    rows = RowStore(FolderDisk(folder))
    before = queue_file.read(rows, at_once=1)
    old = Path(description.state) / SERVER
    cautions: list[str] = []

    def moved(run: Asked) -> Asked:
        return replace(run, submission=_moved(run.submission, run.name, old, outside, to, cautions))

    moved_runs = {name: moved(run) for name, run in before.runs.items()}
    runs = {name: run if name in outside else _standing(run, cautions, now) for name, run in moved_runs.items()}
    after = replace(before, runs=runs, schedules={name: moved(one) for name, one in before.schedules.items()})
    _write(rows, before, after)
    return list(dict.fromkeys(cautions))


def _write(rows: RowStore, before: ServerState, after: ServerState) -> None:
    rows.write(queue_file.changes(before, after))


def _moved(  # noqa: PLR0917
    submission: Submission,
    name: str,
    old: Path,
    outside: Mapping[str, Path],
    to: Destination,
    cautions: list[str],
) -> Submission:
    """The same submission with the places of this machine."""
    was = Path(submission.folder)
    now_at = places.folder().absolute() / was.relative_to(old) if was.is_relative_to(old) else was
    if name in outside:
        now_at = outside[name].parent
    beside = submission.beside
    if beside and not Path(beside).is_dir():
        beside = str(to.beside.absolute()) if to.beside else ""
        if not beside:
            cautions.append(
                f"files that '{name}' names stood in {submission.beside}: --beside FOLDER says where they are"
            )
    sets = tuple(_moved_key(key, was, now_at, old) for key in submission.sets)
    return replace(submission, folder=str(now_at), beside=beside, sets=sets)


def _moved_key(key: str, was: Path, now_at: Path, old: Path) -> str:
    """A key of a submission; those that name a folder of the old server name that of the new one."""
    name, equals, value = key.partition("=")
    if name == "run.folder" and value == str(was):
        return f"{name}{equals}{now_at}"
    if name == "run.from" and Path(value).is_relative_to(old):
        return f"{name}{equals}{places.folder().absolute() / Path(value).relative_to(old)}"
    return key


def _standing(run: QueuedRun, cautions: list[str], now: datetime) -> QueuedRun:
    """The run as it is queued here: one that had begun, and whose folder is not here, has failed."""
    place = Path(run.submission.folder)
    in_copy = place.is_relative_to(places.folder().absolute())
    if run.over or run.started is None or in_copy or journal.exists(FolderDisk(place / run.name)):
        return run
    reason = (
        f"its folder {place / run.name} is not in the back-up: submit it again under another run.name, with run.from"
        " if its model is somewhere, or make the back-up again with --runs"
    )
    cautions.append(f"run '{run.name}' does not go on: {reason}")
    return replace(run, phase="failed", reason=reason, ended=now.timestamp(), wish=None, again_at=None)
