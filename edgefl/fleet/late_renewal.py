"""A device whose certificate has ended renews it at the enrolment listener, with its key for messages as the proof.

device                                                    server (TLS 1.3, with the broker's certificate)
   │ connects, believing its fleet's authority alone ────▶ │
   │◀──────────── the authority's certificate ──────────── │
   │ wishes to renew: its name ──────────────────────────▶ │
   │◀───────────────────────────────── a number, used once │
   │ request for a certificate, signed with the number ──▶ │   a member, its key, not revoked, within the grace period
   │◀────────────────────── the certificate, or an error ─ │

The number lives as long as the connection, so no answer counts twice. What is signed names its purpose, the fleet and
the device, so it can be taken for nothing else.
"""

import base64
import json
import secrets
import ssl
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgpack
from pydantic import Field

from edgefl.base.errors import RemoteError
from edgefl.fleet import enrolment_line, renewals
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.kit import Pem
from edgefl.fleet.members import FleetRecord
from edgefl.system.json_text import parse_json
from edgefl.wire import certificates, signing
from edgefl.wire.address import Address
from edgefl.wire.tls import Tls

KIND = "renewal"
PREFIX = b"edgefl late renewal 1\0"  # what a device signs here can never be taken for something else
NONCE = 32  # bytes
UNKNOWN = "no member of this name and key may renew here: it was revoked, replaced, or never was one"

Exchange = Callable[[bytes], bytes]  # say this, and return the answer


class RenewalWish(FleetRecord):
    """What a device says first."""

    kind: Literal["renewal"]
    name: Annotated[str, Field(max_length=64)]


class LateRequest(FleetRecord):
    """What it says when it has the number."""

    request: Pem
    proof: Annotated[str, Field(max_length=100)]


def statement(fleet: str, name: str, nonce: bytes, request: str) -> bytes:
    """Return the very bytes that a device signs."""
    packed: bytes = msgpack.packb([fleet, name, nonce, request])
    return PREFIX + packed


def attend(fleet: FleetAdministration, first: bytes, exchange: Exchange, now: datetime) -> tuple[str, bytes]:
    """Return the device and its certificate (PEM), on the server; raise `RemoteError` if it may have none."""
    try:
        wish, nonce = RenewalWish.model_validate_json(first), secrets.token_bytes(NONCE)
        answer = exchange(json.dumps({"nonce": base64.b64encode(nonce).decode()}).encode())
        asked = LateRequest.model_validate_json(answer)
        proof = base64.urlsafe_b64decode(asked.proof)
    except ValueError as error:  # a ValidationError is one
        raise RemoteError("renewal.malformed", f"the request cannot be used: {str(error).splitlines()[0]}") from None
    member = fleet.members.active().get(wish.name)
    signed = statement(fleet.folder.name, wish.name, nonce, asked.request)
    if member is None or not signing.verified(signing.key_bytes(member.key), proof, signed):
        raise RemoteError("renewal.unknown", UNKNOWN)
    try:
        return wish.name, renewals.sign(fleet, wish.name, asked.request, now)
    except ValueError as error:
        raise RemoteError("renewal.malformed", f"the request cannot be used: {error}") from None


class RenewalRefused(RemoteError):  # noqa: N818 - what it is, as Interrupted
    """The listener's answer is no."""


def ask(broker: Address, files: Tls, *, fleet: str, name: str, request: str, sign: Callable[[bytes], bytes]) -> str:
    """Return a new certificate (PEM) from the listener beside this broker, on the device.

    Raise `RenewalRefused` if the server gives none, and OSError, which says why, if nothing answers as it should.
    """
    host, port = broker.host, broker.port + 2
    try:
        context = enrolment_line.trusting((files.ca or Path()).read_bytes())
        with enrolment_line.connected(host, port, context) as line:
            until = time.monotonic() + 2 * enrolment_line.PATIENCE
            enrolment_line.receive(line, until)  # the authority, which is known
            enrolment_line.send(line, RenewalWish(kind=KIND, name=name).model_dump_json().encode())
            nonce = base64.b64decode(_said(enrolment_line.receive(line, until), "nonce"))
            proof = base64.urlsafe_b64encode(sign(statement(fleet, name, nonce, request))).decode()
            enrolment_line.send(line, LateRequest(request=request, proof=proof).model_dump_json().encode())
            return _said(enrolment_line.receive(line, until), "certificate")
    except ssl.SSLError as failed:
        wrong = certificates.explain(failed, Address("mqtts", host, port), Tls(ca=files.ca))
        raise OSError(f"{wrong.why}: {wrong.remedy}" if wrong else f"TLS: {failed.reason or failed}") from None
    except EOFError:
        raise OSError("it hung up") from None
    except ValueError as error:
        raise OSError(f"its answer cannot be used ({str(error).splitlines()[0]})") from None


def _said(answer: bytes, key: str) -> str:
    told = parse_json(answer)
    if not isinstance(told, dict):
        raise ValueError("no JSON object")
    if why := told.get("error"):
        raise RenewalRefused("renewal.refused", str(why)[:500])
    return str(told.get(key, ""))
