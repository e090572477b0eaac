"""A file that is in force as lines of TOML, each with what kind of line it is: for terminals and for reports."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from edgefl.job.config.origin import DEFAULT, Entry
from edgefl.job.config.toml_text import Way, name, written

COLUMN, WIDTH = 40, 80  # where origins begin, and where a plain terminal ends

Kind: TypeAlias = Literal["head", "plain", "dim", "over"]
Shown: TypeAlias = tuple[str, Kind]


def listing(entries: Sequence[Entry], at: Way = (), *, origin: bool) -> list[Shown]:
    """The lines of a TOML file; with `origin`, each with a comment that says where it comes from."""
    lines: list[Shown] = []
    own = [entry for entry in entries if entry.way[:-1] == at]
    if at and own:
        lines += [("", "plain"), (_header(at), "head")]
    for entry in own:  # before the tables inside, or TOML would read them as theirs
        lines += _line(entry, origin=origin) if at else [("", "plain"), (f"# [{entry.key}] is not there", "dim")]
    for way in dict.fromkeys(entry.way[: len(at) + 1] for entry in entries if len(entry.way) > len(at) + 1):
        lines += listing([entry for entry in entries if entry.way[: len(way)] == way], way, origin=origin)
    return lines


def _header(at: Way) -> str:
    dotted = ".".join(name(part) for part in at if isinstance(part, str))
    return f"[[{dotted}]]" if isinstance(at[-1], int) else f"[{dotted}]"


def _line(entry: Entry, *, origin: bool) -> list[Shown]:
    key = name(str(entry.way[-1]))
    text = f"# {key} is not set" if entry.value is None else f"{key} = {written(entry.value)}"
    quiet = entry.origin.startswith(DEFAULT) and not entry.over
    if not origin or (entry.value is None and quiet):
        return [(text, "dim" if entry.value is None else "plain")]
    commented = f"{text:<{COLUMN - 2}}  # {entry.origin}"
    over = [f"#   instead of {written(value)} ({who})" for who, value in entry.over]
    placed: list[Shown] = [(" " * max(4, min(COLUMN, WIDTH - len(line))) + line, "over") for line in over]
    return [(commented, "dim" if quiet else "plain"), *placed]
