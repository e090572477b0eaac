"""A member of the fleet with a valid account of its own speaks for itself, and hears what is for it."""

import os
import queue
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from facts import in_json
from fleets import Fleet, prepared, run_file, until
from paho.mqtt.enums import CallbackAPIVersion

from coordinator.identity import opened
from coordinator.threaded import Threaded
from edgefl.errors import Interrupted
from edgefl.protocol import topics
from edgefl.protocol.address import Address
from edgefl.protocol.broker import find_mosquitto
from edgefl.protocol.messages import Presence
from edgefl.protocol.mqtt import MqttTransport
from edgefl.simulation.loop import simulate

README = Path(__file__).parents[2] / "README.md"
HONEST, MEMBER, GHOST = ("pi-01", "pi-02"), "pi-03", "pi-99"
VICTIM = HONEST[0]
NOT_AUTHORIZED = 0x87
TWO = {"cohort": 2, "quorum": 2, "start_with": 2}
RUN = run_file({"name": "fedavg"}, run={"rounds": 3}, rounds=TWO, guards={"strikes": 3, "quarantine_seconds": 1.0})
SHARED = "edgefl broker start --user fleet"


def from_the_readme() -> str:
    (line,) = re.findall(r"^(edgefl broker start .*?) *#", README.read_text(), re.MULTILINE)
    return str(line)


@contextmanager
def broker(command: str, folder: Path) -> Iterator[int]:
    """The port of a broker that was started with this command, as an operator does."""
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    words = [sys.executable, "-m", *shlex.split(command), "--port", "0"]
    settings = {**os.environ, "XDG_STATE_HOME": str(folder), "EDGEFL_MQTT_PASSWORD": "shared", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=settings) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if listening := re.match(r"mosquitto listens on mqtt://127.0.0.1:(\d+);", line):
                    yield int(listening[1])
                    break
            else:
                pytest.fail("the broker did not start")
        finally:
            process.terminate()


def account(folder: Path, name: str) -> dict[str, str]:
    lines = (folder / "edgefl" / "accounts" / f"{name}.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


class Member:
    """Whoever has this login, with a client of its own: it takes no part, and tries everything else."""

    def __init__(self, port: int, user: str, password: str) -> None:
        self.heard: set[str] = set()
        self.told: queue.Queue[int] = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{MEMBER}-evil", protocol=paho.MQTTv5)
        self.client.username_pw_set(user, password)
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


def play(port: int, logins: dict[str, tuple[str, str]], folder: Path) -> tuple[Member, set[int], list[Any], str]:
    """A run of two devices beside the member, who begins anew whenever devices are asked, until it succeeds."""
    fleet = Fleet(RUN, folder, lambda name: MqttTransport(Address("mqtt", "127.0.0.1", port, *logins[name]), name))
    fleet.data = dict(zip(HONEST, fleet.data.values(), strict=False))
    fleet.start_all()
    until(lambda: all(agent.session.online for agent in fleet.agents.values()))
    member = Member(port, *logins[MEMBER])
    events: list[Any] = []
    codes: set[int] = set()

    def tell(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "asked":
            codes.update(member.forges())
        if event["event"] == "quarantined" and event["device"] != "-":
            coordinator.stop()

    transport = MqttTransport(Address("mqtt", "127.0.0.1", port, *logins["coordinator"]), "coordinator")
    coordinator = Threaded(RUN, transport, lambda: prepared(RUN)[0], tell=in_json(tell))
    sha256 = ""
    try:
        sha256 = coordinator.run().sha256()
    except Interrupted:
        fleet.stop()
    fleet.join()
    member.close()
    return member, codes, events, sha256


@pytest.mark.broker
def test_with_the_accounts_of_the_readme_a_member_reads_forges_and_shuts_out_nobody(tmp_path: Path) -> None:
    with broker(from_the_readme(), tmp_path) as port:
        names = ("coordinator", *HONEST, MEMBER)
        logins = {name: (name, account(tmp_path, name)["EDGEFL_MQTT_PASSWORD"]) for name in names}
        member, codes, events, sha256 = play(port, logins, tmp_path / "devices")
    assert codes == {NOT_AUTHORIZED}
    assert {topic.split("/")[4] for topic in member.heard} <= {"state", "model"}, member.heard
    assert member.heard, "it does hear what is for all"
    assert not {"quarantined", "refused", "declined", "lost"} & {event["event"] for event in events}
    assert {event["device"] for event in events if event["event"] == "joined"} == set(HONEST)
    held = prepared(RUN)[1].devices
    assert sha256 == simulate(prepared(RUN)[0], dict(zip(HONEST, held, strict=False))).sha256()


@pytest.mark.broker
def test_with_one_user_for_all_it_reads_what_others_say_which_is_why_that_stays_on_loopback(tmp_path: Path) -> None:
    with broker(SHARED, tmp_path) as port:
        everybody = dict.fromkeys(("coordinator", *HONEST, MEMBER), ("fleet", "shared"))
        member, codes, events, sha256 = play(port, everybody, tmp_path / "devices")
    assert NOT_AUTHORIZED not in codes
    assert topics.presence("default", HONEST[1]) in member.heard
    assert {event["device"] for event in events if event["event"] in ("quarantined", "refused")} == {"-"}, "nobody's"
    assert {event["device"] for event in events if event["event"] == "joined"} == set(HONEST)
    held = prepared(RUN)[1].devices
    assert sha256 == simulate(prepared(RUN)[0], dict(zip(HONEST, held, strict=False))).sha256(), "what is not signed"
    command = [sys.executable, "-m", *shlex.split(SHARED), "--bind", "0.0.0.0"]
    settings = {**os.environ, "EDGEFL_MQTT_PASSWORD": "shared"}
    done = subprocess.run(command, capture_output=True, text=True, env=settings, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "one user for everybody is for a bench" in done.stderr
    assert "--devices" in done.stderr


@pytest.mark.broker
def test_accounts_are_private_stay_and_are_all_that_a_device_needs(tmp_path: Path) -> None:
    with broker(from_the_readme(), tmp_path):
        before = {name: account(tmp_path, name) for name in ("coordinator", *HONEST, MEMBER)}
    folder = tmp_path / "edgefl" / "accounts"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert len({about["EDGEFL_MQTT_PASSWORD"] for about in before.values()}) == len(before)
    assert before[VICTIM]["EDGEFL_AGENT__ID"] == VICTIM
    assert before[VICTIM]["EDGEFL_AGENT__COORDINATOR"] == opened(tmp_path / "edgefl" / "fleets" / "default.key").key
    with broker(from_the_readme().replace(MEMBER, "pi-04"), tmp_path) as port:
        assert account(tmp_path, VICTIM) == before[VICTIM]
        assert account(tmp_path, "coordinator")["EDGEFL_BROKER__URL"] == f"mqtt://coordinator@127.0.0.1:{port}"
        assert account(tmp_path, "pi-04")["EDGEFL_MQTT_PASSWORD"]
