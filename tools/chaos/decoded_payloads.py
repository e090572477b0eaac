"""What a payload at the broker says, decoded without checking its signature."""

from typing import TypeAlias

from edgefl.base.errors import WireError
from edgefl.wire import chunks, signed, topics
from edgefl.wire.chunks import Assembler
from edgefl.wire.messages import (
    CALL,
    TO_COORDINATOR,
    TO_DEVICE,
    Call,
    JobState,
    Presence,
    ToCoordinator,
    ToDevice,
    peek,
    read_json,
)

Said: TypeAlias = ToDevice | ToCoordinator | Call | Presence | JobState
LIMIT = 1 << 21


class PayloadListener:
    """Puts together what is said in pieces."""

    def __init__(self) -> None:
        self._assemblers: dict[str, Assembler] = {}  # by topic

    def hear(self, topic: str, payload: bytes | memoryview) -> tuple[Said, bytes] | None:
        """What is said with this payload as its last piece, and what its frame is known by."""
        try:
            part = signed.opened(payload).payload
            match topics.parts(topic):
                case ("presence", _):
                    return read_json(Presence, part), b""
                case (_, "state"):
                    return read_json(JobState, part), b""
                case (_, "dev", _, way) | (_, "model", "round" as way):
                    assembler = self._assemblers.setdefault(topic, Assembler(LIMIT, transfers=8))
                    whole = assembler.add(part)
                    if whole is not None:
                        return _frame(way, whole[1]), whole[0]
        except WireError:
            return None
        return None


def _frame(way: str, data: bytes | bytearray) -> ToDevice | ToCoordinator | Call:
    if way == "round":
        return peek(CALL, data)[0]
    return peek(TO_DEVICE, data)[0] if way == "down" else peek(TO_COORDINATOR, data)[0]


def overheard(topic: str, payload: bytes | memoryview) -> Said | None:
    """The message in this payload; None for models, for pieces, and for what cannot be read."""
    heard = PayloadListener().hear(topic, payload)
    return heard[0] if heard else None


def kind(topic: str, payload: bytes | memoryview) -> str:
    """What sort of message this is: one of `scenario.LOST`, or something else."""
    place = topics.parts(topic)
    match place:
        case (_, "model", *_, last) if last != "round":
            return "manifest" if last == "manifest" else "model"
    message = overheard(topic, payload)
    match message:
        case None:
            return "piece"
        case Presence(online=False):
            return "will"
        case Call():  # of several devices at once
            return "assignment"
        case _:
            return type(message).__name__.lower()


def piece(payload: bytes | memoryview) -> str:
    """How a payload that says nothing by itself is called."""
    try:
        part = chunks.read(signed.opened(payload).payload, LIMIT)
    except WireError:
        return f"{len(payload)} bytes"
    return f"piece {part.index + 1} of {part.count}, {part.digest.hex()[:8]}"
