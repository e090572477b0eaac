"""The session machine, told event by event."""

import json
from dataclasses import asdict, replace

import pytest

from device_agent.decide.session import HOPELESS, MOST_FAILURES, MOST_SEEN, HeldUpdate, Session, step
from device_agent.decide.vocabulary import (
    Action,
    AgentConnected,
    AgentDisconnected,
    Announce,
    AnnounceLater,
    AskAgain,
    CancelTraining,
    Commit,
    Decline,
    Event,
    Fetch,
    Forget,
    LogNote,
    ModelArrived,
    ModelDisbelieved,
    ModelOverdue,
    Offer,
    Quit,
    Receipted,
    RefusalReceived,
    ReportBusy,
    ResendRequested,
    Send,
    SendChunks,
    StateSeen,
    Stopped,
    Tasked,
    Train,
    Trained,
    TrainingFailed,
)

TASK = Tasked("job", "r", 3, "m3", "1")
FETCHING = [AgentConnected(), TASK]
TRAINING = [*FETCHING, ModelArrived(TASK)]
SENDING = [*TRAINING, Trained(3, "d3")]
DONE = [*SENDING, Receipted(3, "d3", "accepted")]
OTHER = Tasked("other", "r", 1, "n1", "1")


def feed(s: Session, *events: Event) -> tuple[Session, list[Action]]:
    did: list[Action] = []
    for event in events:
        s, actions = step(s, event)
        did += actions
    return s, did


def after(*events: Event) -> Session:
    return feed(Session(), *events)[0]


def spoken(did: list[Action]) -> list[Action]:
    return [a for a in did if not isinstance(a, LogNote)]


def test_a_healthy_round_from_hello_to_commit():
    s, did = feed(Session(), *DONE)
    assert did == [Announce(), Fetch(TASK), Train(TASK), Send(3, "d3"), Commit(3, "d3"), Forget(3, "d3")]
    assert (s.phase, s.task, s.held) == ("idle", None, {})


@pytest.mark.parametrize(
    "other",
    [Tasked("job", "r", 3, "m2"), Tasked("job", "r", 2, "m3"), Tasked("job", "s", 3, "m3"), Tasked("x", "r", 3, "m3")],
    ids=["another model", "another round", "another run", "another job"],
)
def test_another_model_does_not_start_the_training(other):
    s, did = feed(after(*FETCHING), ModelArrived(other))
    assert (s.phase, did) == ("fetching", [])


def test_a_task_keeps_all_that_was_said_about_it_and_asks_for_all_that_it_needs():
    full = Tasked("job", "r", 3, "m3", previous="m2", graphs="g", batches=5, seconds=2.0)
    assert full.needs == ((3, "m3"), (2, "m2"), (0, "g"))
    assert feed(after(AgentConnected(), full), ModelArrived(full))[1] == [Train(full)]


# ── models that do not come, or come from somebody else ──────────────────────────────────────────────────────


def test_a_model_that_does_not_come_is_asked_for_again_for_as_long_as_nobody_waits():
    s, did = feed(after(*FETCHING), ModelOverdue("m3", 3.0), ModelOverdue("m3", 3000.0))
    assert did == [AskAgain(TASK, "m3")] * 2
    assert s.task == TASK


def test_it_is_declined_when_it_is_hopeless_and_other_runs_wait():
    s, did = feed(after(*FETCHING, OTHER), ModelOverdue("m3", HOPELESS), ModelOverdue("m3", HOPELESS + 1))
    assert spoken(did) == [
        AskAgain(TASK, "m3"),
        Decline(TASK, "model m3 does not come, and other runs wait"),
        Fetch(OTHER),
    ]
    assert s.task == OTHER


def test_a_forged_model_is_asked_for_again_and_then_declined():
    times = [ModelDisbelieved("m3", number, "model.signature: not ours") for number in (1, 2, 3)]
    s, did = feed(after(*FETCHING), *times)
    assert spoken(did) == [AskAgain(TASK, "m3", forged=True)] * 2 + [Decline(TASK, "model.signature: not ours")]
    assert s.phase == "idle"


@pytest.mark.parametrize("story", [[], TRAINING, SENDING], ids=["idle", "training", "sending"])
@pytest.mark.parametrize("event", [ModelOverdue("m3", 99.0), ModelDisbelieved("m3", 9, "why")], ids=["late", "forged"])
def test_what_is_said_of_a_model_that_nobody_waits_for_changes_nothing(story, event):
    s = after(*story)
    assert feed(s, event) == (s, [])


# ── tasks that come again, tasks that come instead ───────────────────────────────────────────────────────────


def test_the_same_task_again_while_training_is_ignored():
    s = after(*TRAINING)
    assert feed(s, TASK) == (s, [])


def test_the_same_task_again_replaces_what_was_said_and_is_still_the_same_work():
    again = replace(TASK, attempt="2", batches=7)
    s, did = feed(after(*FETCHING), again)
    assert did == [Fetch(again)]
    assert feed(s, ModelArrived(TASK))[1] == [Train(again)]


def test_the_same_task_again_while_the_update_is_held_asks_what_is_missing_of_it():
    _, did = feed(after(*SENDING), TASK, Tasked("job", "r", 3, "m3", "5"))
    assert did == [Offer(3, "d3"), Offer(3, "d3")]


def test_a_round_that_was_receipted_is_not_trained_again():
    s, did = feed(after(*DONE), TASK)
    assert (s.phase, spoken(did)) == ("idle", [])


def test_a_receipted_round_that_was_abandoned_is_trained_again_but_committed_once():
    again = Tasked("job", "r", 3, "m3", "5")
    story = again, ModelArrived(again), Trained(3, "e3"), Receipted(3, "e3", "accepted")
    assert feed(after(*DONE), *story)[1] == [Fetch(again), Train(again), Send(3, "e3"), Forget(3, "e3")]


def test_a_newer_task_cancels_the_training_in_hand():
    newer = Tasked("job", "r", 4, "m4")
    s, did = feed(after(*TRAINING), newer)
    assert did == [CancelTraining(3), Fetch(newer)]
    s, did = feed(s, ModelArrived(newer), Trained(3, "d3"))
    assert spoken(did) == [Train(newer)]
    assert s.phase == "training"


def test_a_newer_task_makes_the_held_update_worthless():
    newer = Tasked("job", "r", 4, "m4")
    assert feed(after(*SENDING), newer)[1] == [Forget(3, "d3"), Fetch(newer)]


def test_a_newer_task_can_bring_the_receipt_that_was_lost():
    newer = Tasked("job", "r", 5, "m5", counted=3)
    _, did = feed(after(*SENDING), newer, Receipted(3, "d3", "accepted"))
    assert did == [Commit(3, "d3"), Forget(3, "d3"), Fetch(newer)]


@pytest.mark.parametrize("story", [FETCHING, TRAINING, SENDING, DONE], ids=["fetching", "training", "sending", "done"])
def test_an_older_task_changes_nothing_and_its_coordinator_is_told_why(story):
    s, older = after(*story), Tasked("job", "r", 2, "m2")
    later, did = feed(s, older)
    (told,) = spoken(did)
    assert (later, told.task) == (s, older)
    assert told.reason.startswith(
        "round 2 is older than round 3, which this device has already worked on: if the run's folder was restored"
    )


# ── two runs, one device ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("story", [FETCHING, TRAINING], ids=["fetching", "training"])
def test_a_task_of_another_run_waits_and_its_coordinator_is_told(story):
    s, did = feed(after(*story), OTHER)
    assert did == [ReportBusy(OTHER, "at work on round 3 of another run")]
    assert (s.task, s.queue) == (TASK, (OTHER,))


def test_it_is_taken_up_when_the_work_is_done_without_waiting_for_a_receipt():
    s, did = feed(after(*TRAINING, OTHER), Trained(3, "d3"))
    assert did == [Send(3, "d3"), Fetch(OTHER)]
    s, did = feed(s, ModelArrived(OTHER), Trained(1, "e1"), Receipted(3, "d3", "accepted"))
    assert did == [Train(OTHER), Send(1, "e1"), Commit(3, "d3"), Forget(3, "d3")]
    assert feed(s, Receipted(1, "e1", "accepted"))[1] == [Commit(1, "e1"), Forget(1, "e1")]


def test_an_update_of_a_coordinator_that_is_away_holds_nobody_up_and_is_not_lost():
    s, did = feed(after(*SENDING), OTHER, ModelArrived(OTHER), Trained(1, "e1"), Receipted(1, "e1", "accepted"))
    assert did == [Fetch(OTHER), Train(OTHER), Send(1, "e1"), Commit(1, "e1"), Forget(1, "e1")]
    assert feed(s, TASK)[1] == [Offer(3, "d3")]


@pytest.mark.parametrize(
    "end",
    [TrainingFailed(3, "out of memory"), StateSeen("job", "r", 4, "training"), StateSeen("job", "r", 3, "finished")],
    ids=["failed", "round over", "job ended"],
)
def test_it_is_taken_up_too_when_the_work_in_hand_comes_to_nothing(end):
    s, did = feed(after(*TRAINING, OTHER), end)
    assert did[-1] == Fetch(OTHER)
    assert (s.task, s.queue) == (OTHER, ())


def test_a_run_that_asks_ever_anew_does_not_starve_the_other():
    newer = Tasked("job", "r", 4, "m4", "1")
    s, did = feed(after(*TRAINING, OTHER), newer)
    assert did == [CancelTraining(3), Fetch(OTHER), ReportBusy(newer, "at work on round 1 of another run")]
    assert (s.task, s.queue) == (OTHER, (newer,))


def test_a_newer_round_takes_the_place_of_the_one_that_waits():
    third, newer = Tasked("third", "r", 7, "x7"), Tasked("other", "r", 2, "n2")
    s, did = feed(after(*TRAINING, OTHER, third), newer, newer, OTHER)
    assert s.queue == (newer, third)
    assert spoken(did)[:-1] == [ReportBusy(newer, "at work on round 3 of another run")] * 2
    assert spoken(did)[-1].task == OTHER, "its first round is declined now"


def test_what_waits_for_a_round_that_is_over_or_a_run_that_ended_is_dropped():
    assert feed(after(*TRAINING, OTHER), StateSeen("other", "r", 2, "training"))[0].queue == ()
    assert feed(after(*TRAINING, OTHER), StateSeen("other", "r", 1, "finished"))[0].queue == ()
    assert feed(after(*TRAINING, OTHER), StateSeen("other", "r", 1, "training"))[0].queue == (OTHER,)


def test_more_runs_than_a_device_can_keep_in_mind_are_declined():
    s = after(*TRAINING, *(Tasked(f"run-{i}", "r", 1, f"x{i}") for i in range(8)))
    later, did = feed(s, Tasked("one-more", "r", 1, "y"))
    assert later == s
    assert isinstance(did[0], Decline)


def test_the_oldest_of_too_many_updates_without_a_receipt_makes_room():
    s, did = after(AgentConnected()), []
    for i in range(5):
        task = Tasked(f"run-{i}", "r", 1, f"x{i}")
        s, did = feed(s, task, ModelArrived(task), Trained(1, f"d{i}"))
    assert list(s.held) == ["run-1.r", "run-2.r", "run-3.r", "run-4.r"]
    assert Forget(1, "d0") in did


# ── the link goes and comes back ─────────────────────────────────────────────────────────────────────────────


def test_training_goes_on_offline_and_the_update_is_sent_on_return():
    s, did = feed(after(*TRAINING), AgentDisconnected(), Trained(3, "d3"))
    assert did == []
    _, did = feed(s, AgentConnected())
    assert did == [Announce(), Send(3, "d3")]


def test_a_fetch_that_was_cut_off_is_asked_for_again():
    _, did = feed(after(*FETCHING), AgentDisconnected(), AgentConnected())
    assert did == [Announce(), Fetch(TASK)]


def test_an_update_is_sent_whole_once_and_after_every_cut_only_what_is_missing_of_it():
    _, did = feed(after(*SENDING), AgentDisconnected(), AgentConnected(), AgentDisconnected(), TASK, AgentConnected())
    assert did == [Announce(), Offer(3, "d3")] * 2


def test_an_update_from_the_spool_is_offered_after_a_restart():
    _, did = feed(Session(held={"job.r": HeldUpdate(TASK, "d3", offered=True)}), AgentConnected())
    assert did == [Announce(), Offer(3, "d3")]


def test_a_task_heard_just_after_the_cut_waits_for_the_link():
    s, did = feed(Session(), TASK)
    assert did == []
    _, did = feed(s, AgentConnected())
    assert did == [Announce(), Fetch(TASK)]


def test_missing_chunks_are_sent_again_while_the_update_is_held():
    _, did = feed(
        after(*SENDING),
        ResendRequested("d3", (1, 4)),
        ResendRequested("other", (1,)),
        AgentDisconnected(),
        ResendRequested("d3", (2,)),
    )
    assert did == [SendChunks("d3", (1, 4))]
    assert feed(after(*DONE), ResendRequested("d3", (1,)))[1] == []


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


def test_an_update_that_nobody_could_read_is_forgotten_whatever_round_its_reader_is_in():
    s, did = feed(after(*SENDING), Receipted(9, "d3", "refused"))
    assert did == [Forget(3, "d3")]
    assert not s.held
    assert not s.committed


@pytest.mark.parametrize("story", [[], TRAINING, SENDING], ids=["idle", "training", "sending"])
def test_no_refusal_ends_the_agent_or_its_work(story):
    s = after(*story)
    assert feed(s, RefusalReceived("version", "update needed")) == (s, [AnnounceLater("version", "update needed")])


# ── work that fails or is no longer wanted ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("story", [FETCHING, TRAINING], ids=["fetching", "training"])
def test_a_task_that_fails_is_declined_with_the_reason(story):
    s, did = feed(after(*story), TrainingFailed(3, "out of memory"))
    assert spoken(did) == [Decline(TASK, "out of memory")]
    assert s.phase == "idle"


def test_a_failure_offline_is_not_declined_because_the_return_brings_the_task_again():
    _, did = feed(after(*TRAINING), AgentDisconnected(), TrainingFailed(3, "out of memory"), AgentConnected(), TASK)
    assert spoken(did) == [Announce(), Fetch(TASK)]


def test_a_failure_of_another_round_is_ignored():
    s = after(*TRAINING)
    assert feed(s, TrainingFailed(2, "old")) == (s, [])


@pytest.mark.parametrize("phase", ["gathering", "training"])
def test_a_round_that_is_over_is_not_trained_to_the_end(phase):
    s, did = feed(after(*TRAINING), StateSeen("job", "r", 4, phase))
    assert spoken(did) == [CancelTraining(3)]
    assert s.phase == "idle"


@pytest.mark.parametrize(
    "seen",
    [
        StateSeen("job", "r", 3, "training"),
        StateSeen("job", "r", 3, "gathering"),
        StateSeen("other", "r", 9, "training"),
    ],
)
def test_a_round_that_is_not_over_goes_on(seen):
    s = after(*TRAINING)
    assert feed(s, seen) == (replace(s, seen=(seen.run_key,)), [])


def test_overtime_lets_the_training_of_a_closed_round_go_on_but_not_its_fetch():
    s = after(AgentConnected(), Tasked("job", "r", 3, "m3", "1", overtime=True))
    assert feed(s, StateSeen("job", "r", 4, "training"))[0].phase == "idle"
    s, _ = feed(s, ModelArrived(TASK))
    assert feed(s, StateSeen("job", "r", 4, "training")) == (replace(s, seen=("job.r",)), [])


def test_an_update_in_hand_outlives_its_round_until_the_receipt():
    s = after(*SENDING)
    assert feed(s, StateSeen("job", "r", 9, "training")) == (replace(s, seen=("job.r",)), [])


def test_the_end_of_the_job_clears_the_hands():
    end = StateSeen("job", "r", 3, "finished")
    assert spoken(feed(after(*TRAINING), end)[1]) == [CancelTraining(3)]
    assert spoken(feed(after(*SENDING), end)[1]) == [Forget(3, "d3")]
    assert feed(after(*DONE), end)[1] == []


def test_the_end_of_another_job_changes_nothing():
    s = after(*TRAINING)
    assert feed(s, StateSeen("other", "r", 3, "finished")) == (s, [])


def test_a_stop_cancels_the_training_and_hears_nothing_more():
    _, did = feed(after(*TRAINING), Stopped(), Stopped(), Trained(3, "d3"))
    assert did == [CancelTraining(3), Quit(0, "stopped")]


def test_a_stop_keeps_the_update_for_the_next_start():
    s, did = feed(after(*SENDING), Stopped())
    assert did == [Quit(0, "stopped")]
    assert s.held == {"job.r": HeldUpdate(TASK, "d3", offered=True)}


# ── started for one run ──────────────────────────────────────────────────────────────────────────────────────

AT_WORK, FINISHED = StateSeen("job", "r", 1, "training"), StateSeen("job", "r", 3, "finished")
MISTAKE = TrainingFailed(3, "told", mistake="wrong shape")


def test_an_agent_for_one_run_ends_with_a_run_that_it_saw_at_work():
    s, did = feed(Session(once=True), AgentConnected(), AT_WORK, FINISHED)
    assert spoken(did) == [Announce(), Quit(0, "job 'job' has finished")]
    assert s.phase == "stopped"


@pytest.mark.parametrize(
    ("start", "story"),
    [
        (Session(), [AT_WORK, FINISHED]),
        (Session(once=True), [FINISHED]),
        (Session(once=True), [StateSeen("job", "before", 1, "training"), FINISHED]),
        (Session(once=True, only="other"), [AT_WORK, FINISHED]),
    ],
    ids=["for all runs", "finished long ago", "an earlier run of that name", "for another run"],
)
def test_the_end_of_what_is_not_its_own_run_does_not_end_it(start, story):
    s, did = feed(start, AgentConnected(), *story)
    assert (s.phase, spoken(did)) == ("idle", [Announce()])


def test_it_ends_with_the_reason_why_it_could_not_work():
    s = feed(Session(once=True), *TRAINING, AT_WORK, MISTAKE)[0]
    assert spoken(feed(s, FINISHED)[1]) == [Quit(2, "wrong shape")]
    later = feed(s, TASK, ModelArrived(TASK), Trained(3, "d3"), Receipted(3, "d3", "accepted"))[0]
    assert spoken(feed(later, FINISHED)[1]) == [Quit(0, "job 'job' has finished")], "it could, the second time"


def test_a_failure_that_is_nobodys_mistake_is_no_reason_to_end_with():
    s = feed(Session(once=True), *TRAINING, AT_WORK, TrainingFailed(3, "out of memory"))[0]
    assert spoken(feed(s, FINISHED)[1]) == [Quit(0, "job 'job' has finished")]


def test_the_end_cancels_the_training_of_another_run():
    s = feed(Session(once=True), *TRAINING, StateSeen("x", "r", 1, "training"))[0]
    s, did = feed(s, StateSeen("x", "r", 1, "finished"))
    assert spoken(did) == [CancelTraining(3), Quit(0, "job 'x' has finished")]


def test_what_is_remembered_of_runs_that_never_end_is_bounded():
    s = Session()
    for number in range(200):
        job = f"run-{number}"
        task = Tasked(job, "r", 1, "m")
        s = feed(s, StateSeen(job, "r", 1, "training"), task, ModelArrived(task), TrainingFailed(1, "no", "no"))[0]
    assert len(s.seen) == MOST_SEEN
    assert list(s.failures) == [f"run-{number}.r" for number in range(200 - MOST_FAILURES, 200)]


# ── what can be written ──────────────────────────────────────────────────────────────────────────────────────


def test_the_state_can_be_written_as_json():
    written = json.loads(json.dumps(asdict(after(*DONE, Tasked("job", "r", 4, "m4")))))
    assert written["task"]["round"] == 4
    assert written["answered"] == {"job.r": [3, "1"]}
