"""One visit at a broker: log in, send a small message to ourselves, leave."""

import secrets
import ssl
import time
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from edgefl.wire.address import Address
from edgefl.wire.mqtt import place_of, transport_of

PATIENCE = 5.0  # seconds


class BrokerProbe:
    """How far it got."""

    def __init__(self, topic: str) -> None:
        self.refused = "no answer"  # why there was no login; empty if there was one
        self.largest: int | None = None  # bytes of a packet, if the broker says
        self.denied = ""  # why the broker would not take our message
        self.echoed = False  # it came back
        self._topic, self._token = topic, secrets.token_bytes(16)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be learned."""
        return self.echoed or bool(self.denied)

    # paho calls these with more than its types say; Any is what it gives.

    def on_connect(self, client: paho.Client, _u: Any, _f: Any, reason: Any, properties: Any) -> None:
        self.refused = str(reason) if reason.is_failure else ""
        self.largest = getattr(properties, "MaximumPacketSize", None)
        if not reason.is_failure:
            client.subscribe(self._topic, qos=1)

    def on_subscribe(self, client: paho.Client, _u: Any, _m: int, _reasons: Any, _p: Any) -> None:
        client.publish(self._topic, self._token, qos=1)  # a subscription that is not allowed shows when nothing comes

    def on_publish(self, _c: paho.Client, _u: Any, _m: int, reason: Any, _p: Any) -> None:
        self.denied = str(reason) if reason.is_failure else ""

    def on_message(self, _c: paho.Client, _u: Any, message: paho.MQTTMessage) -> None:
        self.echoed |= message.payload == self._token


def probe_broker(address: Address, context: ssl.SSLContext | None, topic: str) -> BrokerProbe:
    """A visit at the broker there; `topic` is where the message goes to and comes from."""
    probe = BrokerProbe(topic)
    name, way = f"doctor-{secrets.token_hex(4)}", transport_of(address)
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5, transport=way)
    client.on_connect, client.on_subscribe = probe.on_connect, probe.on_subscribe
    client.on_publish, client.on_message = probe.on_publish, probe.on_message
    if address.username is not None:
        client.username_pw_set(address.username, address.password)
    if context is not None:
        client.tls_set_context(context)
    until = time.monotonic() + PATIENCE
    try:
        client.connect(*place_of(address), keepalive=10)
        while not probe.over and time.monotonic() < until and client.loop(0.1) == paho.MQTT_ERR_SUCCESS:
            pass
        client.disconnect()
        client.loop(0.1)
    except OSError as error:
        probe.refused = probe.refused and str(error.strerror or error)
    finally:
        if (left := client.socket()) is not None:
            left.close()
    return probe
