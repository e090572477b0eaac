"""A device asks to become a member with a claim, and again until a person has decided: both sides of the conversation.

device                                                    server (TLS 1.3, with the broker's certificate)
   │ secret, name, serial number, request, key, proof ───▶ │   claims.py: it waits, or was accepted or rejected
   │◀───────────── its state; once accepted, its membership│   a member from then on
"""

import base64
import hashlib
import json
import socket
import ssl
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgpack
from pydantic import Field, ValidationError

from edgefl.base.errors import ConfigError, RemoteError
from edgefl.fleet import claims, enrolment_line
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import issued_by, key_pem, new_key, read_certificate, request, requested_key
from edgefl.fleet.claims import Applicant, ClaimWord, HostName, Serial
from edgefl.fleet.kit import Kit, Membership, Pem
from edgefl.fleet.members import FleetRecord, check_device
from edgefl.system.json_text import parse_json
from edgefl.system.store import write_atomically
from edgefl.wire import key_file, signing

KIND = "claim"
PREFIX = b"edgefl claim 1\0"  # what a device signs here can never be taken for something else
SERIAL, MACHINE = Path("/proc/device-tree/serial-number"), Path("/etc/machine-id")


class ClaimRequest(FleetRecord):
    """What a device says."""

    kind: Literal["claim"]
    secret: Annotated[str, Field(max_length=64)]
    name: Annotated[str, Field(max_length=64)]
    serial: Serial
    host: HostName
    request: Pem
    key: Annotated[str, Field(max_length=100)]
    proof: Annotated[str, Field(max_length=100)]

    def statement(self) -> bytes:
        """Return the very bytes that its key signs."""
        return statement(self.secret, self.name, self.serial, self.host, self.request)


def statement(secret: str, name: str, serial: str, host: str, request: str) -> bytes:
    """Return the very bytes that a device signs."""
    packed: bytes = msgpack.packb([secret, name, serial, host, request])
    return PREFIX + packed


def attend(fleet: FleetAdministration, message: bytes, address: str, now: datetime) -> tuple[str, bytes]:
    """Return the name of a device that has just become a member (or nothing) and the answer to it, on the server."""
    try:
        asked = ClaimRequest.model_validate_json(message)
        tls_key = requested_key(asked.request.encode())
        proof = base64.urlsafe_b64decode(asked.proof)
        proven = signing.verified(signing.key_bytes(asked.key), proof, asked.statement())
        check_device(asked.name)
    except (ValueError, ConfigError) as error:  # a ValidationError is a ValueError
        raise RemoteError("claim.malformed", f"the request cannot be used: {str(error).splitlines()[0]}") from None
    if not proven:
        raise RemoteError("claim.proof", "the request is not signed with the key that it names")
    asks = Applicant(
        claim="0" * 64,
        name=asked.name,
        serial=asked.serial,
        host=asked.host,
        request=asked.request,
        since=now,
        address=address,
    )
    with fleet.folder.changing():
        stands = claims.apply(fleet, asked.secret, asked.key, asks, now)
        if stands.state == "rejected":
            raise RemoteError("claim.rejected", "a person has rejected this device")
        if stands.state == "waiting":
            return "", json.dumps({"state": "waiting", "id": claims.short(asked.key)}).encode()
        if stands.state == "joined":  # its answer was lost
            if asked.key not in fleet.members.keys().values():
                raise RemoteError("claim.revoked", "this device was accepted, and revoked since")
            return "", json.dumps({"state": "joined", "membership": stands.membership}).encode()
        try:
            text = fleet.admit(stands.name, tls_key, asked.key, now).text()
        except ConfigError as error:  # the name was given to another one meanwhile
            raise RemoteError("claim.name", str(error)) from None
        claims.joined(fleet, asked.key, stands, text)
    return stands.name, json.dumps({"state": "joined", "membership": text}).encode()


class ClaimKeys(FleetRecord):
    """What a device keeps until it is accepted: its keys, so that it is the same one after a restart."""

    secret: str
    name: str
    key: Pem
    device_key: Pem
    request: Pem


class AwaitsPerson(FleetRecord):
    """A person has not decided yet; `id` names the device at the server."""

    id: str


class ClaimAsking:
    """One device that asks, with keys that never leave it; they are kept in `path`."""

    def __init__(self, word: ClaimWord, name: str, path: Path) -> None:
        self.word, self.name, self.path = word, check_device(name), path
        self.keys = self._kept() or self._new()
        self.signer = key_file.checked(self.keys.device_key.encode(), 0o600, str(path), "the device's", lost="")

    def ask(self) -> Kit | AwaitsPerson:
        """Ask once; the kit of a member, or that it has to wait.

        Raise `RemoteError` if the server will not have it, and OSError, which says why, if there is no answer.
        """
        failures = list[str]()
        for host in self.word.hosts:
            answer = self._tried(host)
            if not isinstance(answer, str):
                return answer
            failures.append(f"{host}:{self.word.port} {answer}")
        raise OSError("; ".join(failures))

    def done(self) -> None:
        """The kit is installed: forget what was kept for it."""
        self.path.unlink(missing_ok=True)

    def _tried(self, host: str) -> Kit | AwaitsPerson | str:
        """The answer there, or why there is none."""
        try:
            return self._ask(host)
        except ssl.SSLError as error:
            return f"is not the server of this claim ({error.reason or error})"
        except (OSError, EOFError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or "it hung up"
            return f"does not answer ({why}): does `edgefl fleet listen` run there?"

    def _ask(self, host: str) -> Kit | AwaitsPerson:
        word, keys = self.word, self.keys
        ca = enrolment_line.authority(host, word.port, word.authority)
        about = word.secret, self.name, serial_number(), host_name(), keys.request
        proof = base64.urlsafe_b64encode(self.signer.signature(statement(*about))).decode()
        fields = dict(zip(("secret", "name", "serial", "host", "request"), about, strict=True))
        message = ClaimRequest(kind=KIND, **fields, key=self.signer.key, proof=proof).model_dump_json()
        with enrolment_line.connected(host, word.port, enrolment_line.trusting(ca)) as line:
            until = time.monotonic() + 2 * enrolment_line.PATIENCE
            enrolment_line.receive(line, until)  # the authority again
            enrolment_line.send(line, message.encode())
            answer = parse_json(enrolment_line.receive(line, until))
        if not isinstance(answer, dict):
            raise ValueError("no JSON object")
        if why := answer.get("error"):
            raise RemoteError("claim.refused", str(why)[:500])
        if answer.get("state") == "waiting":
            return AwaitsPerson(id=str(answer.get("id", ""))[:64])
        return self._kit(str(answer.get("membership")), ca)

    def _kit(self, text: str, ca: bytes) -> Kit:
        membership = Membership.model_validate_json(text)
        certificate = read_certificate(membership.certificate.encode())
        if membership.ca.encode() != ca or not issued_by(certificate, ca):
            raise ValueError("its certificate is of another authority")
        if certificate.public_key() != requested_key(self.keys.request.encode()):
            raise ValueError("it sent the certificate of another key")
        return Kit(**membership.model_dump(), key=self.keys.key, device_key=self.keys.device_key)

    def _kept(self) -> ClaimKeys | None:
        """Return the keys of an earlier start with the same claim and name."""
        with suppress(FileNotFoundError, ValidationError):
            keys = ClaimKeys.model_validate_json(self.path.read_bytes())
            if (keys.secret, keys.name) == (self.word.secret, self.name):
                return keys
        return None

    def _new(self) -> ClaimKeys:
        key, device_key = new_key(), key_file.new_pem()
        asked = request(self.name, key).decode()
        pems = key_pem(key).decode(), device_key.decode(), asked
        keys = ClaimKeys(secret=self.word.secret, name=self.name, key=pems[0], device_key=pems[1], request=pems[2])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, keys.model_dump_json(indent=1).encode())
        return keys


def serial_number() -> str:
    """Return the number of this board, or what stands for it: a hash of the machine's id, which itself is private."""
    with suppress(OSError):
        if number := _plain(SERIAL.read_bytes().decode(errors="replace").strip("\0\n ")):
            return number
    with suppress(OSError):
        return "m-" + hashlib.sha256(b"edgefl serial 1\0" + MACHINE.read_bytes().strip()).hexdigest()[:32]
    return ""


def host_name() -> str:
    """Return what this machine calls itself."""
    return _plain(socket.gethostname().split(".")[0])


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter.isascii() and (letter.isalnum() or letter in "._-"))[:64]
