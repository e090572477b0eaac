"""An overview of a run, from its facts and from nothing else."""

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base import events
from edgefl.base.errors import RemoteError
from edgefl.base.events import Fact, Round
from edgefl.watch.overview import notes, standing
from edgefl.watch.overview import overview as module
from edgefl.watch.overview.overview import Overview
from edgefl.watch.overview.sentences import words
from edgefl.watch.overview.snapshot import plain, read

STARTED = events.Started("sensors", "1f2e", "mqtt://b", "ed25519:k", "fedgc", 5, 60.0, at=1.0)
ASKED = (
    STARTED,
    events.Joined("a", 10, at=2.0),
    events.Joined("b", 20, at=2.0),
    events.Asked(1, 7, ("a", "b"), 9, at=3.0),
)


def told(*facts: Fact) -> Overview:
    overview = Overview()
    for fact in facts:
        overview.tell(fact)
    return overview


def test_the_round_in_hand_says_who_is_awaited_and_until_when():
    overview = told(*ASKED, events.Answered("a", 1, 500, took=2.0, at=5.0))
    here = overview.open
    assert (here.asked, here.answered, here.awaited) == (["a", "b"], ["a"], ["b"])
    assert (here.deadline_at, here.bytes_up, here.bytes_down) == (63.0, 500, 9)
    overview.tell(events.Extended(1, ("b",), at=63.0))
    assert (overview.open.deadline_at, overview.open.extended) == (123.0, 1)
    overview.tell(events.Declined("b", 1, "too warm", at=70.0))
    assert (overview.open.awaited, overview.open.declined) == ([], {"b": "too warm"})


def test_where_rounds_wait_for_nobody_an_old_answer_counts_in_the_round_in_hand():
    overview = told(*ASKED, events.Answered("a", 1, 9, at=5.0), events.Closed(1, ("a",), at=5.0), Round(1, at=6.0))
    overview.tell(events.Asked(2, 8, ("a",), 9, at=6.0))
    overview.tell(events.Answered("b", 1, 9, at=7.0))
    assert (overview.open.round, overview.open.answered, overview.open.awaited) == (2, ["b"], ["a"])


def test_a_round_is_its_line_in_the_metrics_and_what_else_happened():
    report = Round(
        1, scores={"accuracy": 0.5, "loss": 1.5}, per_class=(0.1, None), devices=1, seconds=61.0, bytes_up=500, at=65.0
    )
    overview = told(
        *ASKED,
        events.Answered("a", 1, 500, steps=10, took=2.0, seconds_per_step=0.1, at=5.0),
        events.Closed(1, ("a",), ("b",), at=64.0),
        report,
        events.Answered("b", 1, 500, "late", "late", 10, took=67.0, seconds_per_step=6.0, at=70.0),
    )
    row = overview.rounds[1]
    assert {one.name: getattr(row, one.name) for one in fields(Round)} == {
        one.name: getattr(report, one.name) for one in fields(Round)
    }
    assert (row.asked, row.missing, row.late_devices) == (2, ("b",), ("b",))
    assert (row.training_seconds, row.merging_seconds, row.median_took) == (61.0, 1.0, 2.0)
    assert (row.slowest.device, row.slowest.took, row.slowest.training) == ("b", 67.0, 60.0)
    assert overview.open is None
    assert (overview.run.rounds_done, overview.run.bytes_up, overview.run.state) == (1, 500, "waiting")
    device = overview.devices["b"]
    assert (device.late, device.missed, device.took) == (1, 1, 67.0)


def test_a_device_is_followed_from_its_coming_to_its_end():
    states = []
    overview = told(*ASKED)
    for fact in (
        events.Progressed("a", 1, 7, at=4.0),
        events.Sending("a", at=5.0),
        events.Answered("a", 1, 500, took=3.0, at=6.0),
        events.Round(1, at=7.0),
        events.Quarantined("a", "too much", at=8.0),
        events.Joined("a", 10, at=9.0),
        events.Released("a", at=10.0),
        events.Lost("a", "power", at=11.0),
        events.Lost("a", at=12.0),
    ):
        overview.tell(fact)
        states.append(overview.devices["a"].state)
    away = ["quarantined", "quarantined", "idle", "offline", "offline"]
    assert states == ["training", "sending", "answered", "idle", *away]
    device = overview.devices["a"]
    assert (device.since, device.why, device.last_seen, device.joined) == (11.0, "power", 9.0, 2)
    assert overview.story("a")[-2:] == [(11.0, "is disconnected: power"), (12.0, "is disconnected")]


def test_how_a_machine_fares_stands_in_its_row_and_why_it_rests_too():
    vitals = events.Vitals("a", temperature=84.0, throttled=True, at=4.0)
    overview = told(*ASKED, vitals, events.Lost("a", "rests: 84.0 °C, at most 70", at=5.0))
    row = overview.devices["a"]
    assert (row.vitals["temperature"], row.vitals["throttled"], row.vitals["at"]) == (84.0, True, 4.0)
    assert (row.state, row.why, row.sequence) == ("offline", "rests: 84.0 °C, at most 70", overview.sequence)
    assert plain(overview.snapshot())["devices"][0]["vitals"] == dict(row.vitals)
    assert words(vitals) == "a reports: 84.0 °C, throttled"


def test_who_is_no_member_has_no_row_and_cannot_fill_the_notes():
    overview = told(*(events.Refused(f"x{i}", "device.unknown", "who?", at=float(i)) for i in range(1000)))
    assert not overview.devices
    assert len(overview.snapshot().notes) == notes.NOTES
    overview = told(*(events.Refused("-", "device.unknown", "who?", at=float(i)) for i in range(1000)))
    (note,) = overview.snapshot().notes
    assert (note.times, note.first_at, note.at, note.device) == (1000, 0.0, 999.0, None)


def test_what_a_device_says_is_one_short_line():
    overview = told(*ASKED, events.Declined("a", 1, "\x1b[2J\n" + "x" * 5000, at=4.0))
    assert overview.devices["a"].why.startswith("\\x1b[2J\\nxxx")
    assert all(
        len(text) < 400 and text.isprintable() for text in (overview.devices["a"].why, overview.story("a")[-1][1])
    )


def test_after_a_restart_nobody_is_known_to_be_here_and_a_finished_run_may_go_on():
    overview = told(*ASKED, events.Quarantined("b", "too much", at=4.0), events.Done("sensors", "fedgc", 5, at=9.0))
    assert (overview.run.state, overview.run.ended_at, overview.run.started_at) == ("finished", 9.0, 1.0)
    overview.tell(events.Started("sensors", "1f2e", rounds=9, at=20.0))
    overview.tell(events.Resumed(2, at=21.0))
    run = overview.run
    assert (run.state, run.done, run.started_at, run.restarts, run.rounds) == ("waiting", None, 1.0, 1, 9)
    assert [(row.state, row.live) for row in overview.devices.values()] == [("asked", False), ("offline", False)]


def test_who_was_slow_in_a_span_of_time_is_known_afterwards():
    facts = [STARTED]
    for day, slow in ((1, "a"), (2, "c")):
        for round in (10 * day, 10 * day + 1):
            at = 86400.0 * day + round
            took = {name: 8.0 if name == slow else 2.0 for name in "abc"}
            answers = (events.Answered(name, round, 1, took=took[name], seconds_per_step=0.1, at=at) for name in "abc")
            facts += [events.Asked(round, round, ("a", "b", "c", "d"), 1, at=at), *answers]
            facts += [events.Closed(round, ("a", "b", "c"), ("d",), at=at), events.Round(round, at=at)]
    overview = told(*facts)
    never, slowest, *_ = overview.slow(since=2 * 86400.0)
    assert (never.device, never.missed, never.answers, never.slow) == ("d", 2, 0, True)
    assert (slowest.device, slowest.median_took, slowest.times_cohort, slowest.slowest_round) == ("c", 8.0, 4.0, 20)
    assert [one.device for one in overview.slow(until=2 * 86400.0)[:2]] == ["d", "a"]
    assert [one.device for one in overview.slow() if one.slow] == ["d", "a", "c"]


def test_what_devices_saw_belongs_to_the_round_of_the_model():
    confusion, judge = ((3, 1), (0, 4)), events.Evaluating(None, 0, 0, None, 0, 2, ("x", "y"), on="devices", at=1.5)
    overview = told(*ASKED[:1], judge, *ASKED[1:], Round(1, devices=2, bytes_up=10, at=5.0))
    assert overview.snapshot().opinion is None
    seen = events.Evaluated(
        1,
        {"accuracy": 0.9, "balanced_accuracy": 0.8, "loss": 0.3},
        confusion=confusion,
        per_device={"a": {"accuracy": 0.7}},
        at=8.0,
    )
    overview.tell(seen)
    overview.tell(Round(2, devices=2, at=8.0))
    overview.tell(events.Evaluated(1, {"accuracy": 0.1}, at=9.0))
    row = overview.rounds[1]
    assert (row.evaluated.accuracy, row.evaluated.confusion, row.evaluated.per_device) == (0.9, confusion, None)
    assert overview.devices["a"].evaluated == {"accuracy": 0.7}
    assert (overview.run.best.round, overview.run.best.accuracy) == (1, 0.9)
    assert overview.snapshot().opinion is row.evaluated, "the newest that there is"
    overview.tell(events.Asked(3, 9, ("a",), 5, "evaluate", at=10.0))
    assert overview.open.purpose == "evaluate"
    overview.tell(events.Closed(3, ("a",), at=11.0))
    overview.tell(events.Evaluated(2, {"accuracy": 0.95}, confusion=confusion, bytes_up=7, at=12.0))
    assert (overview.open, overview.run.best.round, overview.run.bytes_up) == (None, 2, 17)
    assert overview.rounds[1].evaluated.confusion is None, "of the newest only: they are large"
    overview.tell(events.Answered("b", 3, 1, at=13.0))
    overview.tell(events.Done("sensors", "fedgc", 2, at=14.0))
    assert overview.devices["b"].state == "idle", "the run is over, and no report tells of a round that only evaluates"


def test_figures_that_are_no_numbers_are_null_in_json():
    text = json.dumps(
        plain(told(STARTED, Round(1, scores={"accuracy": 0.5, "loss": float("nan")})).snapshot()), allow_nan=False
    )
    assert json.loads(text)["rounds"][0]["loss"] is None


@pytest.mark.parametrize("text", [b"", b"{}", b'{"format": "x"}', b"[1]"])
def test_what_is_no_overview_is_refused(text):
    with pytest.raises(RemoteError, match=r"http://b: this is no overview"):
        read(text, "http://b")


def test_another_version_is_told_apart_and_new_fields_are_left_out():
    known = plain(told(*ASKED).snapshot())
    with pytest.raises(RemoteError, match="another version"):
        read(json.dumps(known | {"version": 99}).encode(), "x")
    assert plain(read(json.dumps(known | {"of_tomorrow": 1}).encode(), "x")) == known


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────

DEVICES = st.sampled_from(["pi-1", "pi-2", "pi-3", "-"])
SOME = st.lists(DEVICES, unique=True, max_size=3).map(tuple)
NUMBERS = st.integers(1, 6)
TIMES = st.none() | st.floats(0.001, 100)
VERDICTS = st.sampled_from(["accepted", "late", "ignored", "refused"])
FIGURES = st.fixed_dictionaries({}, optional={"accuracy": st.floats(0, 1), "loss": st.floats(0, 10)})
REPORTS = st.builds(
    Round,
    NUMBERS,
    scores=FIGURES,
    bytes_up=st.integers(0, 1000),
    late=st.integers(0, 3),
    bounded=st.dictionaries(DEVICES, st.just({"norm": 1.0}), max_size=2),
)
FACTS = st.one_of(
    st.builds(events.Joined, DEVICES),
    st.builds(events.Lost, DEVICES, st.just("gone")),
    st.builds(events.Progressed, DEVICES, NUMBERS, NUMBERS),
    st.builds(events.Sending, DEVICES),
    st.builds(events.Answered, DEVICES, NUMBERS, NUMBERS, VERDICTS, took=TIMES, seconds_per_step=TIMES),
    st.builds(events.Declined, DEVICES, NUMBERS, st.text(max_size=5)),
    st.builds(events.Busy, DEVICES, NUMBERS, st.just("other")),
    st.builds(events.Refused, DEVICES, st.just("x"), st.text(max_size=5)),
    st.builds(events.Quarantined, DEVICES, st.just("bad")),
    st.builds(events.Released, DEVICES),
    st.builds(events.Certified, DEVICES),
    st.builds(events.Asked, NUMBERS, NUMBERS, SOME, NUMBERS),
    st.builds(events.Extended, NUMBERS, SOME),
    st.builds(events.Abandoned, NUMBERS, st.just("few")),
    st.builds(events.Closed, NUMBERS, SOME, SOME),
    REPORTS,
    st.builds(events.Evaluated, NUMBERS, FIGURES, bytes_up=NUMBERS),
    st.builds(events.Resumed, NUMBERS),
    st.builds(events.Waiting, st.text(max_size=5), st.booleans()),
    st.builds(events.Paused, st.just("full")),
    st.builds(events.Disconnected, st.just("away")),
    st.just(events.Connected()),
    st.builds(events.Done, st.just("r"), st.just("fedavg"), NUMBERS),
    st.just(STARTED),
)
STORIES = st.lists(FACTS, max_size=40)


@given(STORIES)
def test_the_same_facts_give_the_same_overview_and_json_loses_nothing(story):
    first, second = told(*story), told(*story)
    shown = plain(first.snapshot())
    assert shown == plain(second.snapshot())
    assert plain(read(json.dumps(shown, allow_nan=False).encode(), "x")) == shown


@given(STORIES, STORIES)
def test_whoever_hears_only_of_changes_knows_as_much(before, after):
    overview = told(*before)
    seen = plain(overview.snapshot())
    for fact in after:
        overview.tell(fact)
    news, everything = plain(overview.changes(seen["sequence"])), plain(overview.snapshot())
    for rows, name in (("rounds", "round"), ("devices", "name")):
        known = {row[name]: row for row in seen[rows]} | {row[name]: row for row in news[rows]}
        assert known == {row[name]: row for row in everything[rows]}
    assert (news["run"], news["open"]) == (everything["run"], everything["open"])
    assert not plain(overview.changes(overview.sequence))["devices"]


@given(STORIES, st.lists(REPORTS, max_size=5))
def test_a_report_that_is_told_again_counts_once(story, reports):
    overview = told(*story, *reports)
    sums = overview.run.bytes_up, overview.run.late, overview.run.best, dict(overview.rounds)
    for report in reversed(reports):
        overview.tell(report)
    assert (overview.run.bytes_up, overview.run.late, overview.run.best, overview.rounds) == sums
    seen = sum(row.evaluated.bytes_up for row in overview.rounds.values() if row.evaluated)
    assert overview.run.bytes_up == seen + sum(row.bytes_up for row in overview.rounds.values())


def test_a_round_that_was_thinned_out_and_is_told_again_counts_once(monkeypatch):
    monkeypatch.setattr(module, "ROUNDS", 4)
    rounds = [Round(number, bytes_up=10) for number in range(1, 9)]
    overview = told(*rounds, *rounds)
    assert overview.run.bytes_up == 80
    assert set(overview.rounds) < set(range(1, 9))


@given(STORIES)
def test_rounds_do_not_depend_on_what_else_is_told_between_their_facts(story):
    """Devices, notes and the broker are other people's business."""
    about = (
        events.Evaluated,
        events.Asked,
        events.Answered,
        events.Declined,
        events.Extended,
        events.Abandoned,
        events.Closed,
        Round,
    )
    alone = told(*(fact for fact in story if isinstance(fact, (*about, events.Started, events.Lost))))
    whole = told(*story)

    def rows(overview: Overview) -> list[dict[str, object]]:
        return [row | {"sequence": 0} for row in plain(overview.snapshot())["rounds"]]

    assert rows(whole) == rows(alone)


def test_it_stays_small_however_long_a_run_goes_on(monkeypatch):
    for name, most in (("ROUNDS", 40), ("DEVICES", 20), ("STORY", 5)):
        monkeypatch.setattr(module, name, most)
    monkeypatch.setattr(notes, "NOTES", 6)
    monkeypatch.setattr(standing, "CHANGES", 3)
    overview = Overview()
    overview.turns.kept = 100
    for round in range(1, 1001):
        names = tuple(f"pi-{(round + i) % 50}" for i in range(4))
        at = float(round)
        overview.tell(events.Changed("run.rounds", round, round + 1, at=at))
        for name in names:
            overview.tell(events.Joined(name, at=at))
        overview.tell(events.Asked(round, round, names, 1, at=at))
        for name in names:
            overview.tell(events.Answered(name, round, 1, took=1.0, at=at))
        overview.tell(events.Declined(names[0], round, f"no {round}", at=at))
        overview.tell(Round(round, scores={"accuracy": 0.9 if round == 333 else 0.5}, bytes_up=1, at=at))
    assert len(overview.rounds) <= 40
    assert {1, 333, *range(overview.rounds_from, 1001)} <= set(overview.rounds)
    assert (overview.run.rounds_done, overview.run.bytes_up, overview.run.best.round) == (1000, 1000, 333)
    assert len(overview.devices) <= 20
    assert set(overview._stories) <= set(overview.devices)
    assert all(len(story) <= 5 for story in overview._stories.values())
    assert (len(overview.turns) <= 100, len(overview.snapshot().notes), len(overview.run.changes)) == (True, 6, 3)
    assert len(overview._changed) <= len(overview.rounds) + len(overview.devices)


def test_a_folder_that_leaves_out_how_a_device_came_and_went_says_where_it_is():
    overview = Overview()
    for fact in (events.Joined("a", at=1.0), events.LeftOut("a", {"joined": 4210, "lost": 1}, at=2.0)):
        overview.tell(fact)
    assert overview.devices["a"].state == "offline"
    assert overview.story("a")[-1] == (2.0, "did this 4,211 times more in this hour: joined 4,210, lost 1")
    overview.tell(events.LeftOut("a", {"joined": 2}, there=True, at=3.0))
    assert overview.devices["a"].state == "idle"
