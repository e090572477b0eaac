"""How far a run has come, as the end of its metrics file tells: read while its coordinator writes there."""

import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgefl.base.errors import ConfigError
from edgefl.base.events import Round, from_json
from edgefl.job.config.reader import parse, tables
from edgefl.job.config.schema import RunFile
from edgefl.learn.evaluation.figures import chief
from edgefl.server.decide.vocabulary import Submission
from edgefl.system.json_text import parse_json
from edgefl.watch.page.history import METRICS

log = logging.getLogger(__name__)

TAIL = 64 << 10  # bytes of the file that are looked through
KNOWN = 64  # run files whose number of rounds is remembered


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The last round that a run has merged, of how many, and what its model is worth."""

    round: int
    rounds: int | None
    measure: str | None
    score: float | None


def progress_of(submission: Submission, name: str) -> RunProgress:
    """Return how far the run of this name has come; round 0 if none is merged."""
    last = _last_round(Path(submission.folder) / name / METRICS)
    figure = chief(last.scores) if last is not None else None
    return RunProgress(
        last.round if last is not None else 0,
        _planned(submission),
        figure.name if figure else None,
        figure.value if figure else None,
    )


def _last_round(path: Path) -> Round | None:
    """Return the newest whole line of a round."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().splitlines(keepends=True)
    except OSError:
        return None  # none is merged yet
    for line in reversed(lines):
        if not line.endswith(b"\n"):
            continue
        try:
            fact = from_json(parse_json(line))
        except (ValueError, TypeError, KeyError) as error:  # the first line may be the rest of one
            log.debug("not a line of metrics path=%s why=%s", path, error)
            continue
        if isinstance(fact, Round):
            return fact
    return None


@lru_cache(KNOWN)
def _planned(submission: Submission) -> int | None:
    """Return how many rounds the run file asks for."""
    try:
        run = parse(RunFile, tables(submission.text), "the run file", submission.sets, environment={})
    except (ConfigError, ValueError) as error:  # its coordinator says so, and it fails
        log.debug("not a run file run=%s why=%s", submission.name, error)
        return None
    return run.run.rounds
