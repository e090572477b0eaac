"""One message for all devices of a round: what their tasks share, and for each a slot that only it can find and read.

    slots   random-looking, in no order: mark 16 | counted 4, batches 8, seconds 8, under a pad
    mark and pad   BLAKE2b of fleet, job, run, number of the call and device, keyed with the device's installation

The installation is a random name that only the coordinator learns, from a device's presence. So a
device learns of others how many there are, and nothing from one call to the next: the number never comes again. What
protects a slot from being changed is the coordinator's signature around the whole call (signed.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from struct import Struct

import msgpack

from edgefl.base.errors import WireError
from edgefl.wire.messages import MOST_ROUNDS, SLOT, Assignment, Call, Enclosed

_OWN = Struct("<IQd")
MARK = SLOT - _OWN.size  # bytes
_PERSON = b"edgefl slot 1"


@dataclass(frozen=True, slots=True)
class Callee:
    """A device of the round, and what its task says to it alone."""

    device: str
    installation: str
    counted: int = 0
    batches: int | None = None
    seconds: float | None = None


def call(fleet: str, task: Assignment, number: int, callees: Iterable[Callee], manifest: bytes = b"") -> Call:
    """The call of these devices to the task that they share."""
    slots = sorted(_slot(_secret(fleet, task, number, one.device, one.installation), one) for one in callees)
    return Call(task=task, number=number, slots=b"".join(slots), manifest=manifest)


def own_task(fleet: str, call: Call, device: str, installation: str, frame: bytes | memoryview) -> Assignment | None:
    """The task of one device, with the model that came as the frame's body; None: it is not among those called."""
    secret = _secret(fleet, call.task, call.number, device, installation)
    place = next((at for at in range(0, len(call.slots), SLOT) if call.slots.startswith(secret[:MARK], at)), None)
    if place is None:
        return None
    counted, batches, seconds = _OWN.unpack(_masked(call.slots[place + MARK : place + SLOT], secret))
    own = {"counted": counted, "batches": batches or None, "seconds": seconds or None, "installation": installation}
    enclosed = Enclosed.model_construct(manifest=call.manifest, frame=bytes(frame)) if call.manifest else None
    if counted > MOST_ROUNDS or not 0 <= seconds < inf:
        raise WireError("wire.malformed", f"a slot that counts {counted} rounds and gives {seconds} seconds")
    return call.task.model_copy(update={**own, "enclosed": enclosed})


def _slot(secret: bytes, one: Callee) -> bytes:
    return secret[:MARK] + _masked(_OWN.pack(one.counted, one.batches or 0, one.seconds or 0.0), secret)


def _secret(fleet: str, task: Assignment, number: int, device: str, installation: str) -> bytes:
    place: bytes = msgpack.packb([fleet, task.job, task.run_id, number, device])
    return blake2b(place, digest_size=SLOT, key=installation.encode()[:64], person=_PERSON).digest()


def _masked(own: bytes, secret: bytes) -> bytes:
    return (int.from_bytes(own, "big") ^ int.from_bytes(secret[MARK:], "big")).to_bytes(_OWN.size, "big")
