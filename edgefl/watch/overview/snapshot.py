"""An overview as JSON, and back: what the page's API gives and `edgefl status` takes from another machine.

One object, `{"format": "edgefl overview", "version": 2, "sequence": ..., "run": {...}, "open": {...} or null,
"rounds": [...], "devices": [...], "notes": [...]}`; what stands in each is documented in rows.py. A reader leaves out
what it does not know. JSON has neither NaN nor infinity: figures that are no numbers are null.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from pydantic import TypeAdapter, ValidationError

from edgefl.base.errors import RemoteError
from edgefl.base.printable import printable
from edgefl.base.scores import beside
from edgefl.system.json_text import parse_json
from edgefl.watch.overview.answer_times import Pace
from edgefl.watch.overview.rows import FORMAT, VERSION, Snapshot


def plain(value: Any) -> Any:
    """The same in JSON's own types: a snapshot, or anything that stands in one."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if is_dataclass(value):
        return beside({one.name: plain(getattr(value, one.name)) for one in fields(value)})
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


def pace(one: Pace) -> dict[str, Any]:
    """How fast a device was, and whether that is slow."""
    return {**plain(one), "slow": one.slow}


def read(text: bytes, where: str) -> Snapshot:
    """Read a snapshot from another machine; `where` names it in errors."""
    try:
        snapshot = _READER.validate_python(cleaned(parse_json(text)))
    except ValueError as error:
        what = "no JSON"
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RemoteError("overview.unreadable", f"{where}: this is no overview of a run ({what})") from None
    if snapshot.format != FORMAT or snapshot.version != VERSION:
        raise RemoteError(
            "overview.version", f"{where}: an overview of another version of edgefl ({snapshot.version}, not {VERSION})"
        )
    return snapshot


def cleaned(value: Any) -> Any:
    """Return the snapshot without control characters in its texts: its sender may not be the one we expect."""
    match value:
        case str():
            return printable(value)
        case dict():
            return {printable(key): cleaned(item) for key, item in value.items()}
        case list():
            return [cleaned(item) for item in value]
        case _:
            return value


_READER = TypeAdapter(Snapshot)
