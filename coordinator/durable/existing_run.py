"""What is in a run's folder when its coordinator starts: nothing, a run to go on with, or one that has ended.

nothing      it begins
unfinished   it goes on with the round in hand; what the model does not depend on may have changed
finished     it stays as it is, unless an option says what is to become of it: `--fresh` moves it aside and begins
anew, `extend` gives it more rounds, and another run may begin with its model (run.from)
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from coordinator.decide.rounds import Rounds, continued, reopened
from coordinator.durable import checkpoint, journal
from coordinator.durable.resuming import (
    CONTENTS,
    DATA,
    ON_THE_WIRE,
    RequestedRounds,
    SettingChange,
    changes,
    rounds_in_force,
)
from coordinator.durable.run_table import run_table
from coordinator.durable.starting_point import rules
from edgefl.base.errors import CodeRefused, ConfigError, Finished, StoreError
from edgefl.base.events import Changed
from edgefl.job.config.reader import overrides, parse
from edgefl.job.config.schema import RunFile
from edgefl.learn.data import files
from edgefl.learn.data.limit import usual_mb
from edgefl.learn.data.reading import Reading
from edgefl.system import user_code
from edgefl.system.disk import FolderDisk
from edgefl.system.store import make_private

log = logging.getLogger(__name__)

ENDS = {"run.target_accuracy", "run.target_loss", "evaluation.patience"}  # what may end a run before its last round

Known: TypeAlias = dict[str, Any]  # a run file as JSON has it


def unfinished(folder: Path, run: RunFile) -> journal.Journal | None:
    """Return the journal of the run that is to go on here, opened; None if there is none yet.

    Raise `Finished` if it has ended.
    """
    disk = FolderDisk(folder)
    if not journal.exists(disk):
        return None
    book = journal.Journal(disk)
    if book.get("done"):
        raise Finished(_has_finished(run, book))
    return book


def settle(folder: Path, run: RunFile, *, fresh: bool = False, stated: RequestedRounds | None = None) -> RunFile:
    """Make the folder ready; the run file that is in force, whose rounds may be those of an extension."""
    return settled(folder, run, None if fresh else unfinished(folder, run), stated=stated)[0]


def settled(
    folder: Path, run: RunFile, book: journal.Journal | None, *, stated: RequestedRounds | None = None
) -> tuple[RunFile, journal.Journal]:
    """The same for a run whose journal is open; without one, what is in the folder is moved aside."""
    stated = stated or RequestedRounds(run.run.rounds)
    try:
        make_private(folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made ({error.strerror}); choose another run.folder") from None
    if book is not None:
        return _resume(book, run, stated), book
    disk = FolderDisk(folder)
    if journal.exists(disk):  # perhaps a damaged one, or another version's: it can be left behind
        _move_aside(folder)
    book = journal.Journal(disk)
    # What a later start compares: who said how many rounds, and what is in the data, wherever they lie then.
    values = {} if stated.override is None else {"stated": stated.as_json()}
    if data := files.contents(run.task.data):
        values["data"] = data
    if values:
        book.set(**values)
    return run, book


def extend(folder: Path, run: RunFile, more: int, *, stated: RequestedRounds | None = None) -> RunFile:
    """Give a run more rounds, whether it has ended or not; the run file that is in force from now on."""
    if not journal.exists(FolderDisk(folder)):
        raise ConfigError(f"{folder} holds no run that could be extended; name one that was begun")
    book = journal.Journal(FolderDisk(folder))
    known, state = run_table(book), _rounds(book, run)
    if known is None or state is None:
        raise ConfigError(f"{folder} holds a run without a round yet: set run.rounds, and start it")
    before = int(known["run"]["rounds"])
    run = _with_rounds(run, (state.round if state.phase == "finished" else before) + more)
    changed = _compared(book, known, run)
    enough = state.phase == "finished" and (state.round < before or checkpoint.reached(book.disk) is not None)
    if enough and not any(change.key in ENDS for change in changed):
        raise ConfigError(
            f"run '{run.run.name}' ended in round {state.round} because its model was good enough, or got no better:"
            f" change what ended it ({', '.join(sorted(ENDS))}), or take it out of the run file, and extend it then"
        )
    stated = stated or RequestedRounds.from_json(book.get("stated")) or RequestedRounds(before)
    _amend(book, run, continued(replace(state, rules=rules(run))), changed, stated=stated.as_json(), done="")
    return run


def _has_finished(run: RunFile, book: journal.Journal) -> str:
    """That the run has ended, and what can be done about it, in one line."""
    folder = run.run.folder / run.run.name
    state = _rounds(book, run)
    after = f" after {state.round} rounds" if state else ""
    return (
        f"run '{run.run.name}' has finished{after} and is left alone: `edgefl coordinator extend {folder} --rounds 20`"
        f" goes on with it, run.from = '{run.run.name}' begins another run with its model, --fresh begins it anew"
    )


def begun(folder: Path, sets: Sequence[str] = (), *, remedy: str, own: RunFile | None = None) -> RunFile:
    """The run file that is in force for the run in this folder, which may have been moved since.

    A folder may not name code, nor a query or memory for its data: `remedy` says how the operator does, where a run
    needs some. `own` is the run file that he named, if he did.
    """
    disk = FolderDisk(folder)
    known = run_table(journal.Journal(disk, reading=True)) if journal.exists(disk) else None
    if known is None:
        raise ConfigError(f"{folder}: neither a run file nor the folder of a run")
    if folder.name != known["run"]["name"]:
        raise ConfigError(
            f"{folder}: was moved aside when run '{known['run']['name']}' began anew; run.from = '{folder}' in a run"
            " file begins another run with its model"
        )
    table = {**known, "run": {**known["run"], "folder": str(folder.parent)}}
    try:
        run = parse(RunFile, table, str(folder), sets)
        for key, place in (("task.model", run.task.model), ("task.data", run.task.data or "")):
            if ":" in place and not files.is_file(place):
                user_code.check(place, key)
    except CodeRefused as error:
        raise CodeRefused(f"{error}: {remedy}") from None
    allowed = Reading() if own is None else own.data
    set_here = {override.key for override in overrides(RunFile, sets, os.environ)}
    for key, asked, least in (
        ("data.query", run.data.query, allowed.query),
        ("data.most_mb", max(run.data.most_mb or 0, usual_mb()), max(allowed.most_mb or 0, usual_mb())),
    ):
        if asked != least and key not in set_here:
            raise ConfigError(f"{folder}: its journal says {key} = {asked!r}, which you have not said: {remedy}")
    return run


def _resume(book: journal.Journal, run: RunFile, stated: RequestedRounds) -> RunFile:
    """What may change takes effect and is written down; of what may not, everything is named at once."""
    known = run_table(book)
    if known is None:
        return run
    rounds = int(known["run"]["rounds"])
    before = RequestedRounds.from_json(book.get("stated")) or RequestedRounds(rounds)
    run = _with_rounds(run, rounds_in_force(rounds, before, stated))
    changed = _compared(book, known, run)
    state = _rounds(book, run)
    if state and any(change.key in ON_THE_WIRE for change in changed):
        state = reopened(state)
    if changed or stated != before or (files.contents(run.task.data) or book.get("data")) != book.get("data"):
        _amend(book, run, state, changed, stated=stated.as_json())
    return run


def _compared(book: journal.Journal, known: Known, run: RunFile) -> list[SettingChange]:
    """What is new in the run file, if the model does not depend on it, and in the data that it names."""
    changed = [*_data_compared(book, changes(known, run.model_dump(mode="json")), run)]
    if refused := [str(change) for change in changed if not change.allowed]:
        raise ConfigError(
            f"{book.disk.where()} holds a run whose model depends on what was changed ({'; '.join(refused)}):"
            " change it back and go on, or begin anew with --fresh"
        )
    return changed


def _data_compared(book: journal.Journal, changed: Sequence[SettingChange], run: RunFile) -> Iterator[SettingChange]:
    """Compare data by their contents: files that were moved are the same, files that were written to are not."""
    now = files.contents(run.task.data)
    for change in changed:
        if change.key == DATA:
            before = book.get("data") or files.contents(change.before)
            note = ", with other contents" if now and before else ", and their contents cannot be compared"
            yield replace(change, moved=now is not None and now == before, note=note)
        else:
            yield change
    before = book.get("data")
    if now and before and now != before and not any(change.key == DATA for change in changed):
        yield SettingChange(CONTENTS, before[:16], now[:16])


def _amend(
    book: journal.Journal, run: RunFile, state: Rounds | None, changed: list[SettingChange], **facts: str
) -> None:
    for change in changed:
        log.warning("changed key=%s before=%s now=%s", change.key, change.before, change.now)
    if data := files.contents(run.task.data):
        facts["data"] = data
    told = [Changed(change.key, change.before, change.now, at=time.time()) for change in changed]
    book.amend(run.model_dump_json(), state, told, **facts)


def _rounds(book: journal.Journal, run: RunFile) -> Rounds | None:
    """Where the rounds stand, under the rules of this run file."""
    return book.rounds(rules(run))


def _with_rounds(run: RunFile, rounds: int) -> RunFile:
    return run.model_copy(update={"run": run.run.model_copy(update={"rounds": rounds})})


def _move_aside(folder: Path) -> None:
    number = 1
    while folder.with_name(f"{folder.name}~{number}").exists():
        number += 1
    folder.rename(folder.with_name(f"{folder.name}~{number}"))
    make_private(folder)
