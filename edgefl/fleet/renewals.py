"""Further certificates for members: who may have one, and the signing of it. Coordinator, listener and server use it.

    certificate   ──────── valid ────────┐── grace ──┐── permit ──
    may renew           the last half    │   yes     │  if `edgefl fleet renew` said so

A member that has enough time left gets none, so no member can fill the list of members with certificates.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from edgefl.base.errors import RemoteError
from edgefl.fleet import authority
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.members import Member

SOON = 0.5  # of the lifetime: a member with less left may have a new certificate


class RenewalDecision(NamedTuple):
    """Whether a member may have a new certificate, or why not."""

    granted: bool
    why: str = ""


def may_renew(
    member: Member | None, now: datetime, lifetime: timedelta, grace: timedelta, permit: datetime | None = None
) -> RenewalDecision:
    """Decide about a member at this moment; a `permit` lets it renew until then, whatever its certificate's dates."""
    if member is None or member.revoked is not None or member.hosts:
        return RenewalDecision(False, "it is no member, or was revoked")
    if permit is not None and now < permit:
        return RenewalDecision(True)
    if member.expires is None:
        return RenewalDecision(False, "it never had a certificate that counts")
    if member.expires - now > lifetime * SOON:
        return RenewalDecision(False, "it needs none")
    if now - member.expires > grace:
        ended = f"its certificate ended on {member.expires:%Y-%m-%d}, more than {grace.days} days ago"
        return RenewalDecision(False, f"{ended}: `edgefl fleet renew NAME` on the server lets it renew")
    return RenewalDecision(True)


def decide(fleet: FleetAdministration, device: str, now: datetime) -> RenewalDecision:
    """Decide about a device of this fleet, by its members and settings as they stand on disk."""
    member, settings = fleet.members.active().get(device), fleet.folder.read_settings()
    return may_renew(member, now, settings.lifetime, settings.grace, member.renew_until if member else None)


def sign(fleet: FleetAdministration, device: str, request: str, now: datetime) -> bytes:
    """Return a new certificate (PEM) for this request; ValueError if it cannot be read.

    Raise `RemoteError` for a device that may have none.
    """
    key, member = authority.requested_key(request.encode()), fleet.members.active().get(device)
    decision = decide(fleet, device, now)
    if member is None or not decision.granted:
        raise RemoteError("renewal.refused", decision.why)
    return fleet.renew(device, key, now, member.key)
