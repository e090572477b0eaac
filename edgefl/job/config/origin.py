"""What a run file or an agent file comes to, key by key, and who said so.

A key may be set by several: the defaults, the file, the environment, a flag. The strongest is in force; what it went
over is kept, because an operator who wonders why a value has no effect looks for exactly that.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.base.errors import StoreError, nearest
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import ENVIRONMENT, overrides, parse, read_own
from edgefl.job.config.schema import RunFile
from edgefl.job.config.toml_text import Way, key_lines, leaves, line_of
from edgefl.learn.algorithms import registry
from edgefl.learn.selection.registry import SELECTIONS
from edgefl.system.json_text import parse_json
from edgefl.wire.address import PASSWORD, without_password

DEFAULT = "default"
# Defaults that follow from other keys.
FOLLOWS: Mapping[Way, str] = {
    ("rounds", "cohort"): "default: all of task.partition",
    ("rounds", "quorum"): "default: four fifths of the cohort",
    ("rounds", "start_with"): "default: all of task.partition",
}
_GONE = object()  # a table was replaced, and this key of it was not given again


@dataclass(frozen=True, slots=True)
class Entry:
    """One key: the value in force (None: not set), who set it, and what that went over, strongest first."""

    way: Way
    value: Any  # whatever TOML can say
    origin: str
    over: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> str:
        """The key as messages write it: `aggregation[0].name`."""
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.way)
        return text.removeprefix(".")


def as_json(entries: Sequence[Entry]) -> str:
    """Entries to be kept: who set what when a run began."""
    rows = [{"way": entry.way, "value": entry.value, "origin": entry.origin, "over": entry.over} for entry in entries]
    return json.dumps(rows)


def from_json(text: str) -> list[Entry]:
    """Return the same entries; raise `StoreError` if the text holds something else."""
    try:
        rows = parse_json(text)
        return [
            Entry(tuple(row["way"]), row["value"], str(row["origin"]), tuple((str(who), v) for who, v in row["over"]))
            for row in rows
        ]
    except (ValueError, KeyError, TypeError, IndexError):
        raise StoreError("the journal's list of what set each key of the run file cannot be read") from None


def kind_of(table: Mapping[str, Any]) -> type[RunFile] | type[AgentFile]:
    """Which of the two files this is: an agent's names its `agent` or its `data`, and nothing of a run."""
    ours, runs = set(AgentFile.model_fields), set(RunFile.model_fields)
    own = {"data"} | (ours - runs)  # a run may say how to read its data too, but never that alone
    return AgentFile if own & table.keys() and not (runs - ours) & table.keys() else RunFile


def entries(
    kind: type[RunFile] | type[AgentFile],
    path: Path,
    sets: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> list[Entry]:
    """Every key of the file behind `path`, in the order of the file's sections."""
    table = read_own(path)
    file = parse(kind, table, str(path), sets, environment)
    histories = _histories(kind, path, table, sets, environment)
    rows = []
    for way, value in leaves(effective(file)).items():
        history = [(origin, None if v is _GONE else without_password(v)) for origin, v in histories.get(way, ())]
        shown = without_password(value)
        if not history or history[-1][1] is None:
            rows.append(Entry(way, shown, _default(way, shown, file), _over(history, None)))
        else:
            rows.append(Entry(way, shown, history[-1][0], _over(history[:-1], history[-1][1])))
    return rows


def effective(file: RunFile | AgentFile) -> dict[str, Any]:
    """The whole file as one table, with everything that follows from something else written out."""
    table = file.model_dump(mode="json")
    if isinstance(file, RunFile):
        algorithm = registry.describe(file.make_algorithm())
        algorithm.pop("augment", None)  # it stands in [task]
        if file.privacy is not None:
            table["privacy"] = algorithm.pop("privacy")
        stages = [registry.describe(stage) for stage in file.make_stages()]
        table |= {"algorithm": {"name": algorithm.pop("name"), **algorithm}, "aggregation": stages}
        table["selection"] = SELECTIONS.describe(file.make_selection())
        asked, needed = ("concurrency", "buffer") if file.buffered else ("cohort", "quorum")
        table["rounds"] |= {asked: file.cohort, needed: file.quorum, "start_with": file.start_with}
        table["task"]["data"] = "none" if file.task.data is None else file.task.data
    return table


def strays(environment: Mapping[str, str] = os.environ) -> list[str]:
    """A line for each variable that looks like a key of a file, and is none."""
    known = {*RunFile.model_fields, *AgentFile.model_fields}
    lines = []
    for variable in sorted(environment):
        section, dots, _ = variable.removeprefix(ENVIRONMENT).lower().partition("__")
        if variable.startswith(ENVIRONMENT) and dots and section not in known:
            lines.append(f"{variable} has no effect: no file has a section '{section}'; {nearest(section, known)}")
    if environment.get(PASSWORD):
        lines.append(f"{PASSWORD} is set: it is the password of the broker's user, whatever the address says")
    return lines


def _histories(
    kind: type[RunFile] | type[AgentFile],
    path: Path,
    table: Mapping[str, Any],
    sets: Sequence[str],
    environment: Mapping[str, str],
) -> dict[Way, list[tuple[str, Any]]]:
    """Who set each key to what, the strongest last."""
    lines = key_lines(path.read_text(encoding="utf-8"))
    histories: dict[Way, list[tuple[str, Any]]] = {}
    for way, value in leaves(table).items():
        line = line_of(way, lines)
        histories[way] = [(f"{path.name}:{line}" if line else path.name, value)]
    for override in overrides(kind, sets, environment):
        at = tuple(override.key.split("."))
        fresh = leaves(override.value, at)
        for way in {way for way in histories if way[: len(at)] == at} - set(fresh):
            histories[way].append((override.origin, _GONE))
        for way, value in fresh.items():
            histories.setdefault(way, []).append((override.origin, value))
    return histories


def _default(way: Way, value: Any, file: RunFile | AgentFile) -> str:
    if way[0] == "aggregation" and isinstance(file, RunFile):
        return DEFAULT if file.aggregation else f"algorithm '{file.make_algorithm().name}'"
    return FOLLOWS.get(way, DEFAULT) if value is not None else DEFAULT


def _over(history: Sequence[tuple[str, Any]], winner: Any) -> tuple[tuple[str, Any], ...]:
    """Who said something else before, the strongest first."""
    return tuple((origin, value) for origin, value in reversed(history) if value is not None and value != winner)
