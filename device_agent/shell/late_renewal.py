"""A certificate that has ended, made anew at the enrolment listener: the broker lets this device in no more.

    the broker refuses our certificate ── pause ──▶ each address in turn ──▶ a new certificate, or a longer pause

The connection goes on trying meanwhile, and takes up the new certificate by itself. Why it comes to nothing is logged
once for each reason.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from device_agent.shell.renewal import CertificateRenewal
from edgefl.base.errors import RemoteError, WireError
from edgefl.system.background import Background, Put
from edgefl.system.clock import Clock
from edgefl.wire.address import Address
from edgefl.wire.reconnect import Pause
from edgefl.wire.signing import Signer
from edgefl.wire.tls import Tls
from edgefl.wire.transport import ConnectionLost

log = logging.getLogger(__name__)

FIRST, LONGEST = 2.0, 3600.0  # seconds between attempts
REASONS = 16  # that were logged


class AskListener(Protocol):
    """How a listener is asked, see edgefl/fleet/late_renewal.py."""

    def __call__(
        self, broker: Address, files: Tls, *, fleet: str, name: str, request: str, sign: Callable[[bytes], bytes]
    ) -> str: ...


Addresses: TypeAlias = Callable[[], Sequence[Address]]


@dataclass(frozen=True, slots=True)
class RenewedLate:
    """What came of one attempt: a certificate (PEM), or why there is none."""

    certificate: str = ""
    why: str = ""


def ask_listener(
    broker: Address, files: Tls, *, fleet: str, name: str, request: str, sign: Callable[[bytes], bytes]
) -> str:
    """Ask a real one."""
    from edgefl.fleet import late_renewal  # noqa: PLC0415 - once in a long while

    return late_renewal.ask(broker, files, fleet=fleet, name=name, request=request, sign=sign)


class LateRenewal:
    """One device's; without a certificate that it can renew it does nothing."""

    def __init__(
        self,
        renewal: CertificateRenewal | None,
        signer: Signer,
        *,
        fleet: str,
        addresses: Addresses,
        background: Background,
        clock: Clock,
        ask: AskListener = ask_listener,
    ) -> None:
        self.renewal = renewal if renewal is not None and renewal.possible else None
        self.signer, self.fleet, self.addresses = signer, fleet, addresses
        self.background, self.clock, self._ask = background, clock, ask
        self.ended = False  # whether our certificate has ended by our own clock: no reason to give up
        self._pause: Pause | None = None
        self._asking = False
        self._logged: list[str] = []

    def lost(self, event: ConnectionLost) -> None:
        """A connection was lost, or not made: see to a new certificate if ours may be the reason."""
        if self.renewal is None:
            return
        if not event.certificate:
            if not self.ended:
                self._pause = None  # another reason by now
            return
        self.ended = event.certificate == "ended"
        if self._pause is None:
            self._pause = Pause(self.renewal.device, FIRST, LONGEST)
        if not self._asking:
            self._pause.begin(self.clock.now())

    def connected(self) -> None:
        """The broker lets us in."""
        self.ended, self._pause = False, None
        self._logged.clear()

    def deadline(self) -> float | None:
        """When it wants to be woken."""
        return self._pause.until if self._pause else None

    def woken(self, now: float) -> None:
        """Ask for a new certificate, if it is time for that."""
        if self.renewal is None or self._pause is None or not self._pause.due(now):
            return
        renewal, request = self.renewal, self.renewal.ask_now()
        addresses, files, fleet = tuple(self.addresses()), renewal.tls, self.fleet
        sign, ask = self.signer.signature, self._ask

        def work(put: Put) -> None:
            def asked(address: Address) -> RenewedLate:
                who = f"the enrolment listener beside {address}"
                try:
                    return RenewedLate(
                        ask(address, files, fleet=fleet, name=renewal.device, request=request, sign=sign)
                    )
                except RemoteError as error:
                    return RenewedLate(why=f"{who} gives none: {error}")
                except OSError as error:
                    return RenewedLate(why=f"{who} cannot be asked: {error.strerror or error}")

            answers = list[RenewedLate]()
            while len(answers) < len(addresses) and not (answers and answers[-1].certificate):
                answers.append(asked(addresses[len(answers)]))
            if answers and answers[-1].certificate:
                put(answers[-1])
            else:
                put(RenewedLate(why="; ".join(one.why for one in answers)))

        self._asking = True
        self.background.start(work)

    def answered(self, event: RenewedLate) -> None:
        """Take the new certificate, or try again later."""
        self._asking = False
        why = event.why
        if event.certificate and self.renewal is not None:
            try:
                self.renewal.take(event.certificate)
            except WireError as error:
                why = str(error)
        if why and why not in self._logged:
            self._logged = [*self._logged, why][-REASONS:]
            log.warning("has no new certificate, tries again later: %s", why)
        if why and self._pause is not None:
            self._pause.begin(self.clock.now())
