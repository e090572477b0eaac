"""The way to the broker, step by step: a port that listens, TLS, a login, a message there and back.

It stops at the first step that fails, because later steps cannot be checked then.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import Identity
from edgefl.ops.doctor import certificates
from edgefl.ops.doctor.broker_probe import PATIENCE, BrokerProbe, probe_broker
from edgefl.ops.doctor.finding import Finding, ok, warning, wrong
from edgefl.wire import broker as brokers
from edgefl.wire.address import PASSWORD, Address, parse, reachable
from edgefl.wire.certificates import explain
from edgefl.wire.chunks import CHUNK, HEAD
from edgefl.wire.first_use import missing_key
from edgefl.wire.mosquitto_program import find_mosquitto, mosquitto_version
from edgefl.wire.mqtt import tls_context
from edgefl.wire.tls import Tls
from edgefl.wire.topics import ROOT

COORDINATOR = "coordinator"  # may read and write all topics of the fleet
LARGEST = CHUNK + HEAD + 512  # bytes of the largest packet we send: a chunk, its topic and the frame around it


def program(*, needed: bool) -> Finding:
    """Whether this machine could be the broker."""
    if path := find_mosquitto():
        return ok("Mosquitto", f"{mosquitto_version()}, {path}")
    if brokers.has_iotcore():
        return ok("Mosquitto", "not installed; the iotcore wheel takes its place")
    remedy = "apt install mosquitto, or pip install 'edgefl[broker]'"
    text = "no broker is installed here"
    return wrong("Mosquitto", text, remedy) if needed else warning("Mosquitto", f"{text}; one server needs it", remedy)


def coordinator_key(me: Identity) -> Iterator[Finding]:
    """Whether the agent knows its coordinator; another check reports a wrong broker address."""
    try:
        missing = missing_key(parse(me.brokers[0]), me.coordinator)
    except ConfigError:
        return
    if missing:
        yield wrong("coordinator", missing.what, missing.remedy)
    else:
        yield ok("coordinator", me.coordinator or "the first one seen is trusted, because the broker is on loopback")


def broker(address: Address, files: Tls, who: str, fleet: str) -> Iterator[Finding]:
    """Whether `who` can work with the broker there."""
    try:
        reachable(address)
    except ConfigError as error:
        text, _, remedy = str(error).rpartition(": ")
        yield wrong("broker", text.removeprefix("broker "), remedy)
        return
    yield ok("broker", f"{address} listens")
    context = None
    if address.tls:
        try:
            context = tls_context(files.ca, files.certificate, files.key)
            yield from _handshake(address, context)
        except ConfigError as error:
            text, _, remedy = str(error).rpartition(": ")
            yield wrong("TLS", text, remedy)
            return
        except OSError as error:  # what TLS refuses is an OSError too
            explanation = explain(error, address, files)
            why, remedy = (
                (explanation.why, explanation.remedy)
                if explanation
                else (str(error), "is this the broker's port for mqtts://?")
            )
            yield wrong("TLS", why, remedy)
            return
    topic = f"{ROOT}/{fleet}/doctor/{who}"
    visit = probe_broker(address, context, topic)
    yield from _judge(visit)
    if not address.local or address.username or files.certificate:  # this broker should ask for a proof
        yield from _without_proof(address, files, topic)
        if not visit.refused and who != COORDINATOR:
            yield from _of_others(address, context, topic)


def listener(address: Address, files: Tls) -> Iterator[Finding]:
    """Check the listener as a stranger finds it."""
    try:
        reachable(address)
        yield from _handshake(address, tls_context(files.ca, files.certificate, files.key))
    except (ConfigError, OSError) as error:
        why = str(error).rpartition(": ")[0] or str(error)
        yield wrong("listener", f"devices are not served at {address} ({why})", "stop the broker, and start it again")
        return
    yield from _without_proof(address, files, f"{ROOT}/doctor")


def _without_proof(address: Address, files: Tls, topic: str) -> Iterator[Finding]:
    """Check whether the broker accepts a client without a certificate or password."""
    anonymous = replace(address, username=None, password=None)
    context = tls_context(files.ca) if address.tls else None
    if not probe_broker(anonymous, context, topic).refused:
        yield warning(
            "anonymous",
            f"{anonymous} lets every client in, without a certificate or a password",
            "set allow_anonymous false and require_certificate true, as `edgefl fleet init` does",
        )


def _of_others(address: Address, context: ssl.SSLContext | None, topic: str) -> Iterator[Finding]:
    """Check whether the broker lets a device read and write topics of others."""
    if probe_broker(address, context, f"{topic}-and-others").echoed:
        yield warning(
            "ACL",
            f"{address} lets this device write and read topics of others: it could read their updates",
            "give each device lines of its own in the broker's ACL, as `edgefl fleet init` does",
        )


def _handshake(address: Address, context: ssl.SSLContext) -> Iterator[Finding]:
    with (
        socket.create_connection((address.host, address.port), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname=address.host) as secured,
    ):
        pem = ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True) or b"").encode()
        version = secured.version()
    yield certificates.dated("TLS", f"{version}, the broker's certificate", pem, certificates.today())
    remedy = "set tls_version tlsv1.3 there"
    if version != "TLSv1.3":
        yield warning("TLS version", f"the broker speaks {version} and nothing newer", remedy)
    elif _speaks_older(address, context):
        yield warning("TLS version", "the broker speaks TLS 1.2 with clients that ask for it", remedy)


def _speaks_older(address: Address, context: ssl.SSLContext) -> bool:
    """Return whether the broker accepts TLS 1.2 as well."""
    newest, context.maximum_version = context.maximum_version, ssl.TLSVersion.TLSv1_2
    try:
        with (
            suppress(OSError),
            socket.create_connection((address.host, address.port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=address.host),
        ):
            return True
        return False
    finally:
        context.maximum_version = newest


def _judge(probe: BrokerProbe) -> Iterator[Finding]:
    """Turn the result of a visit at the broker into findings."""
    if probe.refused:
        remedy = f"correct the user in the address, and its password in {PASSWORD} (or the client's certificate)"
        yield wrong("login", f"the broker refused: {probe.refused}", remedy)
        return
    yield ok("login", "accepted")
    if probe.echoed:
        yield ok("message", "there and back")
    else:
        text = f"a message to ourselves did not come back ({probe.denied or f'nothing within {PATIENCE:g} s'})"
        yield warning("message", text, f"allow it in the broker's ACL (readwrite {ROOT}/FLEET/doctor/NAME)")
    if probe.largest is None:
        yield ok("packets", "the broker names no limit")
    elif probe.largest >= LARGEST:
        yield ok("packets", f"up to {probe.largest:,} bytes")
    else:
        text = f"the broker takes {probe.largest:,} bytes, a chunk of a model needs {LARGEST:,}"
        yield wrong("packets", text, "raise max_packet_size in its configuration")
