"""`rounds.where` says which of the devices that are there a run asks; labels may change while it goes on."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from coordinator.decide import core
from coordinator.decide.roster import Announcement
from coordinator.decide.rounds import Rounds, Rules
from coordinator.decide.state import State
from coordinator.decide.strikes import Conduct
from coordinator.decide.vocabulary import (
    Action,
    Announced,
    AnswerArrived,
    Ask,
    CoordinatorConnected,
    Event,
    LabelsRead,
    Meet,
    Merge,
    Misbehaved,
    Prepare,
    Prepared,
    PublishedModel,
    Usable,
    Woken,
)
from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.base.where import parse

RULES = Rules(rounds=3, seed=7, cohort=2, quorum=2, deadline=30.0, start_with=2)
MODEL = PublishedModel(1, 1000)
HERE = Announcement(online=True, installation="i", birth=1, samples=10, concise=True)
NORTH, SOUTH = {"site": "north"}, {"site": "south"}


def feed(s: State, *happened: Event) -> tuple[State, list[Action], list[Fact]]:
    did: list[Action] = []
    told: list[Fact] = []
    for event in happened:
        s, actions, facts = core.step(s, event)
        did += actions
        told += facts
    return s, did, told


def new(where: str, **labels: dict[str, str]) -> State:
    s = State(Rounds(RULES), Conduct(3, 60.0), where=parse(where))
    return feed(s, LabelsRead(0.0, labels))[0]


def come(device: str, at: float = 1.0, **more: object) -> Announced:
    return Announced(at, device, replace(HERE, **more))  # type: ignore[arg-type]  # fields of Announcement


def counted(device: str, round: int = 1, at: float = 15.0) -> list[Event]:
    digest = f"{device}{round}".encode().ljust(32)
    return [AnswerArrived(at, device, round, digest, 500), Usable(at, digest)]


def opened(**labels: dict[str, str]) -> State:
    """The first round asks a and b; c is there and is not meant."""
    s = new("site == 'north'", **{"a": NORTH, "b": NORTH, "c": SOUTH, **labels})
    s, _, _ = feed(s, come("a"), come("b"), come("c"), Prepared(10.0, 0, MODEL))
    assert (s.rounds.phase, set(s.rounds.asked)) == ("open", {"a", "b"})
    return s


def asked(did: list[Action]) -> set[str]:
    return {one.device for action in did if isinstance(action, Ask) for one in action.devices}


def test_a_device_that_is_not_meant_is_there_and_takes_no_part():
    s, did, told = feed(new("site == 'north'", a=SOUTH), come("a"))
    assert told == [events.Joined("a", 10), events.Excluded("a", "site is 'south'")]
    assert did == [Meet("a")], "its word is heard, and the job is not made for it"
    assert (s.rounds.present, s.fleet, s.phase) == (frozenset(), frozenset(), "idle")


def test_the_job_is_made_when_the_first_that_is_meant_comes():
    s, _, _ = feed(new("site == 'north'", a=SOUTH, b=NORTH), come("a"))
    _, did, told = feed(s, come("b"))
    assert did == [Meet("b"), Prepare()]
    assert told == [events.Joined("b", 10), events.Preparing("preparing the model")]


def test_quorum_and_cohort_are_of_those_that_are_meant():
    s, _, _ = feed(new("site == 'north'", a=NORTH, b=SOUTH, c=SOUTH), come("a"), come("b"), come("c"))
    s, did, _ = feed(s, Prepared(10.0, 0, MODEL))
    assert asked(did) == set()
    assert core.waiting(s) == "round 1 needs 2 devices, have 1; 2 more are there, and rounds.where does not mean them"
    s, _, _ = feed(s, come("b", 11.0, online=False))
    assert core.waiting(s).endswith("have 1; 1 more are there, and rounds.where does not mean them")


def test_without_where_all_are_asked_whatever_their_labels():
    s = State(Rounds(RULES), Conduct(3, 60.0))
    s, did, told = feed(s, LabelsRead(0.0, {"a": SOUTH}), come("a"), come("b"), Prepared(10.0, 0, MODEL))
    assert asked(did) == {"a", "b"}
    assert told[0] == events.Labelled({"a": SOUTH})
    assert not any(isinstance(fact, events.Excluded) for fact in told)
    assert "rounds.where" not in core.waiting(s)


def test_what_a_device_says_of_itself_counts_and_is_looked_at_again_when_it_changes():
    s, _, told = feed(new("memory_mb >= 900 and samples > 5"), come("a", memory_mb=430))
    assert told[-1] == events.Excluded("a", "memory_mb is 430, samples is 10")
    s, _, told = feed(s, come("a", 2.0, memory_mb=905))
    assert s.rounds.present == {"a"}
    assert s.excluded == {}
    s, _, told = feed(s, come("a", 3.0, memory_mb=905, samples=5))
    assert told == [
        events.Joined("a", 5, memory_mb=905),
        events.Excluded("a", "memory_mb is 905, samples is 5"),
    ]
    assert s.rounds.present == frozenset()


def test_a_device_cannot_give_itself_a_label():
    s, _, told = feed(new("site == 'north'", a=SOUTH), come("a", site="north", host="north", arch="north"))
    assert isinstance(told[-1], events.Excluded)
    assert s.rounds.present == frozenset()


def test_a_device_that_the_operator_labels_meanwhile_is_asked_from_then_on():
    s, did, _ = feed(new("site == 'north'", a=SOUTH, b=NORTH), come("a"), come("b"), Prepared(10.0, 0, MODEL))
    assert asked(did) == set()
    s, did, told = feed(s, LabelsRead(11.0, {"a": NORTH, "b": NORTH}))
    assert told[:2] == [events.Labelled({"a": NORTH}), events.Included("a")]
    assert asked(did) == {"a", "b"}
    assert (s.excluded, s.fleet) == ({}, {"a", "b"})


def test_the_first_that_is_labelled_makes_the_job():
    s, _, _ = feed(new("site == 'north'", a=SOUTH), come("a"))
    _, did, told = feed(s, LabelsRead(2.0, {"a": NORTH}))
    assert did == [Prepare()]
    assert told == [events.Labelled({"a": NORTH}), events.Included("a"), events.Preparing("preparing the model")]


def test_a_device_that_loses_its_label_at_work_still_counts_and_another_is_asked():
    s, did, told = feed(opened(), come("d", 11.0), LabelsRead(12.0, {"a": SOUTH, "b": NORTH, "d": NORTH}))
    assert events.Excluded("a", "site is 'south'") in told
    assert asked(did) == {"d"}
    s, did, _ = feed(s, *counted("a"), *counted("b"), *counted("d"))
    (merge,) = (action for action in did if isinstance(action, Merge))
    assert "a" in merge.answers
    s, _, _ = feed(s, Woken(15.0))
    assert s.rounds.present == {"b", "d"}


def test_labels_that_change_nothing_for_a_device_tell_only_the_labels():
    s, _, _ = feed(opened(), Woken(10.5))
    s, did, told = feed(s, LabelsRead(11.0, {"a": {**NORTH, "camera": "v2"}, "b": NORTH, "c": {"site": "east"}}))
    assert told == [
        events.Labelled({"a": {**NORTH, "camera": "v2"}, "c": {"site": "east"}}),
        events.Excluded("c", "site is 'east'"),
    ]
    assert did == []
    same = LabelsRead(12.0, s.labels)
    assert feed(s, same)[1:] == ([], [])


def test_labels_of_a_device_that_is_away_count_when_it_comes():
    s, _, told = feed(new("site == 'north'", a=SOUTH), LabelsRead(1.0, {"a": NORTH}))
    assert told == [events.Labelled({"a": NORTH})]
    assert feed(s, come("a"))[0].rounds.present == {"a"}


def test_a_label_that_is_taken_away_is_told_as_none():
    _, _, told = feed(opened(), LabelsRead(11.0, {"b": NORTH, "c": SOUTH}))
    assert told[:2] == [events.Labelled({"a": {}}), events.Excluded("a", "it has no 'site'")]


def test_what_the_broker_repeats_of_a_device_that_is_not_asked_is_not_told_again():
    s = opened()
    again = replace(come("c", 20.0), retained=True)
    assert feed(s, again)[1:] == ([], [])


def test_a_restarted_coordinator_asks_no_device_whose_label_went_meanwhile():
    before = opened()
    s = State(before.rounds, Conduct(3, 60.0), where=parse("site == 'north'"), resumed=True)
    s, _, _ = feed(s, LabelsRead(50.0, {"b": NORTH}), CoordinatorConnected(50.0), Prepared(51.0, 0, MODEL))
    s, did, told = feed(s, come("a", 52.0), come("b", 52.0))
    assert asked(did) == {"b"}
    assert events.Excluded("a", "it has no 'site'") in told
    assert "a" not in s.rounds.present


def test_a_device_in_quarantine_is_asked_after_it_if_it_is_meant_then():
    bad: list[Event] = [Misbehaved(11.0, "a", "update.norm", "too long") for _ in range(3)]
    s, _, _ = feed(opened(), *bad)
    s, _, told = feed(s, LabelsRead(12.0, {"a": SOUTH, "b": NORTH, "c": SOUTH}))
    assert events.Excluded("a", "site is 'south'") in told
    s, _, _ = feed(s, LabelsRead(13.0, {"a": NORTH, "b": NORTH, "c": SOUTH}))
    assert "a" not in s.rounds.present
    s, _, _ = feed(s, Woken(80.0))
    assert "a" in s.rounds.present


def test_a_call_to_all_is_counted_by_those_that_hear_it():
    """Two are asked: alone they get one call, among five that only hear it each gets a task of its own."""
    for bystanders, together in ((2, True), (3, False)):
        names = [f"x{number}" for number in range(bystanders)]
        s = new("site == 'north'", a=NORTH, b=NORTH)
        s, did, _ = feed(s, come("a"), come("b"), *(come(name) for name in names), Prepared(10.0, 0, MODEL))
        (ask,) = (action for action in did if isinstance(action, Ask))
        assert (ask.together, ask.bystanders) == (together, bystanders if together else 0)


labels = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([NORTH, SOUTH, {}]))
happenings = st.lists(
    st.one_of(
        labels.map(lambda given: LabelsRead(20.0, given)),
        st.builds(come, st.sampled_from("abcd"), st.just(20.0), online=st.booleans(), samples=st.integers(0, 20)),
    ),
    max_size=20,
)


@given(happenings)
def test_whatever_happens_rounds_know_exactly_the_devices_that_are_there_and_meant(events_):
    where = parse("site == 'north' and samples >= 10")
    s = State(Rounds(replace(RULES, start_with=4, cohort=4)), Conduct(3, 60.0), where=where)
    s, _, _ = feed(s, *events_)
    s, _, _ = feed(s, Woken(200.0))
    there = {id for id, device in s.devices.items() if device.online}
    meant = {id for id in there if s.labels.get(id) == NORTH and s.devices[id].announced.samples >= 10}
    assert s.rounds.present == meant
    assert {id for id in s.excluded if id in there} == there - meant
