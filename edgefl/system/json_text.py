"""JSON from a file or from the network: whatever is wrong with it is a `ValueError`.

Python's reader goes one call deeper with each bracket, and so does code that walks the result.
"""

import json
from typing import Any

DEEPEST = 64  # lists and objects in one another


def parse_json(text: str | bytes | bytearray | memoryview) -> Any:  # Any: whatever JSON can say
    """Return the value of this text; raise `ValueError` if it is no JSON, or is nested too deep."""
    try:
        value = json.loads(bytes(text) if isinstance(text, memoryview) else text)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST}") from None
    if nested(value):
        raise ValueError(f"nested deeper than {DEEPEST}")
    return value


def nested(value: Any, deepest: int = DEEPEST) -> bool:
    """Return whether lists and tables are nested deeper than this, without going deeper than this."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(deepest):
        inner: list[Any] = []
        for one in level:
            held = one.values() if isinstance(one, dict) else one
            inner.extend(item for item in held if isinstance(item, dict | list))
        if not inner:
            return False
        level = inner
    return True
