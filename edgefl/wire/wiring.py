"""What a shell is handed, so that the same shell runs in a real and in a virtual world."""

from dataclasses import dataclass

from edgefl.system.background import Background, Put
from edgefl.system.clock import Clock
from edgefl.wire.transport import Transport


@dataclass(frozen=True, slots=True)
class Wiring:
    """One shell's connection, clock, slow work and queue."""

    transport: Transport
    clock: Clock
    background: Background
    put: Put  # the way into the queue of the shell's owner, for events of transport and background
