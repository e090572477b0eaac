"""Signatures taken away, for the reference of a bench: keys that are public, and that cost next to nothing.

What is left of a signature is a hash of the statement, so that both sides speak the same protocol. A key holds only
in a process that has called this for it, and only the bench's own processes do (tests/test_architecture.py).
"""

from edgefl.base.errors import ConfigError
from edgefl.wire import simulated_keys
from edgefl.wire.address import Address
from edgefl.wire.signing import Signer

COORDINATOR = "coordinator"


def signer(name: str, address: Address) -> Signer:
    """The signer of this name, whom this process believes from now on; at no broker that others can reach."""
    if not address.local:
        raise ConfigError(f"broker {address}: a bench without signatures stays on this machine")
    return simulated_keys.signer("bench", name)
