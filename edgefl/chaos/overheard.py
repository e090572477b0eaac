"""Whoever listens at the broker: what a payload says, without asking whether it is true."""

from typing import TypeAlias

from edgefl.errors import WireError
from edgefl.protocol import chunks, signed, topics
from edgefl.protocol.messages import (
    TO_COORDINATOR,
    TO_DEVICE,
    Absent,
    Answer,
    Assignment,
    Busy,
    Declined,
    Holding,
    JobState,
    Missing,
    Presence,
    Receipt,
    Refusal,
    Working,
    peek,
    read_json,
)

Said: TypeAlias = (
    Assignment
    | Receipt
    | Refusal
    | Missing
    | Answer
    | Holding
    | Absent
    | Declined
    | Busy
    | Working
    | Presence
    | JobState
)
LIMIT = 1 << 20


def overheard(topic: str, payload: bytes) -> Said | None:
    """The message in this payload; None for models, and for what cannot be read."""
    try:
        match topics.parts(topic):
            case (_, "dev", _, "down"):
                return peek(TO_DEVICE, _frame(payload))[0]
            case (_, "dev", _, "up"):
                return peek(TO_COORDINATOR, _frame(payload))[0]
            case ("presence", _):
                return read_json(Presence, signed.opened(payload).payload)
            case (_, "state"):
                return read_json(JobState, signed.opened(payload).payload)
    except WireError:
        return None
    return None


def digest(payload: bytes) -> bytes:
    """What the frame in this payload is known by."""
    return chunks.read(signed.opened(payload).payload, LIMIT).digest


def _frame(payload: bytes) -> bytes:
    return bytes(chunks.read(signed.opened(payload).payload, LIMIT).data)
