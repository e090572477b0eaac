"""The certificate of a device, made anew before it ends: by its coordinator, over the connection that is there.

    most of its time is over ── Renewal(request) ──▶ the fleet's authority ── Renewed(certificate) ──▶ on disk

The new key is made here, and stays here; until its certificate comes it is in memory only, and an agent that restarts
asks again. Key and certificate share a file that is replaced as a whole: whatever happens, they belong together. The
connection takes them up when it is next made.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timezone

from edgefl.base.errors import WireError
from edgefl.system.logs import TOLD
from edgefl.system.store import write_atomically
from edgefl.wire import certificate_dates
from edgefl.wire.tls import Tls

log = logging.getLogger(__name__)

LEFT = 1 / 3  # of its time, when a new one is asked for
AGAIN = 3600.0  # seconds until it is asked for again, if nothing comes


class CertificateRenewal:
    """Watches over one file; without a file that holds both key and certificate there is nothing to do."""

    def __init__(self, device: str, tls: Tls, wall: Callable[[], float]) -> None:
        self.device, self.wall, self.ca, self.tls = device, wall, tls.ca, tls
        self.file = tls.certificate if tls.certificate is not None and tls.certificate == tls.key else None
        self._key: bytes | None = None  # of the request that was sent
        self._request: str | None = None  # until its certificate comes
        self._look_at = 0.0

    def request(self) -> str | None:
        """What to send now to have a new certificate; None: nothing yet."""
        now = self.wall()
        if self.file is None or now < self._look_at:
            return None
        self._look_at = now + AGAIN
        begun, ends = certificate_dates.read(self.file.read_bytes())
        if ends - now > (ends - begun) * LEFT:
            return None
        return self.ask_now()

    @property
    def possible(self) -> bool:
        """Whether there is a certificate that can be made anew, and an authority that is believed."""
        return self.file is not None and self.ca is not None

    def ask_now(self) -> str:
        """Return a request, however long the certificate lasts; only where one is `possible`."""
        from edgefl.fleet import authority  # noqa: PLC0415 - once in a long while

        if self._request is None:  # else an answer may still be on its way: it is for that key
            key = authority.new_key()
            self._key, self._request = authority.key_pem(key), authority.request(self.device, key).decode()
        log.info("asks for a new certificate device=%s", self.device, extra=TOLD)
        return self._request

    def take(self, pem: str) -> None:
        """The certificate that was asked for is here."""
        if self.file is None or self._key is None:
            raise WireError("certificate.unasked", "a certificate came that was not asked for")
        from edgefl.fleet import authority  # noqa: PLC0415

        try:
            certificate = authority.read_certificate(pem.encode())
            fits = authority.belong_together(certificate, self._key, self.device)
        except ValueError as error:
            raise WireError("certificate.malformed", f"the new certificate cannot be read ({error})") from None
        if fits and self.ca is not None and not authority.issued_by(certificate, self.ca.read_bytes()):
            raise WireError("certificate.foreign", "the new certificate is not of the authority of this fleet")
        if not fits:
            raise WireError("certificate.foreign", "the new certificate is not for this device's key")
        ends = certificate.not_valid_after_utc.timestamp()
        if ends <= certificate_dates.read(self.file.read_bytes()).end:
            raise WireError("certificate.old", "the new certificate does not last longer than the one that is here")
        write_atomically(self.file, self._key + pem.encode())
        self._key = self._request = None
        log.info("has a new certificate device=%s ends=%s", self.device, _date(ends), extra=TOLD)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d")
