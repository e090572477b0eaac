"""A device without a certificate comes to its fleet: its keys are made on it and stay there, the server signs.

device                                                    server (TLS 1.3, with the broker's certificate)
   │ connects, trusting no one yet ──────────────────────▶ │
   │◀──────────── the authority's certificate ──────────── │   the token knows its fingerprint
   │ connects again, believing this authority alone ─────▶ │
   │ secret, name, request for a certificate, key, proof ─▶│   the token is used up, then the request is signed
   │◀─────────────────────── membership, or an error ───── │

The same listener renews certificates that have ended (late_renewal.py) and takes in devices with a claim (claiming.py):
what kind of request it is stands in its first message. A connection has a few seconds and a thread of its own, so that
a silent client keeps no other one waiting; an address has few connections at once, and is not heard for a while if it
comes too often.
"""

import base64
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated

from pydantic import Field, ValidationError

from edgefl.base.errors import ConfigError, EdgeflError, RemoteError
from edgefl.fleet import claiming, enrolment_line, late_renewal, tokens
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock, issued_by, key_pem, new_key, read_certificate, request, requested_key
from edgefl.fleet.enrolment_line import PATIENCE, receive, send
from edgefl.fleet.kit import Kit, Membership, Pem
from edgefl.fleet.members import FleetRecord
from edgefl.fleet.mosquitto import CERTIFICATE, KEY
from edgefl.fleet.tokens import JoinToken
from edgefl.system.json_text import parse_json
from edgefl.wire import key_file, signing

log = logging.getLogger(__name__)

PREFIX = b"edgefl enrolment 1\0"  # what a device signs here can never be taken for something else
PER_MINUTE = 20  # connections from one address
AT_ONCE, AT_ONCE_FROM_ONE = 64, 4  # connections, of all and of one address
ADDRESSES = 1024  # that are remembered


class Request(FleetRecord):
    """What a device says."""

    secret: Annotated[str, Field(max_length=64)]
    name: Annotated[str, Field(max_length=64)]
    request: Pem
    key: Annotated[str, Field(max_length=100)]
    proof: Annotated[str, Field(max_length=100)]  # the request, signed with the key for messages


def enrol(token: JoinToken) -> Kit:
    """Become the member that the token is for; the kit has this device's own keys, which never left it."""
    address = f"{token.host}:{token.port}"
    try:
        ca = enrolment_line.authority(token.host, token.port, token.authority)
        key, pem = new_key(), key_file.new_pem()
        signer = key_file.checked(pem, 0o600, "", "the device's", lost="")
        asked = request(token.name, key)
        proof = base64.urlsafe_b64encode(signer.signature(PREFIX + asked)).decode()
        message = Request(
            secret=token.secret, name=token.name, request=asked.decode(), key=signer.key, proof=proof
        ).model_dump_json()
        with enrolment_line.connected(token.host, token.port, enrolment_line.trusting(ca)) as line:
            until = time.monotonic() + 2 * PATIENCE
            receive(line, until)  # the authority again
            send(line, message.encode())
            answer = receive(line, until)
    except ssl.SSLError as error:
        raise ConfigError(f"{address} is not the server of this token ({error.reason or error})") from None
    except (OSError, EOFError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or "it hung up"
        raise ConfigError(
            f"the server at {address} is not reachable ({why}): is `edgefl fleet listen` running there?"
        ) from None
    joined = _membership(answer, token, ca)
    if read_certificate(joined.certificate.encode()).public_key() != key.public_key():
        raise ConfigError(f"{address} sent the certificate of another key")
    return Kit(**joined.model_dump(), key=key_pem(key).decode(), device_key=pem.decode())


def serve(
    fleet: FleetAdministration, joined: Callable[[str], None], ended: Callable[[], bool], ready: Callable[[], None]
) -> None:
    """Let devices with tokens in until `ended`; `joined` hears of each."""
    port = fleet.settings.enrolment_port
    certified = ListenerCertificate(fleet)
    visits, one_at_a_time = VisitCounts(), threading.Lock()

    def tell(name: str) -> None:
        with one_at_a_time:
            joined(name)

    def attend(line: socket.socket, host: str) -> None:
        try:
            with line:
                _serve(fleet, certified.context(), line, tell, host)
        except (OSError, EdgeflError, ValidationError, ValueError) as error:
            why = (str(error) or type(error).__name__).splitlines()[0][:200]
            log.warning("enrolment refused from=%s why=%s", host, why)

    attending: list[tuple[str, threading.Thread]] = []
    with socket.create_server((fleet.settings.bind or "", port), backlog=AT_ONCE) as listener:
        listener.settimeout(0.5)
        ready()
        while not ended():
            with suppress(TimeoutError):
                line, (host, *_) = listener.accept()
                attending = [(address, thread) for address, thread in attending if thread.is_alive()]
                if not visits.welcome(host, [address for address, _ in attending], time.monotonic()):
                    line.close()
                    continue
                thread = threading.Thread(target=attend, args=(line, host), name=f"enrolment-{host}", daemon=True)
                attending.append((host, thread))
                thread.start()
    for _, thread in attending:
        thread.join(2 * PATIENCE)


class ListenerCertificate:
    """The broker's certificate, as it stands on disk: it is made anew while a listener serves."""

    def __init__(self, fleet: FleetAdministration) -> None:
        self._files = fleet.folder.broker / CERTIFICATE, fleet.folder.broker / KEY
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        """Return what a connection is served with; the last one that could be read, while a file is half written."""
        with suppress(OSError):  # a certificate that does not fit its key is one too
            self._context = self._read()
        return self._context

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(*self._files)
        return context


class VisitCounts:
    """How often each address has come in this minute; those that came first are forgotten first."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}

    def welcome(self, host: str, present: Sequence[str], now: float) -> bool:
        """Return whether a client from there is served, beside those that are `present`."""
        begun, count = self._counts.pop(host, (now, 0))
        if now - begun >= 60.0:
            begun, count = now, 0
        self._counts[host] = begun, count + 1
        if len(self._counts) > ADDRESSES:
            del self._counts[next(iter(self._counts))]
        return count < PER_MINUTE and len(present) < AT_ONCE and present.count(host) < AT_ONCE_FROM_ONE


def _serve(
    fleet: FleetAdministration, context: ssl.SSLContext, plain: socket.socket, joined: Callable[[str], None], host: str
) -> None:
    """One connection."""
    until = time.monotonic() + PATIENCE
    plain.settimeout(PATIENCE)
    with context.wrap_socket(plain, server_side=True) as line:
        send(line, fleet.authority.pem)
        try:
            message = receive(line, until)
        except EOFError:
            return  # it only wanted to know the authority

        def exchange(question: bytes) -> bytes:
            send(line, question)
            return receive(line, until)

        try:
            answer = _answered(fleet, message, exchange, joined, host)
        except RemoteError as error:
            send(line, json.dumps({"error": str(error)}).encode())
            raise
        send(line, answer)


def _answered(
    fleet: FleetAdministration,
    message: bytes,
    exchange: late_renewal.Exchange,
    joined: Callable[[str], None],
    host: str,
) -> bytes:
    """Return the last answer to a client; raise `RemoteError` if it may not have what it asked for."""
    match _kind(message):
        case late_renewal.KIND:
            name, pem = late_renewal.attend(fleet, message, exchange, clock())
            log.info("renewed the certificate of a device device=%s", name)
            return json.dumps({"certificate": pem.decode()}).encode()
        case claiming.KIND:
            name, answer = claiming.attend(fleet, message, host, clock())
            if name:
                joined(name)  # first, as below
            return answer
    name, answer = admitted(fleet, message, clock())
    joined(name)  # first, so that the broker knows it when it comes
    return answer


def _kind(message: bytes) -> str:
    """Return what kind of request it is; a token's says nothing of it."""
    with suppress(ValueError, AttributeError):
        return str(parse_json(message).get("kind", ""))
    return ""


def admitted(fleet: FleetAdministration, message: bytes, now: datetime) -> tuple[str, bytes]:
    """Return the new member and the reply to it; raise `RemoteError` if the request admits none."""
    try:
        asked = Request.model_validate_json(message)
        tls_key = requested_key(asked.request.encode())
        proof = base64.urlsafe_b64decode(asked.proof)
        proven = signing.verified(signing.key_bytes(asked.key), proof, PREFIX + asked.request.encode())
    except ValueError as error:  # a ValidationError is one
        raise RemoteError("enrolment.malformed", f"the request cannot be used: {str(error).splitlines()[0]}") from None
    if not proven:
        raise RemoteError("enrolment.proof", "the request is not signed with the key that it names")
    with fleet.folder.changing():  # no revocation comes between the two: it withdraws the token, or finds a member
        expected = tokens.redeem(fleet, asked.secret, asked.name, now)
        if expected is None:
            raise RemoteError("enrolment.token", "this token is not known, was used already, or has expired")
        joined = fleet.admit(
            asked.name, tls_key, asked.key, now, replace=expected.replace, data=expected.data, site=expected.site
        )
    return asked.name, joined.text().encode()


def _membership(answer: bytes, token: JoinToken, ca: bytes) -> Membership:
    with suppress(ValueError, AttributeError):
        if error := parse_json(answer).get("error"):
            raise ConfigError(f"the server does not let '{token.name}' in: {str(error)[:500]}")
    try:
        joined = Membership.model_validate_json(answer)
        if not issued_by(read_certificate(joined.certificate.encode()), ca):
            raise ValueError("its certificate is of another authority")
        if joined.name != token.name or joined.ca.encode() != ca:
            raise ValueError("it is for another device")
    except ValueError as error:
        raise ConfigError(f"the server's answer cannot be used: {str(error).splitlines()[0]}") from None
    return joined
