"""Another agent that has our keys: one kit installed twice, or a disk that was copied.

At a fleet's broker a name has one connection, so two such agents put each other off the line for ever, and each sees no
more than connections that are lost. What gives the other one away is what it says of itself: signed with our key, and
not by us.
"""

from device_agent.durable.birth_number import Birth
from edgefl.wire.messages import Presence

CERTAIN = 3  # connections: what stands there at the first may be of an earlier installation, its last will comes late


class DuplicateIdentity:
    """What is known of it."""

    def __init__(self, birth: Birth) -> None:
        self.birth = birth
        self._met, self._now = 0, False  # connections in a row in which it was met; whether the one in hand is one

    @property
    def certain(self) -> bool:
        """Whether there is another one, by what was seen until now."""
        return self._met >= CERTAIN

    def connected(self) -> None:
        """Another connection; after one without a sign of it, everything is in doubt again."""
        self._met, self._now = self._met if self._now else 0, False

    def heard(self, presence: Presence, *, by_us: bool) -> None:
        """Take in a presence under our key; `by_us` if it was us, in this life."""
        ours = presence.installation == self.birth.installation
        if ours and (by_us or presence.birth <= self.birth.before):  # of an earlier life, as this disk knows them
            return
        if not self._now:
            self._met, self._now = self._met + 1, True


def words(device: str, host: str) -> str:
    """What is the matter, and what to do."""
    return (
        f"two agents have the keys of '{device}', this one and one on host '{host}', and interrupt each other's"
        " connection: stop one of them; another device needs a kit of its own (`edgefl fleet add NAME` on the server)."
        f" If you know of no other, the keys were copied: `edgefl fleet add {device} --replace` there makes a new kit"
    )
