"""What happened in a play, in virtual time, for a reader who looks for the reason of a failure.

Lines are kept as they come and put into words only when they are read.
"""

from collections import deque
from typing import Any

from edgefl.base import events
from edgefl.wire.transport import Message
from tools.chaos.decoded_payloads import Said, overheard, piece

KEPT = 400  # lines
SHOWN = 80


class PlayStory:
    """The last lines of a play."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str, Any]] = deque(maxlen=KEPT)

    def add(self, now: float, who: str, what: Any) -> None:
        """Add a text, a fact or an event that a service has handled."""
        self._lines.append((now, who, what))

    def text(self, last: int = SHOWN) -> str:
        """The last lines, in order."""
        lines = (f"{now:9.2f}  {who:<8}  {_words(what)}" for now, who, what in list(self._lines)[-last:])
        return "\n".join(lines)


def _words(what: Any) -> str:
    match what:
        case str():
            return what
        case events.Fact():
            told = events.timeless(what)
            named = (f"{key}={value}" for key, value in told.items() if key != "event" and value not in (None, "", {}))
            return f"· {told['event']} {' '.join(named)}"[:200]
        case Message(topic, payload):
            message = overheard(topic, payload)
            about = piece(payload) if message is None else _message(message)
            return f"◀ {'/'.join(topic.split('/')[3:])}: {about}"[:200]
        case _:
            return f"◀ {type(what).__name__}"


def _message(message: Said) -> str:
    """Without what is the same in every play."""
    told = message.model_dump(
        exclude_defaults=True, exclude={"kind", "protocol", "version", "back_end", "tensors", "run_id"}
    )
    named = (f"{key}={value.hex()[:8] if isinstance(value, bytes) else value}" for key, value in told.items())
    return f"{type(message).__name__.lower()} {' '.join(named)}"
