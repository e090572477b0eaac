"""A member of the fleet with a valid account of its own speaks for itself, and hears what is for it."""

import os
import queue
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from facts import in_json
from fleets import Fleet, prepared, run_file, until
from paho.mqtt.enums import CallbackAPIVersion
from secured_fleet import broker, context, make

from coordinator.shell.threaded import Threaded
from edgefl.base.errors import Interrupted
from edgefl.sim.loop import simulate
from edgefl.wire import topics
from edgefl.wire.address import Address
from edgefl.wire.broker import find_mosquitto
from edgefl.wire.messages import Presence
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.tls import Tls

HONEST, MEMBER, GHOST = ("pi-01", "pi-02"), "pi-03", "pi-99"
VICTIM = HONEST[0]
NOT_AUTHORIZED = 0x87
TWO = {"cohort": 2, "quorum": 2, "start_with": 2}
RUN = run_file({"name": "fedavg"}, run={"rounds": 3}, rounds=TWO, guards={"strikes": 3, "quarantine_seconds": 1.0})
SHARED = "edgefl broker start --insecure --user fleet"


@contextmanager
def shared(folder: Path) -> Iterator[int]:
    """The port of a broker with one user for everybody, as an operator starts it."""
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    words = [sys.executable, "-m", *shlex.split(SHARED), "--port", "0"]
    settings = {**os.environ, "XDG_STATE_HOME": str(folder), "EDGEFL_MQTT_PASSWORD": "shared", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=settings) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if listens := re.match(r"mosquitto listens on mqtt://127.0.0.1:(\d+);", line):
                    yield int(listens[1])
                    break
            else:
                pytest.fail("the broker did not start")
        finally:
            process.terminate()


class Member:
    """Whoever has this certificate or login, with a client of its own: it takes no part, and tries everything else."""

    def __init__(self, port: int, login: tuple[str, str] | Tls) -> None:
        self.heard: set[str] = set()
        self.told: queue.Queue[int] = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{MEMBER}-evil", protocol=paho.MQTTv5)
        if isinstance(login, Tls):
            self.client.tls_set_context(context(login))
        else:
            self.client.username_pw_set(*login)
        self.client.on_connect = lambda *_: self.client.subscribe([("#", 1), ("edgefl/v1/+/+/dev/+/up", 1)])
        self.client.on_subscribe = lambda *_: self.told.put(0)
        self.client.on_publish = lambda _c, _u, _m, reason, _p: self.told.put(reason.value)
        self.client.on_message = lambda _c, _u, message: self.heard.add(message.topic)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.told.get(timeout=30)

    def says(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        """The code that the broker acknowledges it with."""
        self.client.publish(topic, payload, qos=1, retain=retain)
        return self.told.get(timeout=30)

    def forges(self) -> set[int]:
        """Answers of the victim that cost it its standing, its farewell, a device that there is not, a state."""
        garbage = [self.says(topics.up("default", "fleet", VICTIM), b"garbage") for _ in range(4)]
        gone, here = (presence(online=online) for online in (False, True))
        there = self.says(topics.presence("default", VICTIM), gone), self.says(topics.presence("default", GHOST), here)
        return {*garbage, *there, self.says(topics.down("default", "fleet", VICTIM), b"x")}

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def presence(*, online: bool) -> bytes:
    return Presence(online=online, installation="evil", birth=2, samples=10).model_dump_json().encode()


Connect = Callable[[str], MqttTransport]


def play(connect: Connect, member: Member, folder: Path) -> tuple[set[int], list[Any], str]:
    """A run of two devices beside the member, who begins anew whenever devices are asked, until it succeeds."""
    fleet = Fleet(RUN, folder, connect)
    fleet.data = dict(zip(HONEST, fleet.data.values(), strict=False))
    fleet.start_all()
    until(lambda: all(agent.session.online for agent in fleet.agents.values()))
    events: list[Any] = []
    codes: set[int] = set()

    def tell(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "asked":
            codes.update(member.forges())
        if event["event"] == "quarantined" and event["device"] != "-":
            coordinator.stop()

    coordinator = Threaded(RUN, connect("coordinator"), lambda: prepared(RUN)[0], tell=in_json(tell))
    sha256 = ""
    try:
        sha256 = coordinator.run().sha256()
    except Interrupted:
        fleet.stop()
    fleet.join()
    member.close()
    return codes, events, sha256


@pytest.mark.broker
def test_in_a_secured_fleet_a_member_reads_forges_and_shuts_out_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured = make(tmp_path, *HONEST, MEMBER)
    with broker(secured):
        member = Member(secured.port, secured.tls(MEMBER))
        codes, events, sha256 = play(
            lambda name: MqttTransport(secured.address, name, tls=secured.tls(name)), member, tmp_path / "agents"
        )
    assert codes == {NOT_AUTHORIZED}
    assert {topic.split("/")[4] for topic in member.heard} <= {"state", "model"}, member.heard
    assert member.heard, "it does hear what is for all"
    assert not {"quarantined", "refused", "declined", "lost"} & {event["event"] for event in events}
    assert {event["device"] for event in events if event["event"] == "joined"} == set(HONEST)
    held = prepared(RUN)[1].devices
    assert sha256 == simulate(prepared(RUN)[0], dict(zip(HONEST, held, strict=False))).sha256()


@pytest.mark.broker
def test_with_one_user_for_all_it_reads_what_others_say_which_is_why_that_stays_on_loopback(tmp_path: Path) -> None:
    login = "fleet", "shared"
    with shared(tmp_path) as port:
        member = Member(port, login)
        codes, events, sha256 = play(
            lambda name: MqttTransport(Address("mqtt", "127.0.0.1", port, *login), name), member, tmp_path / "devices"
        )
    assert NOT_AUTHORIZED not in codes
    assert topics.presence("default", HONEST[1]) in member.heard
    assert {event["device"] for event in events if event["event"] in ("quarantined", "refused")} == {"-"}, "nobody's"
    assert {event["device"] for event in events if event["event"] == "joined"} == set(HONEST)
    held = prepared(RUN)[1].devices
    assert sha256 == simulate(prepared(RUN)[0], dict(zip(HONEST, held, strict=False))).sha256(), "what is not signed"
    command = [sys.executable, "-m", *shlex.split(SHARED.replace("--insecure ", "")), "--bind", "0.0.0.0"]
    settings = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "EDGEFL_MQTT_PASSWORD": "shared"}
    done = subprocess.run(command, capture_output=True, text=True, env=settings, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "one user for all is for a bench" in done.stderr
    assert "edgefl fleet init --devices" in done.stderr
