"""Runs before this one: what their folders say of them, read anew only when a file has changed."""

import logging
from pathlib import Path
from typing import Any

from edgefl.base import events
from edgefl.base.events import Done, from_json
from edgefl.base.scores import beside
from edgefl.learn.evaluation.figures import chief
from edgefl.learn.evaluation.judged_rounds import judged_rounds
from edgefl.system.json_text import parse_json
from edgefl.watch.overview.snapshot import plain

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
MOST = 50  # runs that are listed, the newest
LARGEST = 64 << 20  # bytes of a metrics file that is read
CURVES = ("round", "scores", "forgetting", "bytes_up", "bytes_down", "seconds")


class PastRuns:
    """The runs in one folder, as the page lists and compares them."""

    def __init__(self, folder: Path, here: str = "") -> None:
        self.folder, self.here = folder, here  # the run that is shown already
        self._read: dict[str, tuple[tuple[int, int], dict[str, Any], list[dict[str, Any]]]] = {}

    def listed(self) -> list[dict[str, Any]]:
        """What is known of each, the newest first."""
        paths = sorted(self._metrics(), key=lambda path: path.stat().st_mtime, reverse=True)[:MOST]
        summaries = [summary for path in paths if (summary := self._known(path)[0])]
        return [{**summary, "here": summary["name"] == self.here} for summary in summaries]

    def rounds(self, name: str) -> list[dict[str, Any]] | None:
        """The curves of one of them, a row for each round."""
        path = next((path for path in self._metrics() if path.parent.name == name), None)
        return None if path is None else self._known(path)[1]

    def _metrics(self) -> list[Path]:
        try:
            inside = [path / METRICS for path in self.folder.iterdir() if not path.name.startswith(".")]
        except OSError:
            return []
        return [path for path in inside if path.is_file()]

    def _known(self, path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        name, stat = path.parent.name, path.stat()
        state = stat.st_mtime_ns, stat.st_size
        if name not in self._read or self._read[name][0] != state:
            self._read[name] = state, *_read(path, stat.st_size)
        return self._read[name][1:]


def _read(path: Path, size: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What to say of a run, and its rounds; nothing, if its file is none of ours."""
    facts = _facts(path) if size <= LARGEST else []
    rounds = judged_rounds(facts)
    done = next((fact for fact in reversed(facts) if isinstance(fact, Done)), None)  # one that was extended has two
    if not facts:
        return {}, []
    judged = [figure for row in rounds if (figure := chief(row.scores)) and figure.value is not None]
    pick = max if judged and judged[-1].metric.higher else min
    scores = [figure.value for figure in judged if figure.value is not None]
    losses = [fact.loss for fact in rounds if fact.loss is not None]
    last = facts[-1]
    summary = {
        "name": path.parent.name,
        "finished": isinstance(facts[-1], Done),
        "algorithm": done.algorithm if done else "",
        "rounds": rounds[-1].round if rounds else 0,
        "measure": judged[-1].name if judged else None,  # what its models are chiefly judged by
        "score": scores[-1] if scores else None,
        "best_score": pick(scores, default=None),
        "loss": losses[-1] if losses else None,
        "best_loss": min(losses, default=None),
        "bytes_up": sum(fact.bytes_up for fact in rounds),
        "bytes_down": sum(fact.bytes_down for fact in rounds),
        "seconds": sum(fact.seconds for fact in rounds),
        "at": last.at,
    }
    return plain(summary), [plain(beside({key: getattr(row, key) for key in CURVES})) for row in rounds]


def _facts(path: Path) -> list[events.Fact]:
    """The whole lines: the last one may be on its way."""
    facts: list[events.Fact] = []
    try:
        facts.extend(from_json(parse_json(line)) for line in path.read_bytes().splitlines())
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.debug("metrics end early path=%s why=%s", path, error)
    return facts
