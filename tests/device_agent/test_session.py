"""The session machine, told event by event."""

import json
from dataclasses import asdict

import pytest

from device_agent.session import (
    Action,
    Announce,
    AnnounceLater,
    Busy,
    CancelTraining,
    Commit,
    Connected,
    Decline,
    Disconnected,
    Event,
    Fetch,
    Forget,
    ModelArrived,
    Note,
    Quit,
    Receipted,
    Refused,
    Resend,
    Send,
    SendChunks,
    Session,
    StateSeen,
    Stopped,
    Tasked,
    Train,
    Trained,
    TrainingFailed,
    Update,
    step,
)

TASK = Tasked("job", 3, "m3", "1")
FETCHING = [Connected(), TASK]
TRAINING = [*FETCHING, ModelArrived("m3")]
SENDING = [*TRAINING, Trained(3, "d3")]
DONE = [*SENDING, Receipted(3, "d3", "accepted")]


def feed(s: Session, *events: Event) -> tuple[Session, list[Action]]:
    did: list[Action] = []
    for event in events:
        s, actions = step(s, event)
        did += actions
    return s, did


def after(*events: Event) -> Session:
    return feed(Session(), *events)[0]


def spoken(did: list[Action]) -> list[Action]:
    return [a for a in did if not isinstance(a, Note)]


def test_a_healthy_round_from_hello_to_commit():
    s, did = feed(Session(), *DONE)
    assert did == [Announce(), Fetch("m3"), Train(3, "m3"), Send(3, "d3"), Commit(3, "d3"), Forget(3, "d3")]
    assert (s.phase, s.task, s.held) == ("idle", None, {})


def test_a_model_at_hand_is_not_fetched_again():
    _, did = feed(after(Connected(), ModelArrived("m3")), TASK)
    assert did == [Train(3, "m3")]


def test_another_model_does_not_start_the_training():
    s, did = feed(after(*FETCHING), ModelArrived("m2"))
    assert (s.phase, did) == ("fetching", [])


# ── tasks that come again, tasks that come instead ───────────────────────────────────────────────────────────


def test_the_same_task_again_while_training_is_ignored():
    s = after(*TRAINING)
    assert feed(s, TASK) == (s, [])


def test_the_same_task_again_while_the_update_is_held_sends_it_again():
    _, did = feed(after(*SENDING), TASK, Tasked("job", 3, "m3", "5"))
    assert did == [Send(3, "d3"), Send(3, "d3")]


def test_a_round_that_was_receipted_is_not_trained_again():
    s, did = feed(after(*DONE), TASK)
    assert (s.phase, spoken(did)) == ("idle", [])


def test_a_receipted_round_that_was_abandoned_is_trained_again_but_committed_once():
    _, did = feed(after(*DONE), Tasked("job", 3, "m3", "5"), Trained(3, "e3"), Receipted(3, "e3", "accepted"))
    assert did == [Train(3, "m3"), Send(3, "e3"), Forget(3, "e3")]


def test_a_newer_task_cancels_the_training_in_hand():
    s, did = feed(after(*TRAINING), Tasked("job", 4, "m4"))
    assert did == [CancelTraining(3), Fetch("m4")]
    s, did = feed(s, ModelArrived("m4"), Trained(3, "d3"))
    assert spoken(did) == [Train(4, "m4")]
    assert s.phase == "training"


def test_a_newer_task_makes_the_held_update_worthless():
    _, did = feed(after(*SENDING), Tasked("job", 4, "m4"))
    assert did == [Forget(3, "d3"), Fetch("m4")]


def test_a_newer_task_can_bring_the_receipt_that_was_lost():
    _, did = feed(after(*SENDING), Tasked("job", 5, "m5", counted=3), Receipted(3, "d3", "accepted"))
    assert did == [Commit(3, "d3"), Forget(3, "d3"), Fetch("m5")]


@pytest.mark.parametrize("story", [FETCHING, TRAINING, SENDING, DONE], ids=["fetching", "training", "sending", "done"])
def test_an_older_task_is_ignored(story):
    s = after(*story)
    later, did = feed(s, Tasked("job", 2, "m2"))
    assert (later, spoken(did)) == (s, [])


# ── two runs, one device ─────────────────────────────────────────────────────────────────────────────────────

OTHER = Tasked("other", 1, "n1", "1")


@pytest.mark.parametrize("story", [FETCHING, TRAINING], ids=["fetching", "training"])
def test_a_task_of_another_run_waits_and_its_coordinator_is_told(story):
    s, did = feed(after(*story), OTHER)
    assert did == [Busy("other", 1, "at work on round 3 of another run")]
    assert (s.task, s.queue) == (TASK, (OTHER,))


def test_it_is_taken_up_when_the_work_is_done_without_waiting_for_a_receipt():
    s, did = feed(after(*TRAINING, OTHER), Trained(3, "d3"))
    assert did == [Send(3, "d3"), Fetch("n1")]
    s, did = feed(s, ModelArrived("n1"), Trained(1, "e1"), Receipted(3, "d3", "accepted"))
    assert did == [Train(1, "n1"), Send(1, "e1"), Commit(3, "d3"), Forget(3, "d3")]
    assert feed(s, Receipted(1, "e1", "accepted"))[1] == [Commit(1, "e1"), Forget(1, "e1")]


def test_an_update_of_a_coordinator_that_is_away_holds_nobody_up_and_is_not_lost():
    s, did = feed(after(*SENDING), OTHER, ModelArrived("n1"), Trained(1, "e1"), Receipted(1, "e1", "accepted"))
    assert did == [Fetch("n1"), Train(1, "n1"), Send(1, "e1"), Commit(1, "e1"), Forget(1, "e1")]
    assert feed(s, TASK)[1] == [Send(3, "d3")]


@pytest.mark.parametrize(
    "end",
    [TrainingFailed(3, "out of memory"), StateSeen("job", 4, "training"), StateSeen("job", 3, "finished")],
    ids=["failed", "round over", "job ended"],
)
def test_it_is_taken_up_too_when_the_work_in_hand_comes_to_nothing(end):
    s, did = feed(after(*TRAINING, OTHER), end)
    assert did[-1] == Fetch("n1")
    assert (s.task, s.queue) == (OTHER, ())


def test_a_run_that_asks_ever_anew_does_not_starve_the_other():
    newer = Tasked("job", 4, "m4", "1")
    s, did = feed(after(*TRAINING, OTHER), newer)
    assert did == [CancelTraining(3), Fetch("n1"), Busy("job", 4, "at work on round 1 of another run")]
    assert (s.task, s.queue) == (OTHER, (newer,))


def test_a_newer_round_takes_the_place_of_the_one_that_waits():
    third, newer = Tasked("third", 7, "x7"), Tasked("other", 2, "n2")
    s, did = feed(after(*TRAINING, OTHER, third), newer, newer, OTHER)
    assert s.queue == (newer, third)
    assert spoken(did) == [Busy("other", 2, "at work on round 3 of another run")] * 2


def test_what_waits_for_a_round_that_is_over_or_a_run_that_ended_is_dropped():
    assert feed(after(*TRAINING, OTHER), StateSeen("other", 2, "training"))[0].queue == ()
    assert feed(after(*TRAINING, OTHER), StateSeen("other", 1, "finished"))[0].queue == ()
    assert feed(after(*TRAINING, OTHER), StateSeen("other", 1, "training"))[0].queue == (OTHER,)


def test_more_runs_than_a_device_can_keep_in_mind_are_declined():
    s = after(*TRAINING, *(Tasked(f"run-{i}", 1, f"x{i}") for i in range(8)))
    later, did = feed(s, Tasked("one-more", 1, "y"))
    assert later == s
    assert isinstance(did[0], Decline)


def test_the_oldest_of_too_many_updates_without_a_receipt_makes_room():
    s, did = after(Connected()), []
    for i in range(5):
        s, did = feed(s, Tasked(f"run-{i}", 1, f"x{i}"), ModelArrived(f"x{i}"), Trained(1, f"d{i}"))
    assert list(s.held) == ["run-1", "run-2", "run-3", "run-4"]
    assert Forget(1, "d0") in did


# ── the link goes and comes back ─────────────────────────────────────────────────────────────────────────────


def test_training_goes_on_offline_and_the_update_is_sent_on_return():
    s, did = feed(after(*TRAINING), Disconnected(), Trained(3, "d3"))
    assert did == []
    _, did = feed(s, Connected())
    assert did == [Announce(), Send(3, "d3")]


def test_a_fetch_that_was_cut_off_is_asked_for_again():
    _, did = feed(after(*FETCHING), Disconnected(), Connected())
    assert did == [Announce(), Fetch("m3")]


def test_an_update_from_the_spool_is_sent_after_a_restart():
    _, did = feed(Session(held={"job": Update(TASK, "d3")}), Connected())
    assert did == [Announce(), Send(3, "d3")]


def test_a_task_heard_just_after_the_cut_waits_for_the_link():
    s, did = feed(Session(), TASK)
    assert did == []
    _, did = feed(s, Connected())
    assert did == [Announce(), Fetch("m3")]


def test_missing_chunks_are_sent_again_while_the_update_is_held():
    _, did = feed(after(*SENDING), Resend("d3", (1, 4)), Resend("other", (1,)), Disconnected(), Resend("d3", (2,)))
    assert did == [SendChunks("d3", (1, 4))]
    assert feed(after(*DONE), Resend("d3", (1,)))[1] == []


# ── receipts and refusals ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verdict", ["accepted", "duplicate"])
def test_an_update_that_counts_is_committed_before_it_is_forgotten(verdict):
    _, did = feed(after(*SENDING), Receipted(3, "d3", verdict))
    assert did == [Commit(3, "d3"), Forget(3, "d3")]


@pytest.mark.parametrize("verdict", ["late", "refused"])
def test_an_update_that_does_not_count_is_forgotten_without_commit(verdict):
    s, did = feed(after(*SENDING), Receipted(3, "d3", verdict))
    assert did == [Forget(3, "d3")]
    assert s.phase == "idle"


@pytest.mark.parametrize("story", [[], TRAINING, DONE], ids=["idle", "training", "done"])
def test_a_receipt_for_nothing_in_hand_is_ignored(story):
    s = after(*story)
    assert feed(s, Receipted(3, "d3", "accepted")) == (s, [])


def test_a_receipt_for_another_update_is_ignored():
    s = after(*SENDING)
    assert feed(s, Receipted(3, "x", "accepted"), Receipted(2, "d3", "accepted")) == (s, [])


@pytest.mark.parametrize("story", [[], TRAINING, SENDING], ids=["idle", "training", "sending"])
def test_no_refusal_ends_the_agent_or_its_work(story):
    s = after(*story)
    assert feed(s, Refused("version", "update needed")) == (s, [AnnounceLater("version", "update needed")])


# ── work that fails or is no longer wanted ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("story", [FETCHING, TRAINING], ids=["fetching", "training"])
def test_a_task_that_fails_is_declined_with_the_reason(story):
    s, did = feed(after(*story), TrainingFailed(3, "out of memory"))
    assert spoken(did) == [Decline("job", 3, "out of memory")]
    assert s.phase == "idle"


def test_a_failure_offline_is_not_declined_because_the_return_brings_the_task_again():
    _, did = feed(after(*TRAINING), Disconnected(), TrainingFailed(3, "out of memory"), Connected(), TASK)
    assert spoken(did) == [Announce(), Train(3, "m3")]


def test_a_failure_of_another_round_is_ignored():
    s = after(*TRAINING)
    assert feed(s, TrainingFailed(2, "old")) == (s, [])


@pytest.mark.parametrize("phase", ["gathering", "training"])
def test_a_round_that_is_over_is_not_trained_to_the_end(phase):
    s, did = feed(after(*TRAINING), StateSeen("job", 4, phase))
    assert spoken(did) == [CancelTraining(3)]
    assert s.phase == "idle"


@pytest.mark.parametrize(
    "seen", [StateSeen("job", 3, "training"), StateSeen("job", 3, "gathering"), StateSeen("other", 9, "training")]
)
def test_a_round_that_is_not_over_goes_on(seen):
    s = after(*TRAINING)
    assert feed(s, seen) == (s, [])


def test_overtime_lets_the_training_of_a_closed_round_go_on_but_not_its_fetch():
    s = after(Connected(), Tasked("job", 3, "m3", "1", overtime=True))
    assert feed(s, StateSeen("job", 4, "training"))[0].phase == "idle"
    s, _ = feed(s, ModelArrived("m3"))
    assert feed(s, StateSeen("job", 4, "training")) == (s, [])


def test_an_update_in_hand_outlives_its_round_until_the_receipt():
    s = after(*SENDING)
    assert feed(s, StateSeen("job", 9, "training")) == (s, [])


def test_the_end_of_the_job_clears_the_hands():
    end = StateSeen("job", 3, "finished")
    assert spoken(feed(after(*TRAINING), end)[1]) == [CancelTraining(3)]
    assert spoken(feed(after(*SENDING), end)[1]) == [Forget(3, "d3")]
    assert feed(after(*DONE), end)[1] == []


def test_the_end_of_another_job_changes_nothing():
    s = after(*TRAINING)
    assert feed(s, StateSeen("other", 3, "finished")) == (s, [])


def test_a_stop_cancels_the_training_and_hears_nothing_more():
    _, did = feed(after(*TRAINING), Stopped(), Stopped(), Trained(3, "d3"))
    assert did == [CancelTraining(3), Quit("stopped")]


def test_a_stop_keeps_the_update_for_the_next_start():
    s, did = feed(after(*SENDING), Stopped())
    assert did == [Quit("stopped")]
    assert s.held == {"job": Update(TASK, "d3")}


def test_the_state_can_be_written_as_json():
    written = json.loads(json.dumps(asdict(after(*DONE, Tasked("job", 4, "m4")))))
    assert written["task"]["round"] == 4
    assert written["answered"] == {"job": [3, "1"]}
