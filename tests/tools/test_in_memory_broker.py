import random
import threading
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.wire.transport import ConnectionLost, ConnectionMade, Message, Transport, Will
from tools.in_memory_broker import InMemoryBroker, matches


def join(broker: InMemoryBroker, name: str, *filters: str, will: Will | None = None):
    told: list = []
    client = broker.client(name)
    client.start(told.append, will)
    client.subscribe(*filters)
    return client, told


@pytest.mark.parametrize(
    ("filter", "topic", "fits"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+/c", "a/b/c", True),
        ("a/#", "a/b/c", True),
        ("a/#", "a", True),
        ("#", "a/b", True),
        ("+", "a/b", False),
        ("a/b/#", "a/c", False),
    ],
)
def test_filters_match_as_in_mqtt(filter, topic, fits):
    assert matches(filter, topic) is fits


def test_a_message_reaches_those_who_asked_for_it():
    broker = InMemoryBroker()
    _, yes = join(broker, "yes", "a/+")
    _, no = join(broker, "no", "b/+")
    sender: Transport = broker.client("sender")
    sender.start(lambda _: None)
    sender.publish("a/x", memoryview(b"hello"))
    assert yes == [ConnectionMade(), Message("a/x", b"hello")]
    assert no == [ConnectionMade()]
    assert (sender.sent, sender.backlog(), sender.flush(0)) == (5, 0, True)


def test_overlapping_filters_deliver_once_and_are_counted_once():
    broker = InMemoryBroker()
    client, told = join(broker, "a", "t/+", "t/#")
    client.publish("t/x", b"123")
    assert told[1:] == [Message("t/x", b"123")]
    assert client.received == 3


def test_nothing_comes_after_unsubscribing():
    broker = InMemoryBroker()
    client, told = join(broker, "a", "t")
    client.unsubscribe("t")
    client.publish("t", b"x")
    assert told == [ConnectionMade()]


def test_a_retained_message_waits_for_late_joiners_until_it_is_cleared():
    broker = InMemoryBroker()
    sender, _ = join(broker, "sender")
    sender.publish("t", b"kept", retain=True)
    _, late = join(broker, "late", "t")
    sender.publish("t", b"", retain=True)
    _, later = join(broker, "later", "t")
    assert late[1:] == [Message("t", b"kept", retained=True), Message("t", b"")]
    assert later == [ConnectionMade()]


def test_a_will_is_published_when_a_client_dies_but_not_when_it_says_goodbye():
    broker = InMemoryBroker()
    _, told = join(broker, "watcher", "presence/+")
    join(broker, "dies", will=Will("presence/dies", b"gone"))
    leaves, _ = join(broker, "leaves", will=Will("presence/leaves", b"gone"))
    leaves.close()
    broker.kill("dies")
    assert told[1:] == [Message("presence/dies", b"gone")]
    assert list(broker.retained) == ["presence/dies"]


def test_a_dead_client_hears_nothing():
    broker = InMemoryBroker()
    _, told = join(broker, "dies", "t")
    sender, _ = join(broker, "sender")
    broker.kill("dies")
    sender.publish("t", b"x")
    assert told == [ConnectionMade()]


def test_a_second_client_with_the_same_id_takes_the_session_over():
    broker = InMemoryBroker()
    _, watcher = join(broker, "watcher", "presence")
    _, first = join(broker, "twin", "t", will=Will("presence", b"gone"))
    second, told = join(broker, "twin", "t")
    second.publish("t", b"x")
    assert first == [ConnectionMade(), ConnectionLost("Session taken over", taken_over=True)]
    assert told == [ConnectionMade(), Message("t", b"x")]
    assert watcher[1:] == [Message("presence", b"gone")]


def test_what_is_published_while_cut_off_arrives_after_the_connection_is_back():
    broker = InMemoryBroker()
    _, told = join(broker, "watcher", "t")
    client, events = join(broker, "client", "t")
    broker.cut("client")
    client.publish("t", b"x")
    assert client.backlog() == 1
    assert not client.flush(0)
    broker.restore("client")
    assert events == [ConnectionMade(), ConnectionLost("connection lost"), ConnectionMade()]
    assert told[1:] == [Message("t", b"x")]
    assert client.backlog() == 0


def test_a_restarted_broker_has_forgotten_everything():
    broker = InMemoryBroker()
    client, told = join(broker, "client", "t")
    client.publish("kept", b"x", retain=True)
    broker.restart()
    client.publish("t", b"nobody asks for it any more")
    client.subscribe("kept")
    assert told == [ConnectionMade(), ConnectionLost("connection lost"), ConnectionMade()]


def test_a_callback_may_publish():
    broker = InMemoryBroker()
    echo = broker.client("echo")
    echo.start(lambda event: isinstance(event, Message) and echo.publish("answer", event.payload))
    echo.subscribe("question")
    client, told = join(broker, "client", "answer")
    client.publish("question", b"?")
    assert told[1:] == [Message("answer", b"?")]


def test_a_callback_that_fails_shows_and_does_not_stop_the_broker():
    broker = InMemoryBroker()
    client, told = join(broker, "client", "t")
    bad = broker.client("bad")
    with pytest.raises(ZeroDivisionError):
        bad.start(lambda _: 1 / 0)
    client.publish("t", b"x")
    assert told[1:] == [Message("t", b"x")]


def test_without_an_order_everything_arrives_as_it_was_sent():
    broker = InMemoryBroker()
    sender, _ = join(broker, "sender")
    receiver = broker.client("receiver")
    told: list = []

    def deliver(event):
        told.append(event)
        if event == Message("go", b""):
            for i in range(6):  # queued while a delivery is going on
                sender.publish(f"t/{i % 2}", bytes([i]))

    receiver.start(deliver)
    receiver.subscribe("#")
    sender.publish("go", b"")
    assert [m.payload[0] for m in told[2:]] == list(range(6))


@given(st.integers(0, 2**32 - 1))
def test_an_order_shuffles_streams_but_never_within_one(seed):
    broker = InMemoryBroker(order=random.Random(seed).randrange)
    _, told = join(broker, "receiver", "#")
    senders = [join(broker, f"s{i}")[0] for i in range(2)]
    for i in range(5):
        for n, sender in enumerate(senders):
            sender.publish("one", bytes([n, i]))
            sender.publish("two", bytes([n, i]))
    assert told == [ConnectionMade()]
    assert broker.pump() == 20
    stream = lambda m: (m.topic, m.payload[0])  # noqa: E731
    for _, messages in groupby(sorted(told[1:], key=stream), stream):
        assert [m.payload[1] for m in messages] == list(range(5))


def test_two_orders_differ_and_the_same_seed_repeats():
    def arrivals(seed: int) -> list[str]:
        broker = InMemoryBroker(order=random.Random(seed).randrange)
        _, told = join(broker, "receiver", "#")
        sender, _ = join(broker, "sender")
        for i in range(10):
            sender.publish(f"t/{i}", b"")
        broker.pump()
        return [m.topic for m in told[1:]]

    assert arrivals(1) == arrivals(1) != arrivals(2)


def test_many_threads_lose_nothing_and_keep_their_own_order():
    broker = InMemoryBroker()
    _, told = join(broker, "receiver", "#")

    def send(n: int) -> None:
        client, _ = join(broker, f"c{n}")
        for i in range(200):
            client.publish(f"t/{n}", bytes([i]))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broker.pump()
    for n in range(4):
        assert [m.payload[0] for m in told[1:] if m.topic == f"t/{n}"] == list(range(200))
