from hypothesis import given
from hypothesis import strategies as st

from edgefl.wire.topic_tree import TopicTree
from tools.in_memory_broker import matches

LEVELS = st.sampled_from("abc")
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join)
FILTERS = st.tuples(st.lists(st.sampled_from("abc+"), min_size=1, max_size=4), st.sampled_from(["", "/#"])).map(
    lambda parts: "/".join(parts[0]) + parts[1]
) | st.just("#")


@given(st.sets(FILTERS), TOPICS)
def test_a_topic_finds_the_filters_that_it_falls_under(filters, topic):
    tree: TopicTree[str] = TopicTree()
    for filter in filters:
        tree.add(filter, filter)
    assert sorted(tree.matching(topic)) == sorted(filter for filter in filters if matches(filter, topic))


@given(st.sets(TOPICS), FILTERS)
def test_a_filter_finds_the_topics_that_fall_under_it(topics, filter):
    tree: TopicTree[str] = TopicTree()
    for topic in topics:
        tree.add(topic, topic)
    assert sorted(tree.under(filter)) == sorted(topic for topic in topics if matches(filter, topic))


@given(st.lists(st.tuples(FILTERS, st.integers(0, 1))), st.data())
def test_what_is_removed_leaves_nothing_behind(added, data):
    tree: TopicTree[int] = TopicTree()
    for filter, value in added:
        tree.add(filter, value)
    left = set(added)
    for filter, value in data.draw(st.permutations(sorted(set(added)))):
        tree.remove(filter, value)
        tree.remove(filter, value)  # a second time is nothing
        left.discard((filter, value))
        assert sorted(set(tree.matching("a/b"))) == sorted({v for f, v in left if matches(f, "a/b")})
    assert tree._root.below == {}
