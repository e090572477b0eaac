"""From a run file to what a server queues; what is wrong with it is said now, and not at two in the morning."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import parse, tables
from edgefl.job.config.schema import RunFile
from edgefl.server.decide.vocabulary import Recurring, Submission
from edgefl.server.folder import RUNS
from edgefl.system import user_code

ORIGIN = "the run file"


def submission_of(
    text: str,
    sets: Sequence[str],
    folder: Path,
    *,
    beside: str = "",
    priority: int = 0,
    code: bool = False,
) -> Submission:
    """Return what is queued; `folder` is the server's, for runs that name none of their own.

    `code` says whether the file may name code: only an admin's may.
    """
    try:
        table = tables(text)
    except ValueError as error:
        raise ConfigError(f"{ORIGIN} is not valid TOML: {error}") from None
    if code:
        user_code.allow_in(table)
    else:
        user_code.check_all({**table, "sets": list(sets)}, ORIGIN)
    run = parse(RunFile, table, ORIGIN, sets, environment={})
    run.refuse_simulated_only()
    own_folder = _own_folder(table, sets, run, folder, beside)
    schedule = run.schedule
    recurring = None
    if schedule is not None:
        from_last = schedule.from_ == "last"
        recurring = Recurring(schedule.cron, schedule.zone, from_last, schedule.when, schedule.missed)
    return Submission(
        run.run.name,
        run.broker.fleet,
        text,
        (*sets, f"run.folder={own_folder}"),
        beside,
        str(own_folder),
        priority,
        run.keep.runs,
        recurring,
    )


def _own_folder(table: Mapping[str, Any], sets: Sequence[str], run: RunFile, folder: Path, beside: str) -> Path:
    """Where the folder of the run will be: where it says, if its submitter has a place on this disk."""
    says = "folder" in table.get("run", {}) or any(key.startswith("run.folder=") for key in sets)
    if beside and says:
        return Path(os.path.abspath(Path(beside) / run.run.folder))  # noqa: PTH100 - without following links
    return folder / RUNS
