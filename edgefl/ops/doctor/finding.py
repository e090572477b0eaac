"""What one look found: fine, worth knowing, or wrong and what to do about it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    what: str
    level: Level
    text: str
    remedy: str = ""


def ok(what: str, text: str) -> Finding:
    return Finding(what, "ok", text)


def warning(what: str, text: str, remedy: str) -> Finding:
    return Finding(what, "warning", text, remedy)


def wrong(what: str, text: str, remedy: str) -> Finding:
    return Finding(what, "wrong", text, remedy)
