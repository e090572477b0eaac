"""The round machine, told event by event."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.decide.rounds import (
    Abandon,
    AcceptAnswer,
    AcceptLateAnswer,
    Action,
    DeviceAnswered,
    DeviceBusy,
    DeviceDeclined,
    DeviceJoined,
    DeviceLost,
    Event,
    Finish,
    IgnoreAnswer,
    Invite,
    MergeRound,
    RoundMerged,
    Rounds,
    Rules,
    RunResumed,
    SetTimer,
    TimerExpired,
    outstanding,
    step,
    waiting,
)
from edgefl.base import seeds

RULES = Rules(rounds=3, seed=7, cohort=3, quorum=2, deadline=30.0)
FLEET = ("a", "b", "c", "d", "e")


def feed(s: Rounds, *events: Event) -> tuple[Rounds, list[Action]]:
    """What is done about these events, besides saying that an answer counts."""
    did: list[Action] = []
    for event in events:
        s, actions = step(s, event)
        did += (action for action in actions if not isinstance(action, AcceptAnswer))
    return s, did


def joined(*devices: str) -> list[Event]:
    return [DeviceJoined(d, 0.0) for d in devices]


def answers(round: int, *devices: str) -> list[Event]:
    return [DeviceAnswered(d, round, 1.0) for d in devices]


def expire(s: Rounds) -> tuple[Rounds, list[Action]]:
    return feed(s, TimerExpired(s.round, s.attempt, 9.0))


def opened(rules: Rules = RULES, fleet: tuple[str, ...] = ("a", "b", "c")) -> Rounds:
    """The first round, open: the fleet is there at once, so that the draw is over all of it."""
    s, _ = feed(Rounds(replace(rules, start_with=len(fleet))), *joined(*fleet))
    assert s.phase == "open"
    return s


# ── gathering ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_device_starts_the_patience():
    _, did = feed(Rounds(RULES), *joined("a"))
    assert did == [SetTimer(1, 1, 30.0)]


def test_the_first_round_opens_as_soon_as_all_it_asks_are_present():
    s, did = feed(Rounds(RULES), *joined("a", "b", "c"))
    drawn = seeds.sample(7, 1, {"a", "b", "c"}, 3)
    assert did == [SetTimer(1, 1, 30.0), Invite(1, drawn, 2), SetTimer(1, 2, 30.0)]
    assert outstanding(s) == drawn


def test_the_first_round_waits_for_its_over_selection_too():
    s, _ = feed(Rounds(replace(RULES, over_select=1.5)), *joined("a", "b", "c", "d"))
    assert s.phase == "starting"
    s, _ = feed(s, *joined("e"))
    assert sorted(s.asked) == list(FLEET)


def test_fewer_than_a_cohort_start_after_the_grace_if_they_are_a_quorum():
    s, did = feed(Rounds(RULES), *joined("a", "b"))
    assert s.phase == "starting"
    s, did = expire(s)
    assert did == [Invite(1, seeds.sample(7, 1, {"a", "b"}, 3), 2), SetTimer(1, 2, 30.0)]


def test_after_the_grace_a_quorum_opens_the_round_the_moment_it_is_there():
    s, _ = feed(Rounds(RULES), *joined("a"))
    s, did = expire(s)
    assert (s.phase, did) == ("gathering", [])
    s, did = feed(s, *joined("b"))
    assert s.phase == "open"
    assert set(s.asked) == {"a", "b"}


def test_start_with_is_a_must_however_long_it_takes():
    s, did = feed(Rounds(replace(RULES, start_with=5)), *joined("a", "b", "c", "d"), TimerExpired(1, 0, 99.0))
    assert (s.phase, did) == ("starting", [])
    s, did = feed(s, *joined("e"))
    assert did[0] == Invite(1, seeds.sample(7, 1, FLEET, 3), 1)


def test_start_with_is_about_the_first_round_only():
    s = opened(replace(RULES, cohort=5), FLEET)
    s, did = feed(s, *answers(1, *FLEET), DeviceLost("e", 2.0), RoundMerged(1, 3.0))
    assert did[1:] == [Invite(2, seeds.sample(7, 2, "abcd", 5), 2), SetTimer(2, 2, 30.0)]


def test_rounds_do_not_wait_for_a_device_that_is_away():
    """With a quorum of two out of three and one device gone, no deadline passes from the loss to the last round."""
    s, did = feed(opened(), DeviceLost("c", 1.0), *answers(1, "a", "b"))
    for round in (1, 2):
        assert did[-1] == MergeRound(round, ("a", "b"))
        s, did = feed(s, RoundMerged(round, 2.0), *answers(round + 1, "a", "b"))
    assert did[-1] == MergeRound(3, ("a", "b"))


def test_fewer_than_a_quorum_are_waited_for_without_a_timer():
    s, did = feed(opened(), *answers(1, "a", "b", "c"), DeviceLost("b", 1.0), DeviceLost("c", 1.0), RoundMerged(1, 2.0))
    assert (s.phase, did) == ("gathering", [MergeRound(1, ("a", "b", "c"))])
    s, did = feed(s, DeviceJoined("c", 3.0))
    assert set(s.asked) == {"a", "c"}


def test_a_device_that_blinked_is_asked_unless_somebody_has_answered_already():
    s, _ = feed(opened(), *answers(1, "a", "b", "c"), DeviceLost("c", 1.0), RoundMerged(1, 2.0))
    assert set(s.asked) == {"a", "b"}
    assert feed(s, DeviceJoined("c", 3.0))[1] == [Invite(2, ("c",), 2)]
    assert feed(s, DeviceAnswered("a", 2, 3.0), DeviceJoined("c", 3.0))[1] == []


def test_a_device_that_left_before_the_round_is_not_asked():
    _, did = feed(Rounds(RULES), *joined("a", "b"), DeviceLost("a", 1.0), *joined("c", "d"))
    assert [set(a.devices) for a in did if isinstance(a, Invite)] == [{"b", "c", "d"}]


# ── an open round ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_round_merges_when_all_it_asked_have_answered():
    _, did = feed(opened(), *answers(1, "c", "a", "b"))
    assert did == [MergeRound(1, ("a", "b", "c"))]


def test_without_over_selection_a_quorum_waits_for_the_rest_until_the_deadline():
    s, did = feed(opened(), *answers(1, "c", "a"))
    assert did == []
    _, did = expire(s)
    assert did == [MergeRound(1, ("a", "c"))]


def test_an_over_selection_takes_the_first_cohort_and_calls_the_rest_late():
    s = opened(replace(RULES, over_select=1.5), FLEET)
    assert len(s.asked) == 5
    s, did = feed(s, *answers(1, "e", "b", "d", "a"))
    assert did == [MergeRound(1, ("b", "d", "e")), IgnoreAnswer("a", 1, "late")]


@pytest.mark.parametrize(("over_select", "size"), [(1.0, 10), (1.1, 11), (1.25, 13), (1.3, 13)])
def test_over_selection_rounds_up_but_not_because_of_floating_point(over_select, size):
    assert Rules(1, 0, cohort=10, quorum=1, deadline=1.0, over_select=over_select).size == size


def test_an_answer_that_comes_twice_counts_once():
    s, _ = feed(opened(), *answers(1, "a"))
    _, did = feed(s, *answers(1, "a"))
    assert did == [IgnoreAnswer("a", 1, "duplicate")]


def test_an_answer_counts_even_if_its_device_was_lost_afterwards():
    _, did = feed(opened(), *answers(1, "a"), DeviceLost("a", 2.0), *answers(1, "b", "c"))
    assert did == [MergeRound(1, ("a", "b", "c"))]


@pytest.mark.parametrize(
    "leave", [lambda d: DeviceLost(d, 1.0), lambda d: DeviceDeclined(d, 1, 1.0)], ids=["lost", "declined"]
)
def test_a_device_that_will_not_answer_is_replaced_by_the_next_in_the_draw(leave):
    order = seeds.sample(7, 1, FLEET, 5)
    s, did = feed(opened(fleet=FLEET), leave(order[0]))
    assert did == [Invite(1, (order[3],), 1)]
    s, did = feed(s, leave(order[1]))
    assert did == [Invite(1, (order[4],), 1)]


@pytest.mark.parametrize(
    "leave", [lambda d: DeviceLost(d, 1.0), lambda d: DeviceDeclined(d, 1, 1.0)], ids=["lost", "declined"]
)
def test_without_spares_a_quorum_merges_as_soon_as_nobody_is_outstanding(leave):
    _, did = feed(opened(), *answers(1, "a", "b"), leave("c"))
    assert did == [MergeRound(1, ("a", "b"))]


def test_declining_twice_asks_one_spare():
    s = opened(fleet=FLEET)
    _, did = feed(s, DeviceDeclined(s.asked[0], 1, 1.0), DeviceDeclined(s.asked[0], 1, 1.0))
    assert did[1:] == [IgnoreAnswer(s.asked[0], 1, "duplicate")]


def test_a_device_that_comes_and_goes_has_its_place_taken_once():
    s = opened(fleet=FLEET)
    flapping = s.asked[0]
    s, _ = feed(s, *[DeviceLost(flapping, 1.0), DeviceJoined(flapping, 1.0)] * 9)
    assert len(s.asked) == RULES.cohort + 1


def test_a_device_that_comes_back_is_asked_again_in_the_same_opening():
    _, did = feed(opened(), DeviceLost("a", 1.0), DeviceJoined("a", 2.0))
    assert did == [Invite(1, ("a",), 1)]


def test_a_rebirth_without_a_farewell_is_asked_again_too():
    _, did = feed(opened(), DeviceJoined("a", 2.0))
    assert did == [Invite(1, ("a",), 1)]


def test_a_device_that_comes_back_with_its_answer_given_is_left_alone():
    _, did = feed(opened(), *answers(1, "a"), DeviceLost("a", 1.0), DeviceJoined("a", 2.0))
    assert did == []


def test_a_newcomer_to_a_full_round_is_asked_only_when_somebody_leaves():
    s, did = feed(opened(), DeviceJoined("d", 1.0), DeviceLost("d", 1.0))
    assert did == []
    _, did = feed(s, DeviceLost("a", 1.0), DeviceJoined("d", 2.0))
    assert did == [Invite(1, ("d",), 1)]


def test_a_newcomer_to_a_round_that_has_answers_is_asked_only_if_the_quorum_is_in_danger():
    s, did = feed(opened(), *answers(1, "a"), DeviceLost("b", 1.0), DeviceJoined("d", 1.0))
    assert did == []
    _, did = feed(s, DeviceLost("d", 2.0), DeviceLost("c", 2.0), DeviceJoined("d", 3.0))
    assert did == [Invite(1, ("d",), 1)]


# ── devices that work for another run ────────────────────────────────────────────────────────────────────────


def test_a_busy_device_is_replaced_by_a_spare_and_counts_if_it_answers_all_the_same():
    order = seeds.sample(7, 1, FLEET, 5)
    s, did = feed(opened(fleet=FLEET), DeviceBusy(order[0], 1, 1.0))
    assert did == [Invite(1, (order[3],), 1)]
    assert order[0] not in outstanding(s)
    _, did = feed(s, *answers(1, order[1], order[2], order[0]))
    assert did == [MergeRound(1, tuple(sorted(order[:3])))]  # a whole cohort: the spare is not waited for


def test_a_busy_device_without_a_spare_is_waited_for():
    s, did = feed(opened(), DeviceBusy("c", 1, 1.0), *answers(1, "a", "b"))
    assert did == []
    assert waiting(s) == "round 1: 2 of 3 answered; waiting for c (c: another run first)"
    _, did = feed(s, *answers(1, "c"))
    assert did == [MergeRound(1, ("a", "b", "c"))]


def test_a_round_is_not_given_up_while_a_device_is_busy_elsewhere():
    s = opened(replace(RULES, quorum=3))
    s, _ = feed(s, *answers(1, "a", "b"))
    for _ in range(9):
        s, did = feed(s, DeviceBusy("c", 1, 1.0))
        s, did = expire(s)
        assert did[0] == Invite(1, ("c",), 1)
    assert s.answered == {"a", "b"}
    for _ in range(4):  # it no longer says so
        s, did = expire(s)
    assert isinstance(did[0], Abandon)


def test_being_busy_twice_asks_one_spare():
    s = opened(fleet=FLEET)
    _, did = feed(
        s,
        DeviceBusy(s.asked[0], 1, 1.0),
        DeviceBusy(s.asked[0], 1, 1.0),
        DeviceBusy("x", 1, 1.0),
        DeviceBusy("a", 2, 1.0),
    )
    assert did[1:] == [
        IgnoreAnswer(s.asked[0], 1, "duplicate"),
        IgnoreAnswer("x", 1, "not invited"),
        IgnoreAnswer("a", 2, "future"),
    ]


# ── deadlines ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_deadline_without_quorum_keeps_the_answers_and_asks_the_silent_and_spares():
    s = opened(fleet=FLEET)
    first, second, third, fourth, fifth = seeds.sample(7, 1, FLEET, 5)
    s, _ = feed(s, *answers(1, first))
    s, did = expire(s)
    assert did == [Invite(1, (second, third, fourth, fifth), 1), SetTimer(1, 2, 30.0)]
    _, did = feed(s, *answers(1, second, third, fourth, fifth))
    assert did == [MergeRound(1, FLEET)]


def test_a_device_that_declined_is_not_pestered_at_the_deadline():
    s, _ = feed(opened(), DeviceDeclined("a", 1, 1.0), *answers(1, "b"))
    _, did = expire(s)
    assert did == [Invite(1, ("c",), 1), SetTimer(1, 2, 30.0)]


def test_after_three_extensions_the_round_is_abandoned_and_opened_anew():
    s, _ = feed(opened(), *answers(1, "a"))
    for _ in range(3):
        s, did = expire(s)
        assert isinstance(did[-1], SetTimer)
    s, did = expire(s)
    drawn = seeds.sample(7, 1, "abc", 3)
    assert did == [Abandon(1, "1 of 3 answered, quorum is 2"), Invite(1, drawn, 5), SetTimer(1, 5, 30.0)]
    assert s.answered == frozenset()


def test_where_all_have_declined_the_deadline_is_not_extended_for_nobody():
    s, _ = feed(opened(), *(DeviceDeclined(device, 1, 1.0) for device in "abc"))
    _, did = expire(s)
    assert did[0] == Abandon(1, "0 of 3 answered, 3 declined, quorum is 2")
    assert did[1:] == [Invite(1, seeds.sample(7, 1, "abc", 3), 2), SetTimer(1, 2, 30.0)]


def test_an_answer_to_an_abandoned_opening_counts_in_the_next_if_its_device_is_asked_again():
    s = opened()
    for _ in range(4):
        s, _ = expire(s)
    assert s.opening == 5
    _, did = feed(s, *answers(1, "a", "b", "c"))
    assert did == [MergeRound(1, ("a", "b", "c"))]


def test_an_old_timer_means_nothing():
    s = opened()
    later, _ = expire(s)
    assert feed(later, TimerExpired(1, s.attempt, 9.0)) == (later, [])
    assert feed(later, TimerExpired(2, later.attempt, 9.0)) == (later, [])


# ── what cannot be used ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (DeviceAnswered("x", 1, 1.0), "not invited"),
        (DeviceAnswered("a", 2, 1.0), "future"),
        (DeviceAnswered("a", 0, 1.0), "late"),
        (DeviceDeclined("x", 1, 1.0), "not invited"),
        (DeviceDeclined("a", 9, 1.0), "future"),
        (DeviceDeclined("a", -1, 1.0), "late"),
    ],
)
def test_words_that_do_not_fit_are_ignored_with_the_reason(event, reason):
    s = opened()
    assert feed(s, event) == (s, [IgnoreAnswer(event.device, event.round, reason)])


def test_while_merging_answers_are_late_and_presence_is_recorded():
    s, _ = feed(opened(), *answers(1, "a", "b"), DeviceLost("c", 1.0))
    s, did = feed(s, *answers(1, "c"), DeviceJoined("d", 2.0), DeviceLost("a", 2.0))
    assert did == [IgnoreAnswer("c", 1, "late")]
    assert s.present == {"b", "d"}


def test_an_answer_that_was_counted_is_a_duplicate_even_rounds_later():
    s, _ = feed(opened(), *answers(1, "a", "b", "c"))
    _, did = feed(s, *answers(1, "a"), RoundMerged(1, 2.0), *answers(1, "a"))
    assert [a for a in did if isinstance(a, IgnoreAnswer)] == [IgnoreAnswer("a", 1, "duplicate")] * 2


@pytest.mark.parametrize("policy", ["discount", "memory"])
def test_a_late_answer_is_handed_on_once_if_the_policy_wants_it(policy):
    s, _ = feed(opened(replace(RULES, late=policy)), *answers(1, "a", "b"))
    s, _ = expire(s)
    s, did = feed(s, RoundMerged(1, 3.0), *answers(1, "c", "c", "x"))
    assert did[2:] == [AcceptLateAnswer("c", 1), IgnoreAnswer("c", 1, "late"), IgnoreAnswer("x", 1, "late")]


def test_merged_is_only_heard_while_merging():
    s = opened()
    assert feed(s, RoundMerged(1, 1.0)) == (s, [])
    s, _ = feed(s, *answers(1, "a", "b", "c"))
    assert feed(s, RoundMerged(0, 1.0)) == (s, [])


# ── from round to round ──────────────────────────────────────────────────────────────────────────────────────


def test_the_next_round_opens_when_the_last_one_is_merged():
    s, _ = feed(opened(), *answers(1, "a", "b", "c"))
    s, did = feed(s, RoundMerged(1, 3.0))
    assert did == [Invite(2, seeds.sample(7, 2, "abc", 3), 2), SetTimer(2, 2, 30.0)]


def test_rounds_that_need_no_device_are_skipped():
    s, _ = feed(opened(), *answers(1, "a", "b", "c"))
    s, did = feed(s, RoundMerged(2, 3.0))
    assert did[0] == Invite(3, seeds.sample(7, 3, "abc", 3), 2)


@pytest.mark.parametrize(
    "last", [RoundMerged(3, 3.0), RoundMerged(1, 3.0, done=True)], ids=["all rounds", "target reached"]
)
def test_a_finished_job_ignores_everything(last):
    s, _ = feed(opened(), *answers(1, "a", "b", "c"))
    s, did = feed(s, last)
    assert did == [Finish(last.round)]
    quiet = [DeviceJoined("z", 4.0), DeviceLost("a", 4.0), TimerExpired(s.round, s.attempt, 4.0), RoundMerged(3, 4.0)]
    assert feed(s, *quiet) == (s, [])
    assert feed(s, DeviceAnswered("a", 1, 4.0)) == (s, [IgnoreAnswer("a", 1, "finished")])


# ── the story ────────────────────────────────────────────────────────────────────────────────────────────────


def test_waiting_says_why():
    s, _ = feed(Rounds(RULES), *joined("a"))
    assert waiting(s) == "round 1 needs 3 devices, have 1; 30 s after the first one 2 do"
    s, _ = expire(s)
    assert waiting(s) == "round 1 needs 2 devices, have 1"
    s, _ = feed(opened(), *answers(1, "b"))
    assert waiting(s) == "round 1: 1 of 3 answered; waiting for a, c"
    s, _ = feed(s, DeviceLost("a", 1.0), DeviceLost("c", 1.0))
    assert waiting(s) == "round 1: 1 of 3 answered; no device is left to ask, waiting for devices to come (back)"
    s, _ = feed(opened(), *answers(1, "b"), DeviceDeclined("a", 1, 1.0))
    assert waiting(s) == "round 1: 1 of 3 answered, 1 declined (a); waiting for c"
    s, _ = feed(s, DeviceDeclined("c", 1, 1.0))
    again = "no device is left to ask, all are asked again when its 30 s are up"
    assert waiting(s) == f"round 1: 1 of 3 answered, 2 declined (a, c); {again}"
    s, _ = feed(opened(), *answers(1, "a", "b", "c"))
    assert waiting(s) == "round 1: merging 3 answers"
    s, _ = feed(s, RoundMerged(3, 1.0))
    assert waiting(s) == "finished after 3 rounds"


def test_waiting_names_a_few_devices_and_counts_the_rest():
    fleet = tuple(f"pi-{i:02}" for i in range(8))
    s = opened(replace(RULES, cohort=8), fleet)
    assert waiting(s).endswith("waiting for pi-00, pi-01, pi-02, pi-03, pi-04 and 3 more")


def resumed(s: Rounds) -> list[Action]:
    return feed(s, RunResumed(5.0))[1]


def test_a_restarted_shell_is_told_what_is_open():
    assert resumed(Rounds(RULES)) == []
    s, _ = feed(Rounds(RULES), *joined("a"))
    assert resumed(s) == [SetTimer(1, 1, 30.0)]
    s, _ = feed(opened(), *answers(1, "a"))
    silent = tuple(d for d in s.asked if d != "a")
    assert resumed(s) == [Invite(1, silent, 1), SetTimer(1, 1, 30.0)]
    s, did = feed(s, *answers(1, "b", "c"))
    assert resumed(s) == did
    s, did = feed(s, RoundMerged(3, 1.0))
    assert resumed(s) == did


def test_other_rules_take_effect_when_a_run_is_resumed():
    s, _ = feed(Rounds(replace(RULES, start_with=5)), *joined("a", "b", "c"))
    assert isinstance(resumed(replace(s, rules=RULES))[0], Invite)
    s, _ = feed(opened(replace(RULES, quorum=3)), *answers(1, "a", "b"), DeviceLost("c", 1.0))
    assert resumed(replace(s, rules=RULES)) == [MergeRound(1, ("a", "b"))]
    assert resumed(replace(s, rules=replace(RULES, quorum=3, deadline=5.0))) == [SetTimer(1, 1, 5.0)]


def test_a_run_that_has_more_rounds_than_are_wanted_now_is_finished():
    s, _ = feed(opened(), *answers(1, "a", "b", "c"), RoundMerged(2, 1.0))
    assert s.round == 3
    s, did = feed(replace(s, rules=replace(RULES, rounds=1)), RunResumed(5.0))
    assert (s.phase, s.round, did) == ("finished", 2, [Finish(2)])


def test_the_state_can_be_written_as_json():
    s, _ = feed(opened(), *answers(1, "a", "b"), DeviceLost("c", 1.0))
    written = json.loads(json.dumps(asdict(s), default=sorted))
    assert written["phase"] == "merging"
    assert written["answered"] == ["a", "b"]
    assert written["owed"] == {"c": 1}


@pytest.mark.parametrize(
    "wrong",
    [{"quorum": 4}, {"quorum": 0}, {"start_with": 1}, {"rounds": 0}, {"deadline": 0.0}, {"over_select": 0.9}],
)
def test_rules_that_cannot_work_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(RULES, **wrong)


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────


@given(st.permutations(FLEET), st.sets(st.sampled_from(FLEET)), st.lists(st.sampled_from((*FLEET, "x")), max_size=3))
def test_who_counts_does_not_depend_on_the_order_of_the_answers(order, silent, noise):
    rules = replace(RULES, cohort=5)
    heard = [d for d in order if d not in silent]

    def merged(order: list[str]) -> list[Action]:
        s, did = feed(opened(rules, FLEET), *answers(1, *order))
        if s.phase == "open":
            did += expire(s)[1]
        return [a for a in did if isinstance(a, MergeRound)]

    expected = [MergeRound(1, tuple(sorted(heard)))] if len(heard) >= 2 else []
    assert merged(heard) == merged(sorted(heard)) == expected
    assert merged([*heard, *(d for d in noise if d not in silent)]) == expected


def test_patience_with_a_fleet_that_comes_together_outlives_a_restart_in_which_nobody_is_there():
    s, did = feed(Rounds(RULES), *joined("a"), DeviceLost("a", 1.0), RunResumed(2.0))
    assert did == [SetTimer(1, 1, 30.0)] * 2
    s, _ = feed(s, *joined("a", "b"))
    assert (s.phase, expire(s)[0].phase) == ("starting", "open"), "two of three are a quorum"
