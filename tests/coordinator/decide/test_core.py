"""What the coordinator decides, told event by event."""

from dataclasses import replace

import pytest

from coordinator.decide import core
from coordinator.decide.devices import CONTENT, LACKING, PATIENCE
from coordinator.decide.roster import Announcement
from coordinator.decide.rounds import DeviceDeclined, Rounds, Rules
from coordinator.decide.state import State, recalling
from coordinator.decide.strikes import Conduct
from coordinator.decide.vocabulary import (
    Accept,
    AcceptLate,
    Action,
    Announced,
    AnswerArrived,
    AnswerId,
    Ask,
    CertificateSigned,
    Certify,
    ClearLeftovers,
    ClearModels,
    Confirm,
    CoordinatorConnected,
    CoordinatorDisconnected,
    Dismiss,
    DropAnswers,
    Event,
    Expiring,
    Ignore,
    Invitee,
    Leave,
    Listen,
    ListenAgain,
    Meet,
    MembersRead,
    Merge,
    Merged,
    Misbehaved,
    Offered,
    Open,
    Prepare,
    Prepared,
    ProgressReported,
    Publish,
    PublishAgain,
    PublishedModel,
    Recalled,
    Refuse,
    ReportsCompleted,
    RequestMissing,
    Revoked,
    RunFailed,
    SayState,
    Searched,
    SendCertificate,
    SiteBack,
    SiteLost,
    Stop,
    Tell,
    Totals,
    TurnAway,
    Unreadable,
    Unusable,
    Usable,
    Woken,
    WorkPaused,
)
from edgefl.base import events
from edgefl.base.events import Fact

RULES = Rules(rounds=3, seed=7, cohort=2, quorum=2, deadline=30.0, start_with=2)
HERE = Announcement(online=True, installation="i", birth=1, samples=10, host="h", version="1", back_end="onnx")
MODEL = PublishedModel(1, 1000)


def feed(s: State, *happened: Event) -> tuple[State, list[Action], list[Fact]]:
    did: list[Action] = []
    told: list[Fact] = []
    for event in happened:
        s, actions, facts = core.step(s, event)
        did += actions
        told += facts
    return s, did, told


def new(rules: Rules = RULES, **more: object) -> State:
    return State(Rounds(rules), Conduct(3, 60.0), **more)  # type: ignore[arg-type]  # fields of State


def joined(*devices: str, at: float = 0.0) -> list[Event]:
    return [Announced(at, device, HERE) for device in devices]


def opened(rules: Rules = RULES, *devices: str, **more: object) -> State:
    """The first round, open since second 10."""
    s, _, _ = feed(new(rules, **more), *joined(*(devices or ("a", "b"))), Prepared(10.0, 0, MODEL))
    assert s.rounds.phase == "open"
    return s


def answer(device: str, round: int = 1, at: float = 15.0, **more: object) -> AnswerArrived:
    return AnswerArrived(at, device, round, digest(device, round), 500, 4, 0.25, **more)  # type: ignore[arg-type]


def digest(device: str, round: int = 1) -> bytes:
    return f"{device}{round}".encode().ljust(32)


def counted(device: str, round: int = 1, at: float = 15.0) -> list[Event]:
    return [answer(device, round, at), Usable(at, digest(device, round))]


def merged(rules: Rules = RULES) -> State:
    """Round 1 is merged, round 2 is open since second 20."""
    s, _, _ = feed(opened(rules), *counted("a"), *counted("b"), Merged(20.0, 1, PublishedModel(2, 1000)))
    assert (s.rounds.round, s.rounds.phase) == (2, "open")
    return s


# ── the job ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_device_makes_the_coordinator_prepare_the_job():
    s, did, told = feed(new(), *joined("a"))
    assert did == [Meet("a"), Prepare()]
    assert told == [events.Joined("a", 10, "h", "1", "onnx"), events.Preparing("preparing the model")]
    assert core.waiting(s) == "preparing the model"


def test_nobody_is_asked_before_the_model_is_there_and_the_time_of_the_round_begins_then():
    s, did, told = feed(new(), *joined("a", "b"))
    assert s.rounds.phase == "open"
    assert not any(isinstance(action, Ask) for action in did)
    assert s.timer_due is None
    s, did, told = feed(s, Prepared(10.0, 0, MODEL))
    order = s.rounds.asked
    invitees = tuple(Invitee(device, "i", 0, None) for device in order)
    assert did == [Publish(), SayState("training", 1, 2), Ask(1, 1, invitees)]
    assert told == [events.Asked(1, 1, order, 2000)]
    assert s.timer_due == 40.0


def states(did: list[Action]) -> list[SayState]:
    return [action for action in did if isinstance(action, SayState)]


def test_the_next_round_is_not_told_to_all_where_nobody_works_for_the_last():
    _, did, _ = feed(opened(), *counted("a"), *counted("b"), Merged(20.0, 1, PublishedModel(2, 1000)))
    assert states(did) == []


def test_who_may_still_work_for_a_round_that_is_over_hears_of_the_next_and_once():
    rules = replace(RULES, quorum=1, cohort=2)
    s, did, _ = feed(opened(rules), *counted("a"), Woken(50.0), Merged(51.0, 1, PublishedModel(2, 1000)))
    assert states(did) == [SayState("training", 2, 2)]
    _, did, _ = feed(s, *counted("a", 2), *counted("b", 2), Merged(60.0, 2, PublishedModel(3, 1000)))
    assert states(did) == []


def test_one_that_was_lost_on_the_way_reads_of_the_next_round_when_it_is_back():
    rules = replace(RULES, quorum=1, cohort=2)
    lost = Announced(12.0, "b", replace(HERE, online=False))
    _, did, _ = feed(opened(rules), lost, *counted("a"), Woken(50.0), Merged(51.0, 1, PublishedModel(2, 1000)))
    assert states(did) == [SayState("training", 2, 2)]


def test_a_fleet_that_has_grown_and_a_new_connection_are_reasons_to_tell_it():
    _, did, _ = feed(opened(), *counted("a"), *counted("b"), *joined("c"), Merged(20.0, 1, PublishedModel(2, 1000)))
    assert states(did) == [SayState("training", 2, 3)]
    s, _, _ = feed(opened(), CoordinatorConnected(12.0))
    _, did, _ = feed(s, *counted("a"), *counted("b"), Merged(20.0, 1, PublishedModel(2, 1000)))
    assert states(did) == [SayState("training", 2, 2)]


def test_a_device_is_handed_the_model_of_a_round_once():
    rules = replace(RULES, quorum=2, cohort=2)
    s, did, _ = feed(opened(rules), Announced(12.0, "b", replace(HERE, online=False)))
    _, did, _ = feed(s, Announced(13.0, "b", replace(HERE, birth=2)))
    (ask,) = [action for action in did if isinstance(action, Ask)]
    assert [(one.device, one.has_model) for one in ask.devices] == [("b", True)]


def test_who_left_while_the_model_was_made_is_not_asked():
    away = replace(HERE, online=False)
    rules = replace(RULES, quorum=1, start_with=2)
    s, _, _ = feed(new(rules), *joined("a", "b"), Announced(1.0, "b", away), Prepared(10.0, 0, MODEL))
    assert [one.asked for one in (s.devices["a"], s.devices["b"])] == [(1, 1), (0, 0)]


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_is_opened_only_if_it_can_count_and_then_gets_its_verdict():
    s, did, told = feed(opened(), answer("a"))
    assert (did, told) == ([Open("a", digest("a"))], [])
    s, did, told = feed(s, Usable(15.0, digest("a")))
    assert did == [Accept("a", 1, digest("a")), Confirm("a", 1, digest("a"))]
    assert told == [events.Answered("a", 1, 500, steps=4, took=5.0, seconds_per_step=0.25)]
    assert s.answers == {"a": AnswerId(1, digest("a"))}
    assert s.devices["a"].seconds_per_step == 0.25


@pytest.mark.parametrize(
    ("event", "reason"),
    [(answer("a"), "duplicate"), (answer("c"), "not invited"), (answer("b", 5), "future")],
)
def test_an_answer_that_cannot_count_is_not_opened(event, reason):
    s, _, _ = feed(opened(), *counted("a"))
    after, did, told = feed(s, event)
    assert did == [Ignore(event.device, event.round, event.digest, reason)]
    assert (told[0].verdict, told[0].reason) == ("ignored", reason)
    assert after.rounds == s.rounds


def test_an_answer_that_cannot_be_used_is_refused_held_against_its_device_and_not_waited_for():
    s, did, told = feed(opened(RULES, "a", "b"), answer("a"), Unusable(15.0, digest("a"), "update.norm", "too long"))
    assert did == [Open("a", digest("a")), Refuse("a", 1, digest("a"), "too long")]
    assert [type(fact) for fact in told] == [events.Answered, events.Refused]
    assert told[0].verdict == "refused"
    assert s.rounds.declined == {"a"}
    assert s.refusals == {"update.norm": 1}


def test_an_answer_of_another_run_is_refused():
    s, did, told = feed(opened(), answer("a", foreign="it is of job 'x'"))
    assert did == [Refuse("a", 1, digest("a"), "of another run")]
    assert told[1] == events.Refused("a", "update.foreign", "it is of job 'x'")
    assert s.opened == {}


def test_an_answer_before_there_is_a_job_is_refused():
    _, did, told = feed(new(), *joined("a"), answer("a"))
    assert did[-1] == Refuse("a", 1, digest("a"), "no round has been opened yet")
    assert told[-1].code == "update.early"


def test_a_late_answer_is_kept_where_the_run_wants_it_and_counted_either_way():
    for late, verdict in (("drop", Ignore), ("discount", AcceptLate)):
        rules = replace(RULES, cohort=3, quorum=2, start_with=3, late=late)
        s = opened(rules, "a", "b", "c")
        s, _, _ = feed(s, *counted("a"), *counted("b"), Woken(40.0))
        assert s.rounds.phase == "merging"
        s, did, told = feed(s, answer("c", at=41.0))
        if late == "discount":
            s, did, told = feed(s, Usable(41.0, digest("c")))
            assert s.late == {"c": AnswerId(1, digest("c"))}
        assert [type(action) for action in did] == [verdict]
        assert [fact.verdict for fact in told] == ["late"]
        assert s.since_merge == Totals(bytes_up=500, late=1)


def test_whoever_holds_an_answer_is_told_to_send_it_or_to_forget_it():
    s, did, _ = feed(opened(), Offered(11.0, "a", 1, digest("a"), 500))
    assert did == [RequestMissing("a", digest("a"), 500)]
    s, _, _ = feed(s, *counted("a"))
    _, did, told = feed(s, Offered(16.0, "a", 1, digest("a"), 500), Offered(16.0, "b", 1, digest("b"), 5, ours=False))
    assert did == [Ignore("a", 1, digest("a"), "duplicate"), Refuse("b", 1, digest("b"), "of another run")]
    assert [(fact.device, fact.code) for fact in told] == [("-", "update.foreign")], "perhaps it was said before"


# ── receipts ─────────────────────────────────────────────────────────────────────────────────────────────────

CONCISE = replace(HERE, concise=True)


def concise(rules: Rules = RULES, *devices: str) -> State:
    """The first round, open since second 10, of devices that need no receipt which their next task implies."""
    here = [Announced(0.0, device, CONCISE) for device in devices or ("a", "b")]
    return feed(new(rules), *here, Prepared(10.0, 0, MODEL))[0]


def confirmed(did: list[Action]) -> list[Confirm]:
    return [action for action in did if isinstance(action, Confirm)]


def test_a_receipt_waits_for_the_task_that_says_the_same():
    s, did, _ = feed(concise(), *counted("a"), *counted("b"), Merged(15.1, 1, PublishedModel(2, 1000)))
    assert confirmed(did) == []
    asks = [action for action in did if isinstance(action, Ask)]
    assert [one.counted for one in asks[-1].devices] == [1, 1]
    assert (s.unconfirmed, s.confirm_due) == ({}, None)


def test_but_not_for_long():
    s, did, _ = feed(concise(), *counted("a"))
    assert (confirmed(did), s.confirm_due) == ([], 15.5)
    assert core.deadline(s) <= 15.5
    s, did, _ = feed(s, Woken(15.4), Woken(15.5))
    assert confirmed(did) == [Confirm("a", 1, digest("a"))]
    assert (s.unconfirmed, s.confirm_due) == ({}, None)


def test_whoever_is_not_asked_again_gets_a_receipt():
    rules = replace(RULES, quorum=1, start_with=2, cohort=2)
    s, _, _ = feed(concise(rules), *counted("a"), *counted("b"), Announced(15.0, "b", replace(CONCISE, online=False)))
    s, did, _ = feed(s, Merged(15.1, 1, PublishedModel(2, 1000)))
    assert list(s.unconfirmed) == ["b"]
    _, did, _ = feed(s, Woken(15.6))
    assert confirmed(did) == [Confirm("b", 1, digest("b"))]


def test_whoever_is_asked_again_before_his_answer_is_merged_gets_his_receipt_first():
    s, _, _ = feed(concise(), *counted("a"))
    gone = replace(s, rounds=replace(s.rounds, answered=frozenset()))  # its answer was dropped: an abandoned round
    _, did, _ = feed(gone, Announced(15.2, "a", replace(CONCISE, birth=2)))
    kinds = [type(action) for action in did if isinstance(action, Confirm | Ask)]
    assert kinds == [Confirm, Ask]


def test_the_last_round_is_receipted_at_once_and_an_end_leaves_nobody_without():
    _, did, _ = feed(concise(replace(RULES, rounds=1)), *counted("a"))
    assert confirmed(did) == [Confirm("a", 1, digest("a"))]
    s, _, _ = feed(concise(), *counted("a"))
    for end in (Stop(15.1), RunFailed(15.1)):
        assert confirmed(feed(s, end)[1]) == [Confirm("a", 1, digest("a"))]
    early = Merged(15.1, 1, None, done=True)
    assert len(confirmed(feed(s, *counted("b"), early)[1])) == 2


def test_after_a_restart_everybody_is_told_what_was_promised():
    s, _, _ = feed(concise(), *counted("a"))
    again = State(s.rounds, s.conduct, resumed=True)
    again, _, _ = feed(again, CoordinatorConnected(20.0))
    again, did, _ = feed(again, Prepared(21.0, 0, MODEL, recalled=Recalled(answers=s.answers)), Woken(21.0))
    assert confirmed(did) == [Confirm("a", 1, digest("a"))]


# ── one call for all ─────────────────────────────────────────────────────────────────────────────────────────


def asked(did: list[Action]) -> list[tuple[tuple[str, ...], bool, int]]:
    each = [action for action in did if isinstance(action, Ask)]
    return [(tuple(sorted(one.device for one in ask.devices)), ask.together, ask.bystanders) for ask in each]


def joined_and_asked(*devices: str, rules: Rules = RULES, here: Announcement = CONCISE) -> list[Action]:
    return feed(new(rules), *(Announced(0.0, one, here) for one in devices), Prepared(10.0, 0, MODEL))[1]


def test_devices_of_a_round_are_asked_together():
    assert asked(joined_and_asked("a", "b")) == [(("a", "b"), True, 0)]


def test_but_not_where_one_of_them_would_not_hear_it():
    assert asked(joined_and_asked("a", "b", here=HERE)) == [(("a", "b"), False, 0)]


@pytest.mark.parametrize(("there", "together"), [(4, True), (5, False)])
def test_nor_where_most_would_hear_it_in_vain(there, together):
    names = "abcdefg"[:there]
    rules = replace(RULES, start_with=there)
    (_, told, bystanders), *_ = asked(joined_and_asked(*names, rules=rules))
    assert (told, bystanders) == (together, 2 if together else 0)


def test_nor_where_each_would_hear_the_slots_of_hundreds():
    for size, together in ((256, True), (257, False)):
        rules = replace(RULES, cohort=size, quorum=size, start_with=size)
        (_, told, _), *_ = asked(joined_and_asked(*(f"d{number}" for number in range(size)), rules=rules))
        assert told is together


def test_whoever_does_not_answer_a_call_is_asked_alone():
    _, did, _ = feed(concise(), Woken(40.0))
    assert asked(did) == [(("a", "b"), False, 0)]
    _, did, _ = feed(concise(), Announced(12.0, "b", replace(CONCISE, birth=2)))
    assert asked(did) == [(("b",), False, 0)]


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_merge_names_answers_and_what_the_round_cost():
    s, did, told = feed(opened(), *counted("a", at=12.0), *counted("b", at=14.0))
    kept = {device: AnswerId(1, digest(device)) for device in ("a", "b")}
    spent = Totals(bytes_up=1000, bytes_down=2000)
    assert did[-1] == Merge(1, kept, {}, 2, spent, spent, since=0.0, waited=10.0)
    assert told[-1] == events.Closed(1, ("a", "b"))
    assert (s.since_merge, s.total, s.answers) == (Totals(), spent, {})


def test_a_round_begins_at_the_merge_before_it_and_waits_until_it_is_opened():
    s = merged()
    assert s.since == 20.0
    assert s.waited == (2, 0.0)


def test_a_model_is_fetched_once_by_each_device_and_two_by_one_that_missed_the_last():
    looks_back = replace(RULES, rounds=9, cohort=3, quorum=1, start_with=3)
    s = opened(looks_back, "a", "b", "c")
    again = Announced(16.0, "c", replace(HERE, birth=2))
    s, _, told = feed(s, again)
    assert told[-1] == events.Asked(1, 1, ("c",), 0), "it has the model"
    away = Announced(16.0, "c", replace(HERE, online=False, birth=2))
    s, _, _ = feed(s, away, *counted("a"), *counted("b"))
    s, _, told = feed(s, Merged(20.0, 1, PublishedModel(2, 1000, previous=900)))
    assert told[-1].bytes_down == 2 * 1000, "they have the one before it"
    s, _, _ = feed(s, *counted("a", 2), *counted("b", 2), Merged(30.0, 2, PublishedModel(3, 1000, previous=900)))
    s, _, told = feed(s, Announced(31.0, "c", replace(HERE, birth=3)))
    assert told[-1] == events.Asked(3, 3, ("c",), 1900)


def test_what_is_abandoned_is_forgotten():
    rules = replace(RULES, attempts=0)
    s, did, told = feed(opened(rules), *counted("a"), Woken(40.0))
    assert DropAnswers((digest("a"),)) in did
    assert events.Abandoned(1, "1 of 2 answered, quorum is 2") in told
    assert s.answers == {}


def test_a_deadline_with_too_few_is_told_with_who_is_missing():
    _, _, told = feed(opened(), *counted("a"), Woken(40.0))
    assert events.Extended(1, ("b",)) in told


def test_who_declined_and_why_is_told():
    _, _, told = feed(opened(), DeviceDeclined("a", 1, 12.0, "too warm"))
    assert told == [events.Declined("a", 1, "too warm")]


# ── devices ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_one_of_the_same_name_is_turned_away_while_the_first_is_live():
    other = replace(HERE, installation="other", host="elsewhere")
    s, _, _ = feed(new(), *joined("a"))
    s, did, told = feed(s, Announced(1.0, "a", other))
    assert isinstance(did[0], TurnAway)
    assert (did[0].code, did[0].installation) == ("device.duplicate", "other")
    assert "is already connected from host 'h'" in told[0].reason
    assert s.devices["a"].announced == HERE


def test_one_that_is_only_remembered_by_the_broker_can_be_replaced():
    other = replace(HERE, installation="other")
    s, _, _ = feed(new(), Announced(0.0, "a", HERE, retained=True), Announced(1.0, "a", other))
    assert s.devices["a"].announced == other


def test_a_frame_that_cannot_be_read_is_refused_by_its_digest_and_is_a_strike():
    _, did, told = feed(opened(), Misbehaved(11.0, "a", "wire.malformed", "nonsense", b"digest"))
    assert did == [Refuse("a", 1, b"digest", "nonsense")]
    assert told == [events.Refused("a", "wire.malformed", "nonsense")]


def test_the_third_strike_is_told_ends_the_part_of_a_device_and_is_over_after_a_while():
    bad = [Misbehaved(at, "a", "wire.malformed", "nonsense") for at in (11.0, 12.0, 13.0, 14.0)]
    s, did, told = feed(opened(), *bad)
    assert [type(fact) for fact in told[:4]] == [events.Refused] * 3 + [events.Quarantined]
    assert len(told) == 4, "in quarantine it is only counted"
    assert did[0] == TurnAway("a", "device.quarantined", told[3].reason)
    assert s.rounds.present == {"b"}
    assert s.refusals == {"wire.malformed": 4}
    assert core.deadline(replace(s, timer_due=None, look_due=None)) == 73.0
    s, did, told = feed(s, Woken(73.0))
    assert events.Released("a") in told
    assert "a" in s.rounds.present


def test_all_without_a_name_are_one_and_not_answered():
    bad = [Misbehaved(at, "-", "device.name", "no name") for at in (1.0, 2.0, 3.0)]
    _, did, told = feed(new(), *bad)
    assert did == []
    assert isinstance(told[-1], events.Quarantined)


def test_devices_from_before_a_connection_must_be_heard_of():
    s, did, _ = feed(opened(), CoordinatorConnected(50.0))
    assert did == [Listen(), SayState("training", 1, 2), PublishAgain()]
    s, _, _ = feed(s, Announced(51.0, "a", HERE))
    s, _, told = feed(s, Woken(50.0 + PATIENCE + 1))
    assert events.Lost("b", "no message from it since the coordinator connected") in told
    assert s.rounds.present == {"a"}


# ── restarts ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_that_was_not_heard_of_since_the_connection_can_be_replaced():
    """Its board may have burnt while nobody was connected: no last will came, and none ever will."""
    s = feed(opened(), CoordinatorConnected(50.0), Announced(51.0, "b", HERE), Woken(50.0 + PATIENCE + 1))[0]
    another = replace(HERE, installation="another")
    s, did, told = feed(s, Announced(90.0, "a", another))
    assert isinstance(told[0], events.Joined)
    assert not [action for action in did if isinstance(action, TurnAway)]


def resumed(rounds: Rounds) -> State:
    s, did, told = feed(State(rounds, Conduct(3, 60.0), resumed=True, fleet=rounds.present), CoordinatorConnected(0.0))
    assert did[-1] == Prepare()
    assert told[1:] == [events.Resumed(rounds.round), events.Preparing("preparing the model")]
    assert recalling(s)
    return s


def test_an_open_round_is_gone_on_with_from_what_was_promised():
    before = opened().rounds
    before = replace(before, answered=frozenset("a"))
    recalled = Recalled(answers={"a": AnswerId(1, digest("a"))}, total=Totals(bytes_up=7))
    s, did, _ = feed(resumed(before), Prepared(5.0, 0, MODEL, recalled=recalled, told=(events.Round(9),)))
    assert did[:2] == [Tell((events.Round(9),)), Publish()]
    assert not recalling(s)
    s, did, _ = feed(s, Announced(6.0, "b", HERE))
    assert isinstance(did[-1], Ask)
    s, did, _ = feed(s, *counted("b"))
    assert did[-1].answers == {device: AnswerId(1, digest(device)) for device in "ab"}
    assert did[-1].total.bytes_up == 7 + 500


def test_a_round_that_was_being_merged_is_merged_again_with_what_closed_it():
    before, _, _ = feed(opened(), *counted("a"), *counted("b"))
    kept = {device: AnswerId(1, digest(device)) for device in "ab"}
    later = {"c": AnswerId(1, digest("c"))}
    recalled = Recalled(answers=kept, later=later, population=17)
    s, did, told = feed(resumed(before.rounds), Prepared(5.0, 0, MODEL, recalled=recalled))
    merge = did[-1]
    assert (merge.answers, merge.late, merge.population) == (kept, {}, 17)
    assert s.late == later
    assert not any(isinstance(fact, events.Closed) for fact in told), "that was told before"


def test_a_round_that_was_merged_and_not_written_down_is_not_merged_again():
    before, _, _ = feed(opened(), *counted("a"), *counted("b"))
    s, did, told = feed(resumed(before.rounds), Prepared(5.0, 1, PublishedModel(2, 1000), told=(events.Round(1),)))
    assert (s.rounds.round, s.rounds.phase) == (2, "open")
    assert not any(isinstance(action, Merge) for action in did)
    assert told[0] == events.Round(1)


def test_the_first_round_needs_no_job_to_be_gone_on_with():
    s, did, _ = feed(State(Rounds(RULES), Conduct(3, 60.0), resumed=True), CoordinatorConnected(0.0))
    assert Prepare() not in did
    assert not s.resumed


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────


def last(**more: object) -> State:
    s = opened(replace(RULES, rounds=1), **more)
    return feed(s, *counted("a"), *counted("b"))[0]


def test_at_the_end_the_broker_is_left_tidy_and_only_then_it_is_over():
    s, did, told = feed(last(), Merged(20.0, 1, None, True, (events.Round(1),)))
    assert did == [SayState("finished", 1, 2), ClearModels()]
    assert told == [events.Round(1)]
    s, did, _ = feed(s, Searched(21.0))
    assert did == [ClearLeftovers(), SayState("finished", 1, 2)]  # once more, because nobody says it later
    s, did, _ = feed(s, Woken(21.0))
    assert did == []
    assert core.deadline(s) == 21.05
    s, did, _ = feed(s, Woken(22.0, flushed=True))
    assert did == [Leave(True, Totals(bytes_up=1000, bytes_down=2000), {}, 22.0)]
    assert (s.phase, core.deadline(s)) == ("ended", None)


def test_a_broker_that_does_not_answer_is_not_waited_for():
    s, _, _ = feed(last(), Merged(20.0, 1, None, True))
    s, did, _ = feed(s, Woken(25.0))
    assert did == [ClearLeftovers(), SayState("finished", 1, 2)]
    _, did, _ = feed(s, Woken(26.0), Woken(30.0))
    assert isinstance(did[-1], Leave)


def test_reports_that_are_still_made_are_waited_for():
    s, _, _ = feed(last(looks=True), Merged(20.0, 1, None, True))
    assert s.phase == "running"
    s, _, told = feed(s, ReportsCompleted(25.0, (events.Round(1),)))
    assert (s.phase, told) == ("clearing", [events.Round(1)])


def test_when_it_is_over_devices_are_not_listened_to_any_more():
    s, _, _ = feed(last(), Merged(20.0, 1, None, True))
    away = Announced(21.0, "a", replace(HERE, online=False))
    assert feed(s, away, answer("b"), Misbehaved(21.0, "a", "x", "y"), *joined("c"))[1:] == ([], [])


@pytest.mark.parametrize("event", [Stop(20.0), RunFailed(20.0)])
def test_whoever_stops_says_that_it_will_be_back(event):
    s, did, _ = feed(opened(), event)
    assert did == [SayState("gathering", 1, 2), ClearModels()]
    _, did, _ = feed(s, Woken(20.0, flushed=True))
    assert did == [Leave(False, Totals(bytes_down=2000), {}, 20.0)]


def test_why_it_waits_is_told_when_it_changes_and_again_when_it_lasts():
    s, _, told = feed(new(), Woken(0.0), *joined("a", at=1.0), Woken(1.3))
    reasons = [(fact.reason, fact.lasts) for fact in told if isinstance(fact, events.Waiting)]
    assert reasons == [("round 1 needs 2 devices, have 0", False), ("preparing the model", False)]
    _, _, told = feed(s, Woken(10.0), Woken(16.4), Woken(40.0))
    assert told == [events.Waiting("preparing the model", lasts=True)]


def test_a_broker_that_is_away_is_what_it_waits_for():
    before = core.waiting(opened())
    s, _, told = feed(opened(), CoordinatorDisconnected(11.0, "connection lost"), Woken(11.3))
    away = "the broker is away (connection lost)"
    assert told == [events.Disconnected("connection lost"), events.Waiting(away)]
    s, _, told = feed(s, CoordinatorConnected(12.0), Woken(12.3))
    assert core.waiting(s) == before
    assert told[-1] == events.Waiting(before)


def test_a_pause_is_told_once_and_seen_until_it_is_over():
    s, _, told = feed(opened(), WorkPaused(11.0, "full"), WorkPaused(12.0, "full"))
    assert told == [events.Paused("full")]
    assert core.waiting(s) == "paused: full"
    s, _, _ = feed(s, WorkPaused(13.0, ""))
    assert not core.waiting(s).startswith("paused")


# ---- what the broker lost --------------------------------------------------------------------------------------------


def test_while_devices_are_waited_for_the_broker_is_asked_again_who_is_there():
    s, _, _ = feed(new(), CoordinatorConnected(0.0), Woken(0.0), Woken(20.0))
    assert core.deadline(s) == LACKING
    s, did, told = feed(s, Woken(LACKING))
    assert (did, told) == ([ListenAgain()], [])
    assert core.deadline(s) == 2 * LACKING
    s, _, _ = feed(s, CoordinatorDisconnected(70.0, "gone"), Woken(71.0), Woken(90.0))
    assert core.deadline(s) is None, "a broker that is away is asked when it is back"


def test_a_round_that_is_open_asks_seldom_and_at_a_deadline_that_nobody_met():
    s, _, _ = feed(new(), CoordinatorConnected(0.0), *joined("a", "b"), Prepared(1.0, 0, MODEL))
    assert s.rounds.phase == "open"
    s, did, _ = feed(s, Woken(30.0))
    assert ListenAgain() not in did
    s, did, _ = feed(s, Woken(31.0))
    assert ListenAgain() in did, "whoever is silent may have left without a word"
    s, _, _ = feed(s, *counted("a"), *counted("b"))
    assert (s.rounds.phase, s.timer_due) == ("merging", None)
    assert ListenAgain() not in feed(s, Woken(30.0 + CONTENT))[1]
    assert ListenAgain() in feed(s, Woken(31.0 + CONTENT))[1]


def test_what_the_broker_says_again_is_no_news():
    s, _, _ = feed(new(), CoordinatorConnected(0.0), *joined("a"))
    again = Announced(1.0, "a", HERE, retained=True)
    assert feed(s, again)[1:] == ([], [])
    assert feed(s, replace(again, announcement=replace(HERE, online=False)))[2] == [events.Lost("a", "")]


def test_a_coordinator_that_connects_again_asks_everybody_again():
    s, _, _ = feed(
        new(), CoordinatorConnected(0.0), *joined("a", "b"), Prepared(1.0, 0, MODEL), CoordinatorConnected(5.0)
    )
    _, did, _ = feed(s, Announced(5.0, "a", HERE, retained=True))
    assert any(isinstance(one, Ask) for one in did), "what a device said meanwhile was said to nobody"


# ── sites ────────────────────────────────────────────────────────────────────────────────────────────────────

NORTH = replace(HERE, site="north")


def of_two_sites() -> State:
    """a and b are at a site that is bridged, c is not; round 1 has asked two of them."""
    happened = *(Announced(0.0, device, NORTH) for device in ("a", "b")), *joined("c"), Prepared(10.0, 0, MODEL)
    return feed(new(replace(RULES, cohort=3, start_with=3)), *happened)[0]


def test_devices_of_a_site_that_is_cut_off_are_not_waited_for():
    s, _, told = feed(of_two_sites(), SiteLost(12.0, "north"))
    assert told[:2] == [events.Lost(device, "its site 'north' is cut off") for device in ("a", "b")]
    assert s.rounds.present == {"c"}
    assert not s.devices["a"].live, "what its broker still says of it is an old word"


def test_what_a_broker_remembers_of_a_site_that_is_cut_off_counts_for_nothing_and_what_a_device_says_does():
    s, _, _ = feed(of_two_sites(), SiteLost(12.0, "north"))
    assert feed(s, Announced(13.0, "a", NORTH, retained=True))[0].rounds.present == {"c"}
    assert feed(s, Announced(13.0, "a", replace(NORTH, birth=2)))[0].rounds.present == {"a", "c"}


def test_a_site_that_is_back_is_asked_for_and_its_devices_go_on():
    s, did, _ = feed(of_two_sites(), SiteLost(12.0, "north"), SiteBack(20.0, "north"))
    assert did[-1] == ListenAgain()
    s, did, _ = feed(s, Announced(20.0, "a", NORTH, retained=True))
    assert s.rounds.present == {"a", "c"}
    assert any(isinstance(one, Ask) for one in did), "the task may be among what was lost"


def test_a_site_that_was_never_lost_changes_nothing():
    s = of_two_sites()
    assert feed(s, SiteBack(12.0, "north"))[1:] == ([], [])


# ── members ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_device_that_is_sent_away_is_told_not_waited_for_and_its_place_is_given_away():
    s, did, told = feed(opened(replace(RULES, start_with=3), "a", "b", "c"), CoordinatorConnected(11.0))
    gone = s.rounds.asked[0]
    s, did, told = feed(s, Revoked(12.0, gone, "no member"))
    assert did[:2] == [TurnAway(gone, "device.revoked", "no member"), Dismiss(gone)]
    assert told[0] == events.Lost(gone, "no member")
    assert gone not in s.devices
    [asked] = [action for action in did if isinstance(action, Ask)]
    assert [one.device for one in asked.devices] == [({"a", "b", "c"} - set(s.rounds.asked)) or s.rounds.asked[-1]]
    assert s.refusals == {"device.revoked": 1}


def test_what_a_device_has_answered_before_it_was_sent_away_counts():
    s, _, _ = feed(opened(), *counted("a"), Revoked(16.0, "a", "no member"))
    s, did, _ = feed(s, *counted("b"))
    [merge] = [action for action in did if isinstance(action, Merge)]
    assert set(merge.answers) == {"a", "b"}


def test_a_request_for_a_certificate_goes_to_the_authority_and_its_answer_to_the_device():
    s, did, told = feed(opened(), Expiring(12.0, "a", "please"))
    assert (did, told) == ([Certify("a", "please")], [])
    s, did, told = feed(s, CertificateSigned(13.0, "a", "here"))
    assert (did, told) == ([SendCertificate("a", "here")], [events.Certified("a")])


# ── how machines fare ────────────────────────────────────────────────────────────────────────────────────────


def test_vitals_are_told_as_they_come_but_not_what_the_broker_remembers():
    vitals = events.Vitals("a", temperature=61.5)
    live = Announced(1.0, "a", HERE, vitals=vitals)
    assert vitals in feed(new(), live)[2]
    assert vitals not in feed(new(), replace(live, retained=True))[2]
    s, _, _ = feed(new(), live)
    assert feed(s, ProgressReported(2.0, "a", 1, 7, vitals))[2] == [events.Progressed("a", 1, 7), vitals]
    assert feed(s, ProgressReported(3.0, "a", 1, 8))[2] == [events.Progressed("a", 1, 8)]


def test_one_that_rests_is_lost_with_the_reason_and_comes_back():
    s, _, _ = feed(new(), Announced(1.0, "a", HERE))
    s, _, told = feed(s, Announced(2.0, "a", replace(HERE, online=False, resting="rests: 84.0 °C, at most 70")))
    assert events.Lost("a", "rests: 84.0 °C, at most 70", resting=True) in told
    assert "a" not in s.rounds.present
    s, _, told = feed(s, Announced(3.0, "a", HERE))
    assert any(isinstance(fact, events.Joined) for fact in told)
    assert "a" in s.rounds.present


# ── who is not at work, and why ──────────────────────────────────────────────────────────────────────────────

BROKEN = replace(HERE, trouble="line 32", samples_from=5.0)
NO_DATA = replace(HERE, online=False, resting="no usable data: line 32", trouble="line 32")


def test_a_device_without_usable_data_is_told_of_and_not_asked_and_joins_when_they_are_good():
    s, _, told = feed(new(), Announced(1.0, "a", NO_DATA))
    assert told == [events.DataBroken("a", "line 32", None, HERE.version, HERE.host)]
    assert "a" not in s.rounds.present
    s, _, told = feed(s, Announced(2.0, "a", HERE))
    assert [type(fact) for fact in told[:2]] == [events.Joined, events.DataMended]
    assert "a" in s.rounds.present


def test_a_device_whose_data_break_later_stays_and_is_told_of_until_they_are_mended():
    s, _, told = feed(new(), Announced(1.0, "a", HERE))
    s, _, told = feed(s, Announced(2.0, "a", BROKEN))
    assert events.DataBroken("a", "line 32", 5.0, HERE.version, HERE.host) in told
    assert "a" in s.rounds.present
    s, _, told = feed(s, Announced(3.0, "a", replace(HERE, online=False)))
    assert told == [events.Lost("a")], "a last will says nothing about data"
    s, _, told = feed(s, Announced(4.0, "a", BROKEN))
    s, _, told = feed(s, Announced(5.0, "a", HERE))
    assert events.DataMended("a") in told


def test_a_device_that_may_not_take_part_is_told_of_once_for_each_reason():
    old = ("protocol.version", "device 'a' speaks protocol 2")
    s = new()
    told = []
    for at in range(1, 9):
        s, did, facts = feed(s, Announced(float(at), "a", HERE, refusal=old))
        told += facts
        assert [action.code for action in did if isinstance(action, TurnAway)] == ["protocol.version"]
    [fact] = told
    assert fact == events.Refused("a", *old, barred=True, version=HERE.version, host=HERE.host)
    s, _, told = feed(s, Announced(9.0, "a", HERE, refusal=("protocol.version", "device 'a' speaks protocol 1")))
    assert len(told) == 1
    s, _, told = feed(s, Announced(10.0, "a", HERE))
    assert any(isinstance(fact, events.Joined) for fact in told)
    assert not s.barred


OLD = ("protocol.version", "device 'a' speaks protocol 2")
GONE = replace(HERE, online=False)


def test_a_device_that_may_not_take_part_is_gone_when_its_last_will_comes():
    s, _, _ = feed(new(), Announced(1.0, "a", HERE, refusal=OLD))
    s, did, told = feed(s, Announced(2.0, "a", GONE, refusal=OLD), Announced(3.0, "a", GONE, refusal=OLD))
    assert (did, told) == ([], [events.Lost("a")])
    s, _, told = feed(s, Announced(4.0, "a", HERE, refusal=OLD))
    assert [type(fact) for fact in told] == [events.Refused]


@pytest.mark.parametrize("announced", [HERE, BROKEN, NO_DATA], ids=["healthy", "stale", "no data"])
def test_the_last_will_of_one_that_has_a_wrong_key_says_nothing_of_the_device_with_this_name(announced):
    wrong = {"refusal": ("device.key", "another key"), "key": "ed25519:x"}
    _, _, told = feed(
        new(),
        Announced(1.0, "a", announced),
        Announced(2.0, "a", replace(HERE, installation="x"), **wrong),
        Announced(3.0, "a", replace(GONE, installation="x"), **wrong),
    )
    assert not any(isinstance(fact, events.Lost) for fact in told)


def test_a_device_whose_presence_another_version_wrote_is_told_of_once_not_answered_and_not_blamed():
    older = Unreadable(1.0, "a", "message.unsigned", "a message without a signature")
    s, did, told = feed(new(), *[older] * 9)
    assert did == []
    assert told == [events.Refused("a", older.code, older.reason, barred=True)]
    assert not s.conduct.quarantined("a", 1.0)
    s, _, told = feed(s, Announced(2.0, "a", HERE))
    assert any(isinstance(fact, events.Joined) for fact in told)
    s, _, told = feed(s, older)
    assert told == [events.Refused("-", older.code, older.reason)], "somebody in the name of one that is here"


def test_whoever_tries_many_keys_is_told_of_once():
    s, told = new(), []
    for number in range(9):
        why = ("device.key", f"another key than {number}")
        s, _, facts = feed(s, Announced(1.0, "a", HERE, refusal=why, key=f"ed25519:{number}"))
        told += facts
    assert len(told) == 1


def test_of_very_many_devices_that_may_not_take_part_some_are_only_counted(monkeypatch):
    monkeypatch.setattr("coordinator.decide.devices.BARRED", 3)
    s, told = new(), []
    for number in range(9):
        s, _, facts = feed(s, Announced(1.0, f"d{number}", HERE, refusal=("protocol.version", "old")))
        told += facts
    assert len(told) == 3
    assert s.refusals == {"protocol.version": 9}


def test_who_belongs_to_the_run_is_told_when_it_changes_and_an_ended_certificate_once():
    two = MembersRead(1.0, ("a", "b"), (("b", 0.5, "do this"),))
    s, _, told = feed(new(), two)
    assert told == [events.Enrolled(("a", "b")), events.Expired("b", 0.5, "do this")]
    assert feed(s, replace(two, at=2.0))[2] == []
    s, _, told = feed(s, MembersRead(3.0, ("a", "b", "c")))
    assert told == [events.Enrolled(("a", "b", "c"))]
    assert feed(s, replace(two, at=4.0, devices=("a", "b", "c")))[2] == [events.Expired("b", 0.5, "do this")]
