"""Dataclasses whose methods are compiled when they are wanted behave as all others do."""

import dataclasses
import pickle
from dataclasses import dataclass

import pytest

from edgefl.system import slim_imports


@pytest.fixture
def slim(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(dataclasses, "_create_fn"):  # put back when the test is over
        monkeypatch.setattr(dataclasses, "_create_fn", vars(dataclasses)["_create_fn"])
    slim_imports._methods_when_called()


@dataclass(frozen=True, slots=True)
class Usual:
    a: int
    b: str = "b"


@pytest.fixture
def later(slim: None) -> type:
    @dataclass(frozen=True, slots=True)
    class Later:
        a: int
        b: str = "b"

    return Later


def test_equal_fields_are_equal_and_have_the_same_hash(later: type) -> None:
    assert later(1) == later(1, "b")
    assert later(1) != later(2)
    assert later(1) != Usual(1)
    assert hash(later(1)) == hash(Usual(1))
    assert {later(1): "found"}[later(1)] == "found"


def test_what_is_frozen_can_neither_be_set_nor_deleted(later: type) -> None:
    one = later(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        one.a = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del one.a
    assert one.a == 1


def test_it_shows_its_fields(later: type) -> None:
    assert repr(later(1)).endswith("Later(a=1, b='b')")


def test_it_can_be_replaced_taken_apart_and_matched(later: type) -> None:
    one = dataclasses.replace(later(1), b="c")
    assert dataclasses.asdict(one) == {"a": 1, "b": "c"}
    match one:
        case later(a, b):  # type: ignore[misc]  # a class that is made here
            assert (a, b) == (1, "c")


def test_one_that_inherits_has_its_own_methods(later: type) -> None:
    @dataclass(frozen=True, slots=True)
    class More(later):  # type: ignore[misc]  # as above
        c: float = 0.5

    assert repr(More(1)).endswith("More(a=1, b='b', c=0.5)")
    assert More(1) == More(1)
    assert More(1) != later(1)


def test_order_is_that_of_the_fields(slim: None) -> None:
    @dataclass(order=True)
    class Ordered:
        a: int

    assert sorted([Ordered(2), Ordered(1)]) == [Ordered(1), Ordered(2)]
    assert Ordered(1) < Ordered(2) <= Ordered(2)


def test_what_is_not_frozen_has_no_hash(slim: None) -> None:
    @dataclass
    class Open:
        a: int

    with pytest.raises(TypeError, match="unhashable"):
        hash(Open(1))


def test_it_can_be_pickled(slim: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made = dataclasses.make_dataclass("Pickled", [("a", int)], frozen=True)
    made.__module__ = __name__
    monkeypatch.setitem(globals(), "Pickled", made)
    assert pickle.loads(pickle.dumps(made(1))) == made(1)
