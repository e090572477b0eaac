"""One stolen device against the memory of the fleet's real Mosquitto: whatever it does there, the machine survives.

Without limits 500 retained messages of jobs that nobody has were 200 MB, 20,000 subscriptions 680 MB, and what waits
for a device that fetches nothing up to 10 GB. Mosquitto knows no limit for one member, so a flood may cost the broker
itself (which is started again, and has forgotten the flood); it may not cost the machine.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import psutil
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from secured_fleet import Secured, context, make

from edgefl.fleet import mosquitto
from edgefl.system.processes import Child
from edgefl.wire import topics
from edgefl.wire.broker import find_mosquitto, wait_until_up
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.transport import ConnectionMade, TransportEvent

MIB = 1 << 20
LIMIT = 64 * MIB
ROOM = 48 * MIB  # for connections, and for what malloc keeps; the floods are four times the limit: 256 MiB
THIEF, OTHER, FLEET = "pi-1", "pi-2", "default"

pytestmark = pytest.mark.broker


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return make(tmp_path, THIEF, OTHER)


@contextmanager
def small_broker(secured: Secured) -> Iterator[Child]:
    """The fleet's broker on a machine with little memory."""
    files = secured.fleet.folder.broker
    stay = "user root\n" if os.geteuid() == 0 else ""
    text = stay + mosquitto.configuration(secured.fleet.settings, files, memory=LIMIT)
    (files / "small.conf").write_text(text)
    child = Child([find_mosquitto() or "mosquitto", "-c", str(files / "small.conf")], files / "small.log")
    try:
        wait_until_up(child, secured.address)
        yield child
    finally:
        child.stop()


class Thief:
    """A member's certificate in the wrong hands."""

    def __init__(self, secured: Secured) -> None:
        self.gone, self.answers = threading.Event(), threading.Semaphore(0)
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id="x", protocol=paho.MQTTv5, manual_ack=True)
        self.paho.tls_set_context(context(secured.tls(THIEF)))
        self.paho.reconnect_delay_set(60, 60)
        self.paho.on_connect = self.paho.on_publish = self.paho.on_subscribe = self._answered
        self.paho.on_disconnect = lambda *_: self.gone.set()
        self.paho.connect("127.0.0.1", secured.port)
        self.paho.loop_start()
        self.wait()

    def _answered(self, *_: Any) -> None:  # Any: whatever paho tells
        self.answers.release()

    def wait(self) -> bool:
        """Whether the broker answered, and did not hang up."""
        while not self.answers.acquire(timeout=0.05):
            if self.gone.is_set():
                return False
        return True

    def publish(self, topic: str, *, retain: bool) -> bool:
        self.paho.publish(topic, bytes(400 << 10), qos=1, retain=retain)
        return self.wait()

    def subscribe(self, filters: list[str]) -> bool:
        self.paho.subscribe([(each, 1) for each in filters])
        return self.wait()

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()
        self.paho._reset_sockets()  # paho leaves them to the garbage collector


def floods(thief: Thief, how: str) -> None:
    """Four times what the broker may have, unless it hangs up before."""
    own = f"{topics.ROOT}/{FLEET}/doctor/{THIEF}"
    if how == "unfetched":  # what is not acknowledged stays with the broker
        assert thief.subscribe([own])
    for number in range(4 * LIMIT // (400 << 10)):
        match how:
            case "unfetched":
                going_on = thief.publish(own, retain=False)
            case "retained":
                going_on = thief.publish(topics.up(FLEET, f"job-{number}", THIEF), retain=True)
            case _:
                going_on = thief.subscribe([f"{number}/{each}/" + "x/" * 100 for each in range(30)])
        if not going_on:
            return


def resident(child: Child) -> int:
    """Bytes of the broker; none if it has ended."""
    try:
        return int(psutil.Process(child.process.pid if child.process else 0).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


@pytest.mark.night
@pytest.mark.parametrize("how", ["unfetched", "retained", "subscriptions"])
def test_no_flood_of_a_member_takes_more_than_the_broker_may_have(fleet: Secured, how: str) -> None:
    with small_broker(fleet) as child:
        idle = resident(child)
        thief = Thief(fleet)
        floods(thief, how)
        assert resident(child) < idle + LIMIT + ROOM
        thief.close()


def test_what_waits_for_one_member_leaves_room_for_the_others(fleet: Secured) -> None:
    with small_broker(fleet) as child:
        thief = Thief(fleet)
        floods(thief, "unfetched")
        assert not thief.gone.is_set(), "what does not fit is lost to it alone"
        there = threading.Event()

        def hear(event: TransportEvent) -> None:
            if isinstance(event, ConnectionMade):
                there.set()

        other = MqttTransport(fleet.address, OTHER, tls=fleet.tls(OTHER))
        other.start(hear)
        assert there.wait(20)
        other.close()
        assert not child.gone.is_set()
        thief.close()
