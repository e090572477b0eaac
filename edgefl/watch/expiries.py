"""Until when each device can show a certificate: told when it comes, and when it has a new one."""

from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.fleet.members import MembersFile


def expiry(members: MembersFile | None, fact: Fact) -> events.Certificate | None:
    """What this fact lets one know about the certificate of its device; None where a fleet has no members."""
    if members is None or not isinstance(fact, events.Joined | events.Certified):
        return None
    member = members.now().members.get(fact.device)
    if member is None or member.expires is None:
        return None
    return events.Certificate(fact.device, member.expires.timestamp(), at=fact.at)
