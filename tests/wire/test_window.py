"""What is on its way: bounded in messages and bytes, and the measure of the line."""

import pytest

from edgefl.wire.window import BYTES, SendWindow


def test_so_many_messages_may_be_on_their_way_and_no_more():
    window = SendWindow[str](2)
    for number in (1, 2):
        assert window.open
        window.sent(number, "small", 10, 0.0)
    assert not window.open
    assert window.acknowledged(1, 1.0) == "small"
    assert window.open


def test_large_messages_wait_for_one_another_but_one_always_goes():
    window = SendWindow[str](8)
    window.sent(1, "large", BYTES + 1, 0.0)
    assert not window.open
    window.acknowledged(1, 1.0)
    assert window.open


def test_the_line_is_measured_where_there_was_much_to_send():
    window = SendWindow[str](8)
    window.sent(1, "a word", 100, 0.0)
    window.acknowledged(1, 0.001)
    assert window.speed == 0.0
    for number in (2, 3):
        window.sent(number, "chunk", 120_000, 10.0)
    window.acknowledged(2, 11.0)
    window.acknowledged(3, 12.0)
    assert window.speed == pytest.approx(120_000)


def test_what_did_not_arrive_is_given_back_in_its_order():
    window = SendWindow[str](8)
    for number, item in enumerate("abc"):
        window.sent(number, item, 1, 0.0)
    window.acknowledged(1, 0.0)
    assert window.acknowledged(1, 0.0) is None, "a broker may say so twice"
    assert window.unsettled() == ["a", "c"]
