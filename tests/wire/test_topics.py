"""Topics: at most seven slashes, one per device and direction, and no name that could pretend to be more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.errors import ConfigError
from edgefl.wire import topics

EVERY = [
    topics.state("f", "j"),
    topics.manifest("f", "j", "m"),
    topics.chunk("f", "j", "m", 300),
    topics.group("f", "j", "m", 1),
    topics.down("f", "j", "d"),
    topics.up("f", "j", "d"),
    topics.presence("f", "d"),
]


def test_topics_as_the_design_has_them():
    assert EVERY == [
        "edgefl/v1/f/j/state",
        "edgefl/v1/f/j/model/m/manifest",
        "edgefl/v1/f/j/model/m/1/44",
        "edgefl/v1/f/j/model/m/1/+",
        "edgefl/v1/f/j/dev/d/down",
        "edgefl/v1/f/j/dev/d/up",
        "edgefl/v1/f/presence/d",
    ]


@pytest.mark.parametrize("topic", EVERY)
def test_no_topic_has_more_slashes_than_public_brokers_allow(topic):
    assert topic.count("/") <= 7


@given(st.integers(0, 10**6))
def test_a_chunk_is_found_under_the_filter_of_its_group(index):
    topic = topics.chunk("f", "j", "m", index)
    number = index // topics.GROUP
    assert topic.rsplit("/", 1)[0] + "/+" == topics.group("f", "j", "m", number)
    assert int(topic.rsplit("/", 1)[1]) + number * topics.GROUP == index


def test_what_stands_behind_the_fleet_tells_who_speaks():
    assert topics.parts(topics.up("f", "j", "pi-1")) == ("j", "dev", "pi-1", "up")
    assert topics.parts(topics.presence("f", "pi-1")) == ("presence", "pi-1")


@pytest.mark.parametrize("name", ["a", "pi-04", "A.b_c-9", "x" * 64, "7"])
def test_a_plain_name_may_stand_in_a_topic(name):
    assert topics.check_name("agent.id", name) == name


@pytest.mark.parametrize(
    "name", ["", "a/b", "+", "#", "$SYS", "a b", "é", "-a", ".a", "x" * 65, "a\n", "a\0", "state", "presence"]
)
def test_a_name_that_means_something_to_a_broker_or_to_us_may_not(name):
    with pytest.raises(ConfigError, match="use up to 64 letters") as caught:
        topics.check_name("agent.id", name)
    assert str(caught.value).startswith("agent.id '")
    assert "' cannot stand in a topic: " in str(caught.value)


@given(st.text())
def test_a_name_that_passes_adds_no_level_and_no_wildcard(name):
    try:
        topics.check_name("x", name)
    except ConfigError:
        return
    assert not set(name) & set("/+#$\0 ")
