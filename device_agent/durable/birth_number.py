"""Which installation this device is, and which of its lives this is: an old last will cannot pass for this one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from edgefl.system.disk import Disk
from edgefl.wire.messages import Presence
from edgefl.wire.signed import life_number

NAME = "birth"
Echo: TypeAlias = Literal["ours", "outdated", "left", "rival"]


@dataclass(frozen=True, slots=True)
class Birth:
    """One start of one installation."""

    installation: str
    number: int
    before: int = 0  # the number of the last one, as far as this disk knows

    def echo(self, presence: Presence, *, ours: bool) -> Echo:
        """Whose word about this device stands at the broker; `ours` if our key signed it.

        `outdated` is the last will of an earlier life that came after us, `left` the goodbye of another device with our
        id, `rival` one that is still there.
        """
        if not ours or presence.installation != self.installation:
            return "rival" if presence.online else "left"
        return "ours" if (presence.birth, presence.online) >= (self.number, True) else "outdated"


def born(disk: Disk, new_id: Callable[[], str], wall: float) -> Birth:
    """One more start at this time, written down before anything else happens."""
    words = (disk.read(NAME) or b"").decode(errors="replace").split()
    known = len(words) == 2 and words[1].isdigit()
    installation, before = (words[0], int(words[1])) if known else (new_id(), 0)
    birth = Birth(installation, life_number(wall, before), before)
    disk.write(NAME, f"{birth.installation} {birth.number}\n".encode())
    return birth
