"""Alerts: a cause is told once, however it flaps, and its end once; what needs a person stands on a list."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base import events
from edgefl.server.decide import alert_texts
from edgefl.server.decide.accuracy import DevicesScored
from edgefl.server.decide.alerts import (
    GIVEN_UP,
    KINDS,
    Alert,
    AlertNotice,
    AlertQuieted,
    AlertRules,
    AlertState,
    AlertsTicked,
    DeviceFact,
    DiskLookedAt,
    NoticeDelivered,
    NoticeFailed,
    RunsLookedAt,
    RunStanding,
    step,
)

HOUR, DAY = 3600.0, 86_400.0
RULES = AlertRules(channels=("mail",), quiet={"temperature": 600.0})


class Told:
    """A machine, and all that it has told."""

    def __init__(self, rules=RULES):
        self.state, self.rules, self.wall = AlertState(), rules, 1000 * DAY
        self.notices = {}

    def __call__(self, *facts):
        """The fleet `north` tells these facts."""
        for fact in facts:
            self.feed(DeviceFact(self.wall, "north", fact))

    def feed(self, event):
        self.state = step(self.state, event, self.rules)
        for one in self.state.outbox.values():
            self.notices.setdefault(one.notice.id, one.notice)

    def later(self, seconds):
        """Time passes, with a tick at its end."""
        self.wall += seconds
        self.feed(AlertsTicked(self.wall))

    def runs(self, *runs, series=frozenset()):
        self.feed(RunsLookedAt(self.wall, runs, series))
        self.feed(AlertsTicked(self.wall))

    def scores(self, round, run="a", **scores):
        self.feed(DevicesScored(self.wall, "north", "a", run, round, scores))
        self.feed(AlertsTicked(self.wall))

    @property
    def told(self):
        return [
            (one.what, one.alerts[0].kind, *(alert.subject for alert in one.alerts)) for one in self.notices.values()
        ]


@pytest.fixture
def fleet():
    return Told()


def test_a_device_that_is_away_for_an_hour_is_told_once(fleet):
    fleet(events.Joined("d1"), events.Lost("d1", "its connection broke"))
    fleet.later(HOUR - 1)
    assert fleet.told == []
    fleet.later(1)
    fleet(events.Lost("d1", "its connection broke"))
    fleet.later(10 * DAY)
    assert fleet.told == [("opened", "away", "d1")]


def test_a_device_that_comes_back_in_time_is_not_told(fleet):
    fleet(events.Lost("d1"))
    fleet.later(HOUR - 1)
    fleet(events.Joined("d1"))
    fleet.later(DAY)
    assert (fleet.told, fleet.state.alerts) == ([], {})


def test_devices_that_are_away_together_are_told_of_together(fleet):
    fleet(events.Lost("d2"), events.Lost("d1"))
    fleet.later(HOUR)
    assert fleet.told == [("opened", "away", "d1", "d2")]


def test_the_end_of_an_alert_is_told_when_it_has_lasted(fleet):
    fleet(events.Lost("d1"))
    fleet.later(HOUR)
    fleet(events.Joined("d1"))
    assert fleet.state.open == []
    fleet.later(RULES.hold - 1)
    assert len(fleet.told) == 1
    fleet.later(1)
    assert fleet.told[1:] == [("closed", "away", "d1")]
    assert fleet.state.alerts == {}


def test_a_device_that_flaps_is_told_once(fleet):
    fleet(events.Lost("d1"))
    fleet.later(HOUR)
    for _ in range(50):
        fleet(events.Joined("d1"))
        fleet.later(RULES.hold / 2)
        fleet(events.Lost("d1"))
        fleet.later(HOUR)
    assert fleet.told == [("opened", "away", "d1")]


def test_after_its_end_a_cause_is_told_anew(fleet):
    for _ in range(2):
        fleet(events.Lost("d1"))
        fleet.later(HOUR)
        fleet(events.Joined("d1"))
        fleet.later(RULES.hold)
    assert [what for what, *_ in fleet.told] == ["opened", "closed"] * 2
    assert len({notice.id for notice in fleet.notices.values()}) == 4


def test_a_device_that_rests_is_not_away(fleet):
    fleet(events.Lost("d1"), events.Lost("d1", "it is day", resting=True))
    fleet.later(DAY)
    assert fleet.told == []


def test_a_device_that_was_there_once_and_is_not_heard_after_a_restart_is_away(fleet):
    fleet(events.Joined("d1"), events.Joined("d2"))
    again = Told()
    again.state = AlertState(heard=fleet.state.heard)
    again(events.Enrolled(("d1", "d2", "new")), events.Joined("d1"))
    again.later(HOUR)
    assert again.told == [("opened", "away", "d2")]


def test_a_device_that_is_no_member_any_more_is_not_told_of(fleet):
    fleet(events.Enrolled(("d1", "d2")), events.Lost("d1"), events.Enrolled(("d2",)), events.Lost("d1", "no member"))
    fleet.later(DAY)
    assert (fleet.told, fleet.state.alerts) == ([], {})


def test_data_that_stay_broken_for_a_day_are_told(fleet):
    fleet(events.Joined("d1"), events.DataBroken("d1", "column 'x' is gone", 5.0))
    fleet.later(DAY)
    assert fleet.told == [("opened", "stale", "d1")]
    fleet(events.DataMended("d1"))
    assert fleet.state.open == []


def test_a_device_with_broken_data_is_there(fleet):
    fleet(events.Lost("d1"), events.DataBroken("d1", "no file"))
    fleet.later(2 * HOUR)
    assert fleet.told == []


def test_a_certificate_is_told_thirty_days_before_its_end_unless_it_is_renewed(fleet):
    ends = fleet.wall + 40 * DAY
    fleet(events.Certificate("d1", ends), events.Certificate("d2", ends))
    fleet.later(9 * DAY)
    fleet(events.Certificate("d2", ends + 90 * DAY))
    assert fleet.told == []
    fleet.later(DAY)
    assert fleet.told == [("opened", "certificate", "d1")]
    fleet(events.Expired("d1", ends, "needs a new kit"))
    fleet.later(DAY)
    assert len(fleet.told) == 1
    fleet(events.Certificate("d1", ends + 90 * DAY))
    fleet.later(DAY)
    assert fleet.told[1:] == [("closed", "certificate", "d1")]
    fleet.later(90 * DAY)
    assert fleet.told[2:] == [("opened", "certificate", "d1", "d2")]


def test_heat_has_to_last_for_its_quiet_time(fleet):
    for degrees in (85.0, 79.0, 90.0):
        fleet(events.Vitals("d1", temperature=degrees))
        fleet.later(599)
    assert fleet.told == []
    fleet.later(1)
    assert fleet.told == [("opened", "temperature", "d1")]


def test_disks_of_devices_and_of_the_server_are_told_apart(fleet):
    fleet(events.Vitals("d1", disk_free=400_000_000))
    fleet.feed(DiskLookedAt(fleet.wall, 400e6))
    fleet.later(0)
    assert sorted(fleet.told) == [("opened", "disk", "d1"), ("opened", "disk", "server")]
    assert {alert_texts.title(one) for one in fleet.notices.values()} == {
        "fleet 'north': the disk of d1 has 400 MB left",
        "the server's disk has 400 MB left",
    }


def run(phase, moved, *, started=0.0, number=1, name="a", series="", deleted=False):
    return RunStanding(name, number, "north", phase, series or name, moved, started, "it waits", deleted)


def test_a_run_that_closes_no_round_for_two_hours_is_told(fleet):
    begun = fleet.wall
    fleet.runs(run("working", begun))
    fleet.wall += 2 * HOUR - 1
    fleet.runs(run("working", begun))
    assert fleet.told == []
    fleet.wall += 1
    fleet.runs(run("working", begun))
    assert fleet.told == [("opened", "stalled", "a")]
    fleet.runs(run("working", fleet.wall))
    assert fleet.state.open == []


def test_a_restart_of_the_server_does_not_end_a_stall_nor_begin_one(fleet):
    begun = fleet.wall
    fleet.wall += 3 * HOUR
    fleet.runs(run("working", begun, started=fleet.wall))
    assert fleet.told == []
    fleet.wall += 2 * HOUR
    fleet.runs(run("working", begun, started=fleet.wall - 2 * HOUR))
    for phase in ("queued", "working"):
        fleet.wall += HOUR
        fleet.runs(run(phase, begun, started=fleet.wall))
    fleet.later(10 * HOUR)
    assert fleet.told == [("opened", "stalled", "a")]


def test_a_run_that_pauses_does_not_stall(fleet):
    begun = fleet.wall
    fleet.runs(run("working", begun))
    fleet.runs(run("paused", begun))
    fleet.later(DAY)
    assert fleet.told == []


def test_a_failed_run_is_told_until_the_next_of_its_schedule_has_finished(fleet):
    first = run("failed", fleet.wall, name="night-1", series="night")
    fleet.runs(first)
    fleet.runs(first, run("failed", fleet.wall, name="night-2", series="night", number=2))
    assert fleet.told == [("opened", "failed", "night")]
    fleet.runs(first, run("finished", fleet.wall, name="night-3", series="night", number=3))
    fleet.later(RULES.hold)
    assert fleet.told[1:] == [("closed", "failed", "night")]


def test_a_failed_run_that_is_deleted_is_over(fleet):
    fleet.runs(run("failed", fleet.wall))
    fleet.runs(run("failed", fleet.wall, deleted=True))
    assert fleet.state.open == []


def test_an_accuracy_that_falls_twice_in_a_row_is_told_of_that_device(fleet):
    for round in range(3):
        fleet.scores(round, d1=0.9, d2=0.8)
    fleet.scores(3, d1=0.7, d2=0.75)
    assert fleet.told == []
    fleet.scores(4, d1=0.7, d2=0.75)
    assert fleet.told == [("opened", "accuracy", "d1")]
    fleet.scores(5, d1=0.85, d2=0.75)
    assert fleet.state.open == []


def test_a_story_that_is_read_again_after_a_restart_counts_once(fleet):
    for round, score in enumerate((0.2, 0.6, 0.9, 0.9, 0.9)):
        fleet.scores(round, d1=score)
    for round, score in enumerate((0.2, 0.6, 0.9, 0.9, 0.9)):
        fleet.scores(round, d1=score)
    assert fleet.told == []


def test_a_person_who_knows_of_a_fallen_accuracy_accepts_it(fleet):
    for round, score in enumerate((0.9, 0.9, 0.9, 0.7, 0.7)):
        fleet.scores(round, d1=score)
    (alert,) = fleet.state.open
    fleet.feed(AlertQuieted(fleet.wall, alert.id, "ann"))
    for round in range(5, 9):
        fleet.scores(round, d1=0.7)
    assert fleet.state.open == []
    for round in range(9, 11):
        fleet.wall += DAY
        fleet.scores(round, d1=0.5)
    assert fleet.told == [("opened", "accuracy", "d1")] * 2


def test_accuracies_of_runs_that_are_gone_are_forgotten(fleet):
    for round, score in enumerate((0.9, 0.9, 0.9, 0.7, 0.7)):
        fleet.scores(round, d1=score)
    fleet.runs()
    assert (fleet.state.levels, fleet.state.open) == ({}, [])


def test_a_broker_that_is_away_is_told(fleet):
    fleet(events.Disconnected("refused"))
    fleet.later(0)
    fleet(events.Connected())
    assert fleet.told == [("opened", "broker", "broker")]
    assert fleet.state.open == []


def test_what_a_person_knows_needs_no_person_and_its_end_is_not_told(fleet):
    fleet(events.Lost("d1"))
    fleet.later(HOUR)
    (alert,) = fleet.state.open
    assert alert.needs_person
    fleet.feed(AlertQuieted(fleet.wall, alert.id, "ann"))
    (alert,) = fleet.state.open
    assert (alert.needs_person, alert.quieted_by) == (False, "ann")
    fleet(events.Joined("d1"))
    fleet.later(RULES.hold)
    assert (len(fleet.told), fleet.state.alerts) == (1, {})


def test_kinds_that_are_off_are_neither_told_nor_listed():
    fleet = Told()
    fleet(events.Lost("d1"))
    fleet.rules = AlertRules(off=frozenset({"away"}), channels=("mail",))
    fleet(events.Lost("d2"))
    fleet.later(HOUR)
    assert (fleet.told, fleet.state.alerts) == ([], {})


def test_without_a_channel_alerts_are_listed():
    fleet = Told(AlertRules())
    fleet(events.Lost("d1"))
    fleet.later(HOUR)
    assert [alert.subject for alert in fleet.state.open] == ["d1"]
    assert fleet.state.outbox == {}


def test_a_clock_that_was_set_back_does_not_put_off_an_alert(fleet):
    fleet(events.Lost("d1"))
    fleet.wall -= 400 * DAY
    fleet.later(0)
    fleet.later(HOUR)
    assert fleet.told == [("opened", "away", "d1")]


def test_a_clock_that_was_set_forward_does_not_make_a_device_be_away_for_longer(fleet):
    fleet(events.Lost("d1"))
    fleet.later(HOUR / 2)
    fleet.wall += 20 * DAY
    fleet.feed(AlertsTicked(fleet.wall, 20 * DAY))
    fleet.later(HOUR / 2 - 1)
    assert fleet.told == []
    fleet.later(1)
    assert fleet.told == [("opened", "away", "d1")]


def test_a_message_is_sent_again_later_and_later_and_given_up_after_three_days(fleet):
    fleet(events.Lost("d1"))
    fleet.later(HOUR)
    waits = []
    while fleet.state.outbox:
        ((key, outgoing),) = fleet.state.outbox.items()
        waits.append(outgoing.at - fleet.wall)
        fleet.wall = outgoing.at
        assert outgoing.due(fleet.wall)
        fleet.feed(NoticeFailed(fleet.wall, key))
    assert waits[:4] == [0, 10, 20, 40]
    assert max(waits) == HOUR
    assert GIVEN_UP <= sum(waits) <= GIVEN_UP + HOUR
    fleet.feed(NoticeFailed(fleet.wall, key))
    assert fleet.told == [("opened", "away", "d1")]


def test_a_message_that_was_delivered_is_not_kept(fleet):
    fleet(events.Lost("d1"))
    fleet.later(HOUR)
    fleet.feed(NoticeDelivered(fleet.wall, next(iter(fleet.state.outbox))))
    assert fleet.state.outbox == {}


def test_messages_for_a_channel_that_is_gone_are_dropped(fleet):
    fleet(events.Lost("d1"))
    fleet.later(HOUR)
    fleet.rules = AlertRules()
    fleet.later(1)
    assert fleet.state.outbox == {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_what_is_wrong_and_what_to_do(kind):
    one = Alert(kind, "north", "d1", 0.0, 3600.0, "a {reason}", told=HOUR)
    assert "{name" not in alert_texts.text(one, 2 * HOUR)
    assert len(alert_texts.remedy(one)) > 20
    for what in ("opened", "closed"):
        for alerts in ((one,), (one, one)):
            notice = AlertNotice(what, 2 * HOUR, alerts)
            assert "north" in alert_texts.title(notice)
            assert len(alert_texts.body(notice).splitlines()) >= len(alerts)


def test_a_thousand_devices_are_one_line():
    alerts = tuple(Alert("away", "north", f"d{number:04}", 0.0) for number in range(1000))
    title = alert_texts.title(AlertNotice("opened", HOUR, alerts))
    assert title.startswith("fleet 'north': devices are away: 1000 (d0000, d0001")
    assert title.endswith("and 980 more)")


FACTS = st.sampled_from(
    [
        *(events.Joined(name) for name in ("d1", "d2")),
        *(events.Lost(name, "gone") for name in ("d1", "d2")),
        events.Lost("d1", "rests", resting=True),
        events.DataBroken("d1", "broken", 1.0),
        events.DataMended("d1"),
        events.Vitals("d1", temperature=90.0, disk_free=10),
        events.Vitals("d1", temperature=20.0, disk_free=10**10),
        events.Disconnected("x"),
        events.Connected(),
        events.Enrolled(("d1", "d2")),
        events.Enrolled(("d1",)),
        events.Certificate("d1", 1010 * DAY),
        events.Certificate("d1", 1200 * DAY),
    ]
)


@given(st.lists(st.tuples(FACTS, st.sampled_from([0.0, 60.0, 900.0, HOUR, DAY, -DAY])), max_size=60))
def test_between_two_messages_of_one_cause_it_was_over_and_no_message_is_about_nothing(happenings):
    fleet = Told()
    for fact, seconds in happenings:
        fleet(fact)
        fleet.later(seconds)
    told = Counter((one.what, alert.id) for one in fleet.notices.values() for alert in one.alerts)
    assert set(told.values()) <= {1}
    assert all(("opened", id) in told for what, id in told if what == "closed")
    opened = {alert.key: alert for one in fleet.notices.values() for alert in one.alerts if one.what == "opened"}
    assert all(opened[alert.key].id == alert.id for alert in fleet.state.open)
