"""The broker in virtual time keeps MQTT's promises, and breaks everything else when it is asked to."""

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.base.errors import EdgeflError
from edgefl.sim.network import SILENCE, UNNOTICED, VirtualBroker, VirtualClient
from edgefl.sim.world import World
from edgefl.system.hardware.line import Line
from edgefl.wire.transport import ConnectionLost, ConnectionMade, Message, Transport, Will
from tools.faulty_network import Fate, FaultyBroker, Passing

LOST = ConnectionLost("connection lost")


class Heard(list[tuple[float, Any]]):
    """What a client was told, and when; it subscribes again after each connection, as it must."""

    def __init__(self, broker: VirtualBroker, client: VirtualClient, filters: Iterable[str]) -> None:
        super().__init__()
        self.broker, self.client, self.filters = broker, client, tuple(filters)

    def __call__(self, event: Any) -> None:
        self.append((self.broker.world.now, event))
        if isinstance(event, ConnectionMade):
            self.client.subscribe(*self.filters)

    @property
    def messages(self) -> list[bytes]:
        return [event.payload for _, event in self if isinstance(event, Message)]

    @property
    def events(self) -> list[Any]:
        return [event for _, event in self]


def join(
    broker: VirtualBroker, name: str, *filters: str, will: Will | None = None, line: Line | None = None
) -> tuple[VirtualClient, Heard]:
    client = broker.client(name, line or Line())
    heard = Heard(broker, client, filters)
    client.start(heard, will)
    return client, heard


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def broker(world: World) -> VirtualBroker:
    return VirtualBroker(world)


def test_a_message_reaches_those_who_asked_for_it(world, broker):
    _, yes = join(broker, "yes", "a/+", "a/#")
    _, no = join(broker, "no", "b/+")
    sender: Transport = join(broker, "sender")[0]
    world.run()
    sender.publish("a/x", memoryview(b"hello"))
    world.run()
    assert yes.events == [ConnectionMade(), Message("a/x", b"hello")]
    assert no.events == [ConnectionMade()]
    assert (sender.sent, sender.backlog(), sender.flush(0)) == (5, 0, True)
    assert yes.client.received == 5


def test_a_message_takes_its_time_on_both_lines_and_one_goes_after_another(world, broker):
    sender, _ = join(broker, "sender", line=Line(latency=1.0, up=10.0))
    _, heard = join(broker, "receiver", "#", line=Line(latency=0.5, down=5.0))
    world.run()  # connected and subscribed
    start = world.now
    sender.publish("t", bytes(20))
    sender.publish("t", bytes(10))
    world.run()
    arrivals = [when - start for when, event in heard if isinstance(event, Message)]
    # up: 2 s of bytes and 1 s; down: 4 s and 0.5 s. The second leaves 1 s later, and waits for the first at the broker.
    assert arrivals == [2 + 1 + 4 + 0.5, 2 + 1 + 4 + 2 + 0.5]


def test_what_is_not_acknowledged_is_in_the_backlog(world, broker):
    sender, _ = join(broker, "sender", line=Line(latency=1.0))
    world.run()
    now = world.now
    sender.publish("t", b"x")
    world.run(limit=now + 1.5)
    assert sender.backlog() == 1
    world.run(limit=now + 2.0)
    assert sender.backlog() == 0


def test_what_is_acknowledged_is_forgotten_whether_or_not_anybody_asks(world, broker):
    sender, _ = join(broker, "sender")
    world.run()
    for _ in range(100):
        sender.publish("t", b"x")
        world.run()
    assert len(sender._flying) == 1


def test_a_retained_message_waits_for_late_joiners_until_it_is_cleared_or_expires(world, broker):
    sender, _ = join(broker, "sender")
    world.run()
    sender.publish("t", b"kept", retain=True)
    sender.publish("u", b"for a while", retain=True, expires=10)
    world.run()
    _, late = join(broker, "late", "t", "u")
    world.run(limit=20.0)
    sender.publish("t", b"", retain=True)
    world.run()
    _, later = join(broker, "later", "#")
    world.run()
    assert late.events[1:] == [
        Message("t", b"kept", retained=True),
        Message("u", b"for a while", retained=True),
        Message("t", b""),
    ]
    assert later.events == [ConnectionMade()]


def test_retained_messages_come_in_the_order_in_which_they_were_sent(world, broker):
    sender, _ = join(broker, "sender")
    world.run()
    for topic in ("b", "a", "c", "b"):
        sender.publish(topic, topic.encode(), retain=True)
    world.run()
    _, heard = join(broker, "late", "+")
    world.run()
    assert heard.messages == [b"a", b"c", b"b"]


@pytest.mark.parametrize("silent", [False, True])
def test_the_will_of_a_killed_process_is_sent_and_of_a_dead_machine_after_a_while(world, broker, silent):
    _, heard = join(broker, "watcher", "presence")
    process = world.process("dies")
    client = broker.client("dies", process=process)
    client.start(process.put, Will("presence", b"gone"))
    world.run()
    process.kill(silent=silent)
    world.run()
    assert heard[1:] == [(SILENCE if silent else 0.0, Message("presence", b"gone"))]
    assert list(broker.retained) == ["presence"]


def test_who_says_goodbye_leaves_no_will_and_his_last_words_arrive(world, broker):
    _, heard = join(broker, "watcher", "#")
    leaves, told = join(broker, "leaves", will=Will("presence", b"gone"), line=Line(latency=1.0))
    world.run()
    leaves.publish("t", b"last words")
    assert not leaves.flush(5.0)
    leaves.close()
    leaves.publish("t", b"of a ghost")
    world.run()
    assert heard.messages == [b"last words"]
    assert told.events == [ConnectionMade()]


def test_a_goodbye_over_a_dead_connection_is_not_heard(world, broker):
    _, heard = join(broker, "watcher", "presence")
    leaves, _ = join(broker, "leaves", will=Will("presence", b"gone"))
    world.run()
    broker.cut("leaves", silent=True)
    leaves.close()
    world.run()
    assert heard[1:] == [(SILENCE, Message("presence", b"gone"))]


def test_who_leaves_without_waiting_drops_what_is_under_way(world, broker):
    _, heard = join(broker, "watcher", "#")
    leaves, _ = join(broker, "leaves", will=Will("presence", b"gone"), line=Line(latency=1.0))
    world.run()
    leaves.publish("t", b"x")
    leaves.close()
    world.run()
    assert heard.messages == []


def test_a_second_client_with_the_same_id_takes_the_session_over_and_both_fight_for_it(world, broker):
    _, watcher = join(broker, "watcher", "presence")
    _, first = join(broker, "twin", will=Will("presence", b"gone"))
    world.run()
    second, told = join(broker, "twin", "t")
    world.run(limit=0.0)
    assert first.events == [ConnectionMade(), ConnectionLost("Session taken over", taken_over=True)]
    assert told.events == [ConnectionMade()]
    assert watcher.messages == [b"gone"]
    world.run(until=lambda: len(first) > 2)
    assert first.events[2] == ConnectionMade()
    second.close()
    first.client.close()


def test_a_cut_client_comes_back_by_itself_when_it_can_and_sends_what_it_had(world, broker):
    _, watcher = join(broker, "watcher", "#")
    client, heard = join(broker, "client", "u", will=Will("presence", b"gone"))
    world.run()
    broker.cut("client", seconds=30.0)
    client.publish("t", b"x")
    assert client.backlog() == 1
    world.run()
    assert heard.events == [ConnectionMade(), LOST, ConnectionLost("no route to host"), ConnectionMade()]
    assert 30.0 <= heard[-1][0] <= 41.0  # the longest pause between two attempts is ten seconds
    assert watcher.messages == [b"gone", b"x"]
    assert client.backlog() == 0


def test_a_silent_break_is_seen_late_on_both_sides_and_nothing_is_lost_on_its_way_up(world, broker):
    _, watcher = join(broker, "watcher", "#")
    client, heard = join(broker, "client", "t", will=Will("presence", b"gone"))
    sender, _ = join(broker, "sender")
    world.run()
    broker.cut("client", silent=True)
    client.publish("up", b"not lost")
    sender.publish("t", b"lost")
    world.run()
    assert heard.messages == []
    assert heard[1] == (UNNOTICED, LOST)
    assert isinstance(heard[2][1], ConnectionMade)  # before the broker had noticed: it takes its own session over
    assert watcher.messages == [b"lost", b"gone", b"not lost"]


def test_what_was_on_its_way_down_is_lost_with_the_connection(world, broker):
    _, heard = join(broker, "client", "t", line=Line(latency=1.0))
    sender, _ = join(broker, "sender")
    world.run()
    sender.publish("t", b"x")
    world.later(0.5, partial(broker.cut, "client"))
    world.run()
    assert heard.events == [ConnectionMade(), LOST, ConnectionMade()]


def test_a_restarted_broker_has_forgotten_everything_wills_included(world):
    broker = FaultyBroker(world)
    client, heard = join(broker, "client", "kept", will=Will("presence", b"gone"))
    world.run()
    client.publish("kept", b"x", retain=True)
    world.run()
    broker.stop()
    world.later(5.0, broker.begin)
    world.run()
    assert heard.messages == [b"x"]
    assert heard.events[2:] == [LOST, ConnectionLost("connection refused"), ConnectionMade()]
    assert broker.retained == {}


def test_an_acknowledgement_that_is_lost_doubles_a_message(world):
    broken = []

    def once(passing: Passing) -> Fate:
        if passing.way == "up" and passing.payload == b"2" and not broken:
            broken.append(passing)
            return Fate(breaks="after")
        return Fate()

    broker = FaultyBroker(world, once)
    _, heard = join(broker, "receiver", "#")
    sender, _ = join(broker, "sender")
    world.run()
    for payload in (b"1", b"2", b"3"):
        sender.publish("t", payload)
    world.run()
    assert heard.messages == [b"1", b"2", b"2", b"3"]


def test_a_stream_may_be_held_back_and_others_overtake_it(world):
    broker = FaultyBroker(world, lambda passing: Fate(delay=3.0 if passing.payload == b"slow" else 0.0))
    _, heard = join(broker, "receiver", "#")
    sender, _ = join(broker, "sender")
    world.run()
    broker.faults = lambda p: Fate(delay=3.0 if (p.way, p.payload) == ("down", b"slow") else 0.0)
    for topic, payload in [("a", b"slow"), ("a", b"behind it"), ("b", b"overtakes")]:
        sender.publish(topic, payload)
    world.run()
    assert heard.messages == [b"overtakes", b"slow", b"behind it"]


def test_what_mqtt_never_does_has_to_be_allowed(world):
    lossy = FaultyBroker(world, lambda _: Fate(copies=0))
    client, _ = join(lossy, "client")
    world.run()
    with pytest.raises(EdgeflError, match="be brutal"):
        client.publish("t", b"x")
    broker = FaultyBroker(world, lambda p: Fate(copies=2 if p.way == "down" else 1), brutal=True)
    sender, _ = join(broker, "sender")
    _, heard = join(broker, "receiver", "#")
    world.run()
    sender.publish("t", b"x")
    world.run()
    assert heard.messages == [b"x", b"x"]


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_broker_may_lose_a_message_that_it_has_acknowledged(world, way):
    broker = FaultyBroker(world, lambda p: Fate(copies=int((p.way, p.payload) != (way, b"2"))), brutal=True)
    _, heard = join(broker, "receiver", "#")
    sender, _ = join(broker, "sender")
    world.run()
    for payload in (b"1", b"2", b"3"):
        sender.publish("t", payload)
    world.run()
    assert (heard.messages, sender.backlog()) == ([b"1", b"3"], 0)


def test_a_broker_may_lose_a_last_will(world):
    broker = FaultyBroker(world, lambda p: Fate(copies=int(p.payload != b"gone")), brutal=True)
    _, heard = join(broker, "receiver", "#")
    client, _ = join(broker, "client", will=Will("t", b"gone"))
    world.run()
    client.vanish(silent=False)
    world.run()
    assert (heard.messages, broker.retained) == ([], {})


def stormy(seed: int, messages: int = 30) -> tuple[list[Any], dict[str, list[bytes]]]:
    """Two senders whose lines break, stall and are cut; a receiver that stays. What it heard, and what was sent."""
    world, rng = World(), Random(seed)

    def faults(passing: Passing) -> Fate:
        if passing.way == "down" and passing.client == "receiver":
            return Fate(delay=rng.choice([0.0, 0.0, rng.random()]))
        breaks = rng.choice(["", "", "", "", "before", "after"]) if passing.way == "up" else ""
        return Fate(delay=rng.random() * 0.2, breaks=breaks)  # type: ignore[arg-type]

    broker = FaultyBroker(world, faults)
    _, heard = join(broker, "receiver", "t/#")
    sent: dict[str, list[bytes]] = {}
    for name in ("a", "b"):
        client, _ = join(broker, name, line=Line(rng.random() * 0.1, up=100.0))
        for number in range(messages):
            topic = f"t/{name}/{number % 2}"
            sent.setdefault(topic, []).append(bytes([number]))
            world.later(rng.random() * 0.5 + number * 0.5, partial(client.publish, topic, bytes([number])))
        world.later(rng.random() * 15, partial(broker.cut, name, seconds=rng.random(), silent=rng.random() < 0.5))
    world.run()
    return list(heard), sent


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_in_a_storm_nothing_is_lost_and_every_stream_keeps_its_order(seed):
    heard, sent = stormy(seed)
    came: dict[str, list[bytes]] = {topic: [] for topic in sent}
    for _, event in heard:
        if isinstance(event, Message) and event.payload not in came[event.topic]:
            came[event.topic].append(event.payload)  # each for the first time
    assert came == sent


def test_a_storm_doubles_messages_and_the_same_seed_is_the_same_storm():
    assert stormy(1) == stormy(1)
    assert stormy(1) != stormy(2)
    payloads = [(event.topic, event.payload) for _, event in stormy(1)[0] if isinstance(event, Message)]
    assert len(payloads) > len(set(payloads))
