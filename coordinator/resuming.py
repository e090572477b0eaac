"""What may be changed in the run file of an unfinished run, and what may not because the model depends on it."""

from dataclasses import dataclass
from typing import Any

from edgefl.protocol.address import parse

# Whom rounds wait for, how vectors travel, where things are and what is told of them: no mathematics.
SECTIONS = {"broker", "compute", "guards", "fleet", "devices"}
KEYS = {
    "run.rounds",
    "run.target_accuracy",
    "run.target_loss",
    "run.forgetting",
    "run.folder",
    "rounds.quorum",
    "rounds.deadline",
    "rounds.over_select",
    "rounds.start_with",
    "wire.codec",
    "wire.up",
    "wire.down",
    "wire.compress",
    "wire.limit_mb",
    "wire.enclose_kb",
    "wire.seal",
}
LATER = {"selection": {"name": "uniform"}}  # sections that an earlier version did not know: what it did
# With these the model of the round in hand has other bytes.
ON_THE_WIRE = {"wire.codec", "wire.up", "wire.down", "wire.compress"}


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that is not what it was."""

    key: str
    before: Any
    now: Any

    @property
    def allowed(self) -> bool:
        return self.key in KEYS or self.key.split(".")[0] in SECTIONS

    def __str__(self) -> str:
        return f"{self.key} was {self.before}, is {self.now}"


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[Change]:
    """Every setting that differs between two run files, as they are written down."""
    differences = []
    for section in sorted({*before, *now}):
        old, new = before.get(section, LATER.get(section)), now.get(section)
        if old == new:
            continue
        if not (isinstance(old, dict) and isinstance(new, dict)):
            differences.append(Change(section, old, new))
            continue
        # An algorithm's table holds what was said; the others hold every key, and those that an earlier version did
        # not know were then what they are by default.
        keys = {*old, *new} if section in {"algorithm", "privacy", "selection", "wire"} else old.keys() & new.keys()
        pairs = ((f"{section}.{key}", old.get(key), new.get(key)) for key in sorted(keys))
        differences += [
            Change(name, _shown(name, one), _shown(name, other)) for name, one, other in pairs if one != other
        ]
    return differences


def _shown(key: str, value: Any) -> Any:
    """The value; of an address what may be told."""
    return str(parse(value)) if key == "broker.url" else value
