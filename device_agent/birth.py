"""Which installation this device is, and how often it has started: an old last will cannot pass for this life."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from edgefl.protocol.messages import Presence
from edgefl.system.disk import Disk

NAME = "birth"
Echo: TypeAlias = Literal["ours", "outdated", "left", "rival"]


@dataclass(frozen=True, slots=True)
class Birth:
    """One start of one installation."""

    installation: str
    number: int

    def echo(self, presence: Presence, *, ours: bool) -> Echo:
        """Whose word about this device stands at the broker; `ours` if our key signed it.

        `outdated` is the last will of an earlier life that came after us, `left` the goodbye of another device with our
        id, `rival` one that is still there.
        """
        if not ours or presence.installation != self.installation:
            return "rival" if presence.online else "left"
        return "ours" if (presence.birth, presence.online) >= (self.number, True) else "outdated"


def born(disk: Disk, new_id: Callable[[], str]) -> Birth:
    """One more start, written down before anything else happens."""
    words = (disk.read(NAME) or b"").decode(errors="replace").split()
    known = len(words) == 2 and words[1].isdigit()
    birth = Birth(words[0], int(words[1]) + 1) if known else Birth(new_id(), 1)
    disk.write(NAME, f"{birth.installation} {birth.number}\n".encode())
    return birth
