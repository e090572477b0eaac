"""New certificates for devices whose own end soon. The fleet's authority signs, outside the loop.

Who may have one: a member, for whom less than `SOON` of a certificate's time is left. So no member can fill the list of
members with certificates that it does not need.
"""

import logging
from dataclasses import dataclass

from coordinator.decide import vocabulary
from edgefl.base.errors import ConfigError
from edgefl.fleet import authority
from edgefl.fleet.administration import DEVICE, FleetAdministration
from edgefl.system.background import Put, Work

log = logging.getLogger(__name__)

SOON = 0.5


@dataclass(frozen=True, slots=True)
class Renewals:
    """Of one fleet, whose authority is on this machine."""

    fleet: str

    def work(self, device: str, request: str, at: float) -> Work:
        """Have this request signed; `CertificateSigned` tells, or that it cannot be."""

        def sign(put: Put) -> None:
            now = authority.clock()
            try:
                fleet, key = FleetAdministration(self.fleet), authority.requested_key(request.encode())
                member = fleet.members.active().get(device)
                if member is None or member.expires is None or member.expires - now > DEVICE * SOON:
                    log.info("no new certificate device=%s why=%s", device, "it needs none" if member else "no member")
                    return
                put(vocabulary.CertificateSigned(at, device, fleet.renew(device, key, now, member.key).decode()))
            except ValueError as error:
                put(vocabulary.Misbehaved(at, device, "renewal.malformed", f"its request cannot be read ({error})"))
            except ConfigError as error:  # the operator's files: the run does not depend on them
                log.warning("no new certificate device=%s why=%s", device, error)

        return sign
