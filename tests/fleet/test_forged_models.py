"""A forger at the broker: what the coordinator did not sign is not trained on, and the run ends with its own model."""

import json
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
from facts import in_json
from fleets import Fleet, loop, prepared, run_file

from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from device_agent.start import AgentHost
from edgefl.base.errors import Interrupted
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.signing import Signer, claim
from edgefl.wire.transport import Deliver, Transport, Will
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg", "lr": 0.05}, wire={"enclose_kb": 0})
OURS, FORGER = Signer.new(), Signer.new()
Forge = Callable[[bytes], bytes]


def other_lr(payload: bytes) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(claim(payload).statement)
    manifest["algorithm"]["lr"] = 5.0
    return manifest


def signed_by_another(payload: bytes) -> bytes:
    return FORGER.sign(json.dumps(other_lr(payload)).encode())


def signed_under_our_name(payload: bytes) -> bytes:
    return signed_by_another(payload).replace(FORGER.key.encode(), OURS.key.encode())


def unsigned(payload: bytes) -> bytes:
    return json.dumps(other_lr(payload)).encode()


def changed_by_one_byte(payload: bytes) -> bytes:
    forged = payload.replace(b'"lr":0.05', b'"lr":0.95')
    assert forged != payload
    return forged


FORGERIES: dict[str, tuple[Forge, str]] = {
    "signed by another": (signed_by_another, "model.signature"),
    "signed under our name": (signed_under_our_name, "model.signature"),
    "unsigned": (unsigned, "model.unsigned"),
    "changed by one byte": (changed_by_one_byte, "model.signature"),
}


class Overtaken:
    """The coordinator's transport, and a forger who overwrites its manifests before any device is asked."""

    def __init__(self, inner: Transport, forger: Transport, forge: Forge, times: int) -> None:
        self.inner, self.forger, self.forge, self.times = inner, forger, forge, times
        self.forged: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def start(self, deliver: Deliver, will: Will | None = None) -> None:
        """Events come by a thread of their own: the one that sends cannot wait here until a message is out."""
        events: SimpleQueue[Any] = SimpleQueue()
        Thread(target=lambda: [deliver(event) for event in iter(events.get, None)], daemon=True).start()
        self.inner.start(events.put, will)

    def publish(self, topic: str, payload: bytes | memoryview, *, retain: bool = False, **more: Any) -> None:
        self.inner.publish(topic, payload, retain=retain, **more)
        if topic.endswith("/manifest") and payload and self.forged.get(topic, 0) < self.times:
            self.forged[topic] = self.forged.get(topic, 0) + 1
            assert self.inner.flush(10)
            self.forger.publish(topic, self.forge(bytes(payload)), retain=True)
            assert self.forger.flush(10)


class Guarded(Fleet):
    """Agents that know the coordinator's key."""

    def agent(self, name: str, *more: Any, **options: Any) -> AgentHost:
        host = super().agent(name, *more, **options)
        trust = host.agent.model_cache.trust
        trust.given = trust.key = OURS.key
        return host


def play(
    connect: Callable[[str], Transport], folder: Path, forge: Forge, times: int = 1
) -> tuple[str, Fleet, list[Any]]:
    told: list[dict[str, Any]] = []
    fleet = Guarded(RUN, folder, connect)
    fleet.start_all()
    forger = connect("forger")
    forger.start(lambda _: None)
    transport = Overtaken(connect("coordinator"), forger, forge, times)
    run_state = Threaded(
        RUN, transport, lambda: prepared(RUN)[0], tell=in_json(told.append), security=Security(OURS)
    ).run()
    fleet.join()
    forger.close()
    assert all(code == 0 for code, _ in fleet.exits.values()), fleet.exits
    return run_state.sha256(), fleet, told


def refusals(fleet: Fleet) -> set[str]:
    return {code for agent in fleet.agents.values() for code in agent.refusals}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_model_is_not_trained_on_and_the_run_ends_with_its_own(kind: str, tmp_path: Path) -> None:
    forge, code = FORGERIES[kind]
    sha256, fleet, told = play(InMemoryBroker().client, tmp_path, forge)
    assert sha256 == loop(RUN).sha256()
    assert refusals(fleet) == {code}
    assert not [event for event in told if event["event"] == "declined"], "the good one came when it was asked for"


def test_mosquitto_gives_a_forger_no_better_chance(mosquitto: Broker, tmp_path: Path) -> None:
    sha256, fleet, _ = play(lambda name: MqttTransport(mosquitto.address, name), tmp_path, signed_by_another)
    assert sha256 == loop(RUN).sha256()
    assert refusals(fleet) == {"model.signature"}


def serve(fleet: Fleet, broker: InMemoryBroker, signer: Signer, tell: Callable[[dict[str, Any]], None]) -> Threaded:
    return Threaded(
        RUN, broker.client("coordinator"), lambda: prepared(RUN)[0], tell=in_json(tell), security=Security(signer)
    )


def test_who_comes_with_another_key_is_declined_and_the_devices_go_on_with_the_first(tmp_path: Path) -> None:
    broker = InMemoryBroker()
    fleet = Fleet(RUN, tmp_path, broker.client, once=False)
    fleet.start_all()
    before = serve(fleet, broker, OURS, lambda _: None).run()  # they meet, and trust each other from now on
    declined: dict[str, str] = {}

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "declined":
            declined[event["device"]] = event["reason"]
            if len(declined) == len(fleet.data):
                stranger.stop()

    stranger = serve(fleet, broker, FORGER, note)
    with pytest.raises(Interrupted):
        stranger.run()
    after = serve(fleet, broker, OURS, lambda _: None).run()
    fleet.stop()
    fleet.join()
    why = f"message.key: signed by {FORGER.key}, but this device trusts {OURS.key}: if that is the coordinator's new"
    assert all(reason.startswith(why) for reason in declined.values()), declined
    assert all(agent.refusals["message.key"] for agent in fleet.agents.values())
    assert before.sha256() == after.sha256() == loop(RUN).sha256()
    assert set(fleet.exits.values()) == {(0, "stopped")}


def test_a_model_of_another_life_is_fetched_anew_though_it_is_the_same_to_the_bit(tmp_path: Path) -> None:
    """The second run begins with the very bytes of the first; what its manifest says must be the second's."""
    broker = InMemoryBroker()
    first, second = (run_file({"name": "fedavg", "lr": lr}, run={"rounds": 1}) for lr in (0.05, 0.5))
    fleet = Fleet(first, tmp_path, broker.client, once=False)
    fleet.start_all()
    models = []
    for run in (first, second):
        job = prepared(run)[0]
        serving = Threaded(run, broker.client("coordinator"), lambda job=job: job, security=Security(OURS))
        models.append(serving.run().sha256())
    fleet.stop()
    fleet.join()
    assert models == [loop(first).sha256(), loop(second).sha256()]
