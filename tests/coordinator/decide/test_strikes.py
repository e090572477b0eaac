"""Who sends too much that cannot be used is not heard for a while."""

import pytest

from coordinator.decide import strikes
from coordinator.decide.strikes import Conduct


def struck(known: Conduct, device: str, *times: float) -> tuple[Conduct, list[bool]]:
    """After strikes at these times; which of them meant quarantine."""
    meant = []
    for now in times:
        known, quarantined = known.struck(device, now)
        meant.append(quarantined)
    return known, meant


def test_the_third_strike_means_quarantine_for_a_while():
    known, meant = struck(Conduct(3, 60.0), "pi", 1.0, 2.0, 3.0)
    assert meant == [False, False, True]
    assert known.quarantined("pi", 62.9)
    assert known.deadline() == 63.0
    assert known.released(62.9) == (known, ())
    known, free = known.released(63.0)
    assert free == ("pi",)
    assert known.released(63.0)[1] == (), "it is told once"
    assert not known.quarantined("pi", 63.0)
    assert known.deadline() is None


def test_old_strikes_are_forgiven():
    assert not any(struck(Conduct(3, 60.0), "pi", 0.0, 50.0, 111.0, 160.0, 222.0)[1])


def test_strikes_in_quarantine_do_not_make_it_longer():
    known, meant = struck(Conduct(1, 60.0), "pi", 0.0, 30.0)
    assert meant == [True, False]
    assert not known.quarantined("pi", 60.0)


def test_one_device_does_not_answer_for_another():
    known, _ = struck(Conduct(1, 60.0), "pi", 0.0)
    assert not known.quarantined("other", 0.0)


def test_names_without_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(strikes, "RECORDS", 5)
    known, _ = struck(Conduct(2, 60.0), "pi", 0.0, 0.0)
    for i in range(50):
        known, _ = known.struck(f"ghost-{i}", 1.0)
    assert len(known.strikes) == 5
    assert known.quarantined("pi", 1.0), "who is in quarantine is not forgotten for it"
    for i in range(50):
        known, _ = known.struck(f"ghost-{i}", 1.0)
        known, _ = known.struck(f"ghost-{i}", 1.0)
    assert (len(known.strikes) <= 5, len(known.until)) == (True, 5), "however many are in quarantine"
