"""What may be changed in the run file of an unfinished run, and what may not because the model depends on it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from edgefl.base.errors import StoreError
from edgefl.job.config.reader import overrides, read_toml
from edgefl.job.config.schema import RunFile, RunSection
from edgefl.system.json_text import parse_json
from edgefl.wire.address import parse

# Whom rounds wait for, how vectors travel, where things are and what is told of them: no mathematics.
SECTIONS = {"broker", "compute", "guards", "fleet", "devices"}
UNTOLD = {"page", "export"}  # sections that no run depends on
KEYS = {
    "evaluation.every",
    "evaluation.patience",
    "evaluation.per_device",
    "evaluation.least",
    "run.rounds",
    "run.target_accuracy",
    "run.target_loss",
    "run.forgetting",
    "run.folder",
    "rounds.quorum",
    "rounds.deadline",
    "rounds.over_select",
    "rounds.start_with",
    "rounds.concurrency",
    "rounds.buffer",
    "rounds.staleness",
    "rounds.where",
    "wire.codec",
    "wire.up",
    "wire.down",
    "wire.compress",
    "wire.limit_mb",
    "wire.enclose_kb",
    "wire.seal",
}
# With these the model of the round in hand has other bytes.
ON_THE_WIRE = {"wire.codec", "wire.up", "wire.down", "wire.compress"}


DATA = "task.data"
CONTENTS = "contents of task.data"


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that is not what it was."""

    key: str
    before: Any
    now: Any
    moved: bool = False  # the same data lie elsewhere
    note: str = ""

    @property
    def allowed(self) -> bool:
        return self.moved or self.key == CONTENTS or self.key in KEYS or self.key.split(".")[0] in SECTIONS

    def __str__(self) -> str:
        return f"{self.key} was {self.before}, is {self.now}{self.note}"


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[SettingChange]:
    """Every setting that differs between two run files, as they are written down."""
    differences = []
    for section in sorted({*before, *now} - UNTOLD):
        old, new = before.get(section, _default(section)), now.get(section)
        if old == new:
            continue
        if not (isinstance(old, dict) and isinstance(new, dict)):
            differences.append(SettingChange(section, old, new))
            continue
        # An algorithm's table holds what was said; the others hold every key, and those that an earlier version did
        # not know were then what they are by default.
        keys = {*old, *new} if section in {"algorithm", "privacy", "selection", "wire"} else old.keys() & new.keys()
        pairs = ((f"{section}.{key}", old.get(key), new.get(key)) for key in sorted(keys))
        differences += [
            SettingChange(name, _shown(name, one), _shown(name, other)) for name, one, other in pairs if one != other
        ]
    return differences


def _default(section: str) -> Any:
    """What a section is unless said: so it was with an earlier version that did not know it."""
    field = RunFile.model_fields.get(section)
    value = field.get_default(call_default_factory=True) if field else None
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _shown(key: str, value: Any) -> Any:
    """The value; of an address what may be told."""
    return str(parse(value)) if key == "broker.url" else value


@dataclass(frozen=True, slots=True)
class RequestedRounds:
    """How many rounds the operator asks for: in the run file, and by a flag or a variable that goes over it."""

    file: int
    override: int | None = None

    @classmethod
    def of(cls, path: Path, sets: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> "RequestedRounds":
        """What is said there; whether it makes sense was looked at before."""
        over = [one.value for one in overrides(RunFile, sets, environment) if one.key == "run.rounds"]
        return cls(read_toml(path).get("run", {}).get("rounds", RunSection().rounds), over[-1] if over else None)

    @classmethod
    def from_json(cls, text: str | None) -> "RequestedRounds | None":
        """Return what a journal says; raise `StoreError` if that is something else."""
        if not text:
            return None
        try:
            held = parse_json(text)
            return cls(int(held["file"]), None if held["override"] is None else int(held["override"]))
        except (ValueError, KeyError, TypeError):
            raise StoreError("the journal's number of rounds cannot be read") from None

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def rounds_in_force(known: int, before: RequestedRounds, now: RequestedRounds) -> int:
    """How many rounds a run has: as many as before, unless the operator says something else than the last time.

    So an extension outlives a restart with the old file, and a flag need not be given again; a number that was
    changed in the file, or another flag, counts.
    """
    if now.override is not None:
        return known if now.override == before.override else now.override
    return known if now.file == before.file else now.file
