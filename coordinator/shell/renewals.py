"""New certificates for devices whose own end soon. The fleet's authority signs, outside the loop.

Who may have one is decided in edgefl/fleet/renewals.py, the same for coordinator, listener and server.
"""

import logging
from dataclasses import dataclass

from coordinator.decide import vocabulary
from edgefl.base.errors import ConfigError, RemoteError
from edgefl.fleet import authority, renewals
from edgefl.fleet.administration import FleetAdministration
from edgefl.system.background import Put, Work

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Renewals:
    """Of one fleet, whose authority is on this machine."""

    fleet: str

    def work(self, device: str, request: str, at: float) -> Work:
        """Have this request signed; `CertificateSigned` tells, or that it cannot be."""

        def sign(put: Put) -> None:
            try:
                pem = renewals.sign(FleetAdministration(self.fleet), device, request, authority.clock())
                put(vocabulary.CertificateSigned(at, device, pem.decode()))
            except RemoteError as error:
                log.info("no new certificate device=%s why=%s", device, error)
            except ValueError as error:
                put(vocabulary.Misbehaved(at, device, "renewal.malformed", f"its request cannot be read ({error})"))
            except ConfigError as error:  # the operator's files: the run does not depend on them
                log.warning("no new certificate device=%s why=%s", device, error)

        return sign
