"""A picture of a run, from what is told and from nothing else."""

from coordinator.watching import Doing, Picture, fold
from edgefl import events
from edgefl.events import Fact


def told(*facts: Fact, now: float = 0.0) -> Picture:
    picture = Picture()
    for fact in facts:
        picture = fold(picture, fact, now)
    return picture


ASKED = events.Joined("a", 10), events.Joined("b", 20), events.Asked(3, 4, ("a", "b"), 2000)


def test_a_device_is_followed_from_its_coming_to_its_answer():
    doing = []
    for count, more in enumerate(
        [events.Progressed("a", 3, 7), events.Sending("a"), events.Answered("a", 3, 500, seconds_per_step=0.1)], 1
    ):
        picture = told(*ASKED, *[events.Progressed("a", 3, 7), events.Sending("a"), more][:count])
        doing.append(picture.devices["a"].doing)
    assert doing == [Doing.TRAINING, Doing.SENDING, Doing.ANSWERED]
    device = picture.devices["a"]
    assert (device.samples, device.steps, device.bytes_up, device.seconds_per_step) == (10, 7, 500, 0.1)
    assert (picture.answered, picture.awaited) == ({"a"}, {"b"})
    assert (picture.round, picture.bytes_up, picture.bytes_down) == (3, 500, 2000)


def test_why_somebody_does_not_answer_is_kept():
    picture = told(*ASKED, events.Declined("a", 3, "too warm"), events.Busy("b", 3, "at work"))
    assert (picture.devices["a"].doing, picture.devices["a"].why) == (Doing.DECLINED, "too warm")
    assert (picture.devices["b"].doing, picture.devices["b"].why) == (Doing.BUSY, "at work")
    assert picture.awaited == {"b"}
    picture = told(*ASKED, events.Answered("a", 3, 500, "refused", "too long"))
    assert (picture.devices["a"].doing, picture.devices["a"].why) == (Doing.REFUSED, "too long")


def test_whoever_is_gone_is_gone_since_it_was_first_told():
    picture = fold(told(*ASKED), events.Lost("a"), 5.0)
    picture = fold(picture, events.Lost("a"), 9.0)
    assert (picture.devices["a"].gone, picture.devices["a"].live) == (5.0, True)
    assert not told(events.Lost("ghost")).devices["ghost"].live, "only the broker remembers it"


def test_a_round_that_is_over_is_nobodys_work_any_more():
    picture = told(*ASKED, events.Answered("a", 3, 500), events.Closed(3, ("a",), ("b",)), events.Round(3))
    assert (picture.asked, picture.awaited, picture.round) == (frozenset(), frozenset(), 4)
    assert picture.devices["a"].doing is Doing.IDLE
    assert picture.devices["b"].doing is Doing.ASKED, "it may still be at it"


def test_quarantine_is_seen_until_it_is_over():
    bad = events.Quarantined("a", "too much"), events.Quarantined("-", "nobody")
    picture = told(*ASKED, *bad)
    assert picture.devices["a"].doing is Doing.QUARANTINED
    assert set(picture.devices) == {"a", "b"}
    assert told(*ASKED, *bad, events.Released("a")).devices["a"].doing is Doing.IDLE


def test_a_run_that_has_ended_waits_for_nobody():
    open_round = events.Waiting("round 3: 1 of 2 answered; waiting for b")
    closed = told(*ASKED, open_round, events.Closed(3, ("a", "b")))
    assert closed.waiting == "round 3: merging 2 answers"
    assert fold(closed, events.Done("run", "fedavg", 3), 0.0).waiting == "finished after 3 rounds"
    done = events.Done("run", "fedavg", 3, model_sha256="0123456789abcdef" * 4)
    assert fold(closed, done, 0.0).waiting == "finished after 3 rounds, model 0123456789abcdef"
