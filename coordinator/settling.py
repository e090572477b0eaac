"""What is in a run's folder when its coordinator starts: nothing, a run to go on with, or one that has ended.

nothing      it begins
unfinished   it goes on with the round in hand; what the model does not depend on may have changed
finished     it stays as it is, unless somebody says what is to become of it: `--fresh` moves it aside and begins
anew, `extend` gives it more rounds, and another run may begin with its model (run.from)
"""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from coordinator import checkpoint, journal
from coordinator.beginning import rules
from coordinator.resuming import ON_THE_WIRE, Change, Stated, changes, rounds_in_force
from coordinator.rounds import Rounds, Rules, continued, reopened
from edgefl.config.reader import parse
from edgefl.config.schema import RunFile
from edgefl.errors import ConfigError, Finished, StoreError
from edgefl.events import Changed
from edgefl.system.disk import FolderDisk
from edgefl.system.store import make_private

log = logging.getLogger(__name__)

ENDS = {"run.target_accuracy", "run.target_loss", "evaluation.patience"}  # what may end a run before its last round

Known: TypeAlias = dict[str, Any]  # a run file as JSON has it


def settle(folder: Path, run: RunFile, *, fresh: bool = False, stated: Stated | None = None) -> RunFile:
    """Make the folder ready; the run file that is in force, whose rounds may be those of an extension."""
    stated = stated or Stated(run.run.rounds)
    try:
        make_private(folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made ({error.strerror}); choose another run.folder") from None
    disk = FolderDisk(folder)
    if journal.exists(disk):
        book = None if fresh else journal.Journal(disk)  # a damaged one, or another version's, can be left behind
        if book and not book.get("done"):
            return _resume(book, folder, run, stated)
        if book:
            raise Finished(has_finished(run, book))
        _move_aside(folder)
    if stated.override is not None:  # a start without it, later, is told by this from a change of the file
        journal.Journal(disk).set(stated=stated.as_json())
    return run


def extend(folder: Path, run: RunFile, more: int, *, stated: Stated | None = None) -> RunFile:
    """Give a run more rounds, whether it has ended or not; the run file that is in force from now on."""
    if not journal.exists(FolderDisk(folder)):
        raise ConfigError(f"{folder} holds no run that could be extended; name one that was begun")
    book = journal.Journal(FolderDisk(folder))
    known, state = _known(book), _rounds(book, run)
    if known is None or state is None:
        raise ConfigError(f"{folder} holds a run without a round yet: set run.rounds, and start it")
    before = int(known["run"]["rounds"])
    run = _with_rounds(run, (state.round if state.phase == "finished" else before) + more)
    changed = _compared(known, run, folder)
    enough = state.phase == "finished" and (state.round < before or checkpoint.reached(book.disk) is not None)
    if enough and not any(change.key in ENDS for change in changed):
        raise ConfigError(
            f"run '{run.run.name}' ended in round {state.round} because its model was good enough, or got no better:"
            f" change what ended it ({', '.join(sorted(ENDS))}), or take it out of the run file, and extend it then"
        )
    stated = stated or Stated.from_json(book.get("stated")) or Stated(before)
    _amend(book, run, continued(replace(state, rules=_rules(run))), changed, stated=stated.as_json(), done="")
    return run


def finished(run: RunFile) -> bool | None:
    """Whether the last run of this name came to its end; if not, the same command goes on with it. None: no run yet."""
    disk = FolderDisk(run.run.folder / run.run.name)
    return bool(journal.Journal(disk, reading=True).get("done")) if journal.exists(disk) else None


def has_finished(run: RunFile, book: journal.Journal | None = None) -> str:
    """That the run has ended, and what can be done about it, in one line."""
    folder = run.run.folder / run.run.name
    state = _rounds(book or journal.Journal(FolderDisk(folder), reading=True), run)
    after = f" after {state.round} rounds" if state else ""
    return (
        f"run '{run.run.name}' has finished{after} and is left alone: `edgefl coordinator extend {folder} --rounds 20`"
        f" goes on with it, run.from = '{run.run.name}' begins another run with its model, --fresh begins it anew"
    )


def begun(folder: Path, sets: Sequence[str] = ()) -> RunFile:
    """The run file that is in force for the run in this folder, which may have been moved since."""
    disk = FolderDisk(folder)
    known = _known(journal.Journal(disk, reading=True)) if journal.exists(disk) else None
    if known is None:
        raise ConfigError(f"{folder}: neither a run file nor the folder of a run")
    if folder.name != known["run"]["name"]:
        raise ConfigError(
            f"{folder}: was moved aside when run '{known['run']['name']}' began anew; run.from = '{folder}' in a run"
            " file begins another run with its model"
        )
    return parse(RunFile, {**known, "run": {**known["run"], "folder": str(folder.parent)}}, str(folder), sets)


def _resume(book: journal.Journal, folder: Path, run: RunFile, stated: Stated) -> RunFile:
    """What may change takes effect and is written down; of what may not, everything is named at once."""
    known = _known(book)
    if known is None:
        return run
    rounds = int(known["run"]["rounds"])
    before = Stated.from_json(book.get("stated")) or Stated(rounds)
    run = _with_rounds(run, rounds_in_force(rounds, before, stated))
    changed = _compared(known, run, folder)
    state = _rounds(book, run)
    if state and any(change.key in ON_THE_WIRE for change in changed):
        state = reopened(state)
    if changed or stated != before:
        _amend(book, run, state, changed, stated=stated.as_json())
    return run


def _compared(known: Known, run: RunFile, folder: Path) -> list[Change]:
    """What is new in the run file, if the model does not depend on it."""
    changed = changes(known, run.model_dump(mode="json"))
    if refused := [str(change) for change in changed if not change.allowed]:
        raise ConfigError(
            f"{folder} holds a run whose model depends on what was changed ({'; '.join(refused)}):"
            " change it back and go on, or begin anew with --fresh"
        )
    return changed


def _amend(book: journal.Journal, run: RunFile, state: Rounds | None, changed: list[Change], **facts: str) -> None:
    for change in changed:
        log.warning("changed key=%s before=%s now=%s", change.key, change.before, change.now)
    told = [Changed(change.key, change.before, change.now, at=time.time()) for change in changed]
    book.amend(run.model_dump_json(), state, told, **facts)


def _known(book: journal.Journal) -> Known | None:
    """The run file that was in force, as it was written down, perhaps by an earlier version."""
    told = book.get("run")
    return None if told is None else json.loads(told)


def _rounds(book: journal.Journal, run: RunFile) -> Rounds | None:
    """Where the rounds stand, under the rules of this run file."""
    return book.rounds(_rules(run))


def _rules(run: RunFile) -> Rules:
    return rules(run, run.make_algorithm().cohort_rounds)


def _with_rounds(run: RunFile, rounds: int) -> RunFile:
    return run.model_copy(update={"run": run.run.model_copy(update={"rounds": rounds})})


def _move_aside(folder: Path) -> None:
    number = 1
    while folder.with_name(f"{folder.name}~{number}").exists():
        number += 1
    folder.rename(folder.with_name(f"{folder.name}~{number}"))
    make_private(folder)
