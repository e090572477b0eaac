"""Open a transport: the scheme of a broker's address chooses which one.

A new transport is a class that keeps what `edgefl.wire.transport.Transport` promises. Its scheme goes into
`edgefl.wire.address`, and a line of it into `OPENERS`.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TypeAlias

from edgefl.base.errors import ConfigError
from edgefl.wire.address import UNIX, Address, BrokerAway
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.tls import Tls
from edgefl.wire.transport import ConnectionLost, Transport, TransportEvent

Opener: TypeAlias = Callable[[Address, str, Tls | None], Transport]  # the string is the client id


def _mqtt(address: Address, client_id: str, tls: Tls | None) -> Transport:
    return MqttTransport(address, client_id, tls=tls)


OPENERS: Mapping[str, Opener] = {"mqtt": _mqtt, "mqtts": _mqtt, UNIX: _mqtt}  # by scheme


def open_transport(
    address: Address,
    name: str,
    tls: Tls | None = None,
    *,
    suffix: bool = True,
    addresses: Callable[[], Sequence[Address]] | None = None,
) -> Transport:
    """Return a transport to this broker that is not started yet; `tls` has the files that prove who we are.

    The client id is the name with a random suffix: the broker gives the session of an id to the client that comes last,
    so a second agent of a name would silently replace the first. With a suffix the coordinator notices and tells it.
    Without a suffix the name is the id; the caller makes sure that it is used once.

    A broker over MQTT may have several `addresses`, which are asked for before every attempt and tried in turn.
    """
    client_id = f"{name}-{uuid.uuid4().hex[:8]}" if suffix else name
    if addresses is not None and address.tls:
        return MqttTransport(address, client_id, tls=tls, addresses=addresses)
    return OPENERS[address.scheme](address, client_id, tls)


def admitted(address: Address, tls: Tls, timeout: float = 10.0) -> None:
    """Return if the broker lets us in; otherwise raise a ConfigError, `BrokerAway` if it may do so later."""
    told: SimpleQueue[TransportEvent] = SimpleQueue()
    trying = open_transport(address, "try", tls)
    trying.start(told.put)
    try:
        event = told.get(timeout=timeout)
    except Empty:
        event = ConnectionLost(f"no answer within {timeout:g} s", passing=True, remedy="check the broker's log")
    finally:
        trying.close()
    if isinstance(event, ConnectionLost):
        raise (BrokerAway if event.passing else ConfigError)(f"broker {address}: {event}")
