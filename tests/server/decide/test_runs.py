"""The queue of a server: what works, what waits, and what becomes of schedules."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edgefl.server.decide.runs import FAILURES, FIRST_WAIT, ServerState, deadline, step
from edgefl.server.decide.vocabulary import (
    CoordinatorEnded,
    DeleteFolder,
    Due,
    FolderDeleted,
    PriorityChanged,
    Pruned,
    Recurring,
    RequestRefused,
    Restarted,
    RunChanged,
    RunSubmitted,
    RunWished,
    ScheduleChanged,
    StartCoordinator,
    StopCoordinator,
    Submission,
    Ticked,
)

NIGHT = Submission("night", "fleet", "text", recurring=Recurring("0 2 * * *", from_last=True), keep=2)
DAY = 86_400.0


def submitted(name, request="", priority=0, by="ann"):
    return RunSubmitted(0.0, 0.0, request or name, by, Submission(name, "fleet", "text", priority=priority))


def wished(name, wish):
    return RunWished(0.0, 0.0, name, wish, "ann")


def ended(name, code, now=0.0, reason=""):
    return CoordinatorEnded(now, now, name, code, reason)


def ticked(now, last, *, unfit="", samples=0, next=None):
    due = Due(last, last + DAY if next is None else next)
    return Ticked(now, now, {"night": due}, {"night": unfit}, {"fleet": samples})


def feed(state, *events):
    actions, facts = [], []
    for event in events:
        state, more, told = step(state, event)
        actions += more
        facts += told
    return state, actions, facts


def phases(state):
    return {name: run.phase for name, run in state.runs.items()}


def scheduled(**changes):
    start = RunSubmitted(0.0, 0.0, "r", "ann", replace(NIGHT, recurring=replace(NIGHT.recurring, **changes)))
    return step(ServerState(), start)[0]


# ---- the queue -------------------------------------------------------------------------------------------------------


def test_no_more_runs_work_at_once_than_may():
    state, actions, _ = feed(ServerState(at_once=2), *(submitted(name) for name in "abc"))
    assert actions == [StartCoordinator("a"), StartCoordinator("b")]
    assert phases(state) == {"a": "working", "b": "working", "c": "queued"}


def test_when_one_ends_the_next_begins():
    state, _, _ = feed(ServerState(at_once=1), submitted("a"), submitted("b"))
    state, actions, _ = feed(state, ended("a", 0))
    assert actions == [StartCoordinator("b")]
    assert phases(state) == {"a": "finished", "b": "working"}


def test_a_higher_priority_goes_first_and_of_equals_the_older():
    state, _, _ = feed(
        ServerState(at_once=1), submitted("a"), submitted("b"), submitted("c"), submitted("d", priority=5)
    )
    assert [run.name for run in state.waiting] == ["d", "b", "c"]
    state, _, _ = feed(state, PriorityChanged(0.0, 0.0, "c", 9, "ann"))
    assert [run.name for run in state.waiting] == ["c", "d", "b"]


def test_a_request_that_is_sent_twice_queues_one_run():
    state, _, _ = feed(ServerState(), submitted("a", "r1"))
    again, actions, facts = feed(state, submitted("a", "r1"))
    assert (again, actions, facts) == (state, [], [])


def test_a_name_that_is_taken_is_refused():
    state, _, _ = feed(ServerState(), submitted("a", "r1"))
    _, _, facts = feed(state, submitted("a", "r2"))
    assert facts == [
        RequestRefused(
            "a", "fleet", "there is a run 'a' already, it is working: give this one another run.name", "ann", "r2"
        )
    ]


def test_the_name_of_a_deleted_run_is_free():
    state, _, _ = feed(ServerState(), submitted("a", "r1"), ended("a", 0), FolderDeleted(0.0, 0.0, "a"))
    assert phases(feed(state, submitted("a", "r2"))[0]) == {"a": "working"}


# ---- pause, resume, cancel -------------------------------------------------------------------------------------------


def test_a_run_that_is_to_pause_stops_first():
    state, actions, _ = feed(ServerState(), submitted("a"), wished("a", "pause"))
    assert actions == [StartCoordinator("a"), StopCoordinator("a")]
    assert phases(state) == {"a": "stopping"}
    assert phases(feed(state, ended("a", 130))[0]) == {"a": "paused"}


def test_a_paused_run_holds_no_place_and_goes_on_when_it_is_resumed():
    state, _, _ = feed(ServerState(at_once=1), submitted("a"), wished("a", "pause"), ended("a", 130), submitted("b"))
    assert phases(state) == {"a": "paused", "b": "working"}
    state, _, _ = feed(state, wished("a", "resume"), ended("b", 0))
    assert phases(state)["a"] == "working"


def test_a_run_that_finished_while_it_was_to_stop_has_finished():
    assert phases(feed(ServerState(), submitted("a"), wished("a", "cancel"), ended("a", 0))[0]) == {"a": "finished"}


def test_a_resume_while_it_stops_queues_it_again():
    state, _, _ = feed(ServerState(), submitted("a"), wished("a", "pause"), wished("a", "resume"), ended("a", 130))
    assert phases(state) == {"a": "working"}


def test_a_waiting_run_is_cancelled_at_once():
    state, actions, _ = feed(ServerState(at_once=1), submitted("a"), submitted("b"), wished("b", "cancel"))
    assert phases(state)["b"] == "cancelled"
    assert actions == [StartCoordinator("a")]


def test_what_is_wanted_of_an_unknown_run_is_refused():
    assert feed(ServerState(), wished("x", "pause"))[2] == [RequestRefused("x", "", "there is no run 'x' here", "ann")]


# ---- ends ------------------------------------------------------------------------------------------------------------


def test_a_coordinator_that_was_killed_is_started_again_after_a_while():
    state, _, _ = feed(ServerState(), submitted("a"), ended("a", -9, now=100.0))
    assert phases(state) == {"a": "queued"}
    assert deadline(state) == 100.0 + FIRST_WAIT
    _, actions, _ = feed(state, Ticked(100.0 + FIRST_WAIT, 100.0 + FIRST_WAIT))
    assert actions == [StartCoordinator("a")]


def test_a_run_that_fails_again_and_again_is_given_up_with_its_reason():
    state, now = feed(ServerState(), submitted("a"))[0], 0.0
    for _ in range(FAILURES):
        assert phases(state) == {"a": "working"}
        state, _, _ = feed(state, ended("a", 1, now, "the loss is not finite"))
        now = deadline(state) or now
        state, _, _ = feed(state, Ticked(now, now))
    assert phases(state) == {"a": "failed"}
    assert "the loss is not finite" in state.runs["a"].reason


def test_a_wrong_file_is_not_tried_twice():
    state, _, _ = feed(ServerState(), submitted("a"), ended("a", 2, reason="rounds.cohort is 0"))
    assert phases(state) == {"a": "failed"}


def test_a_run_that_is_finished_already_has_finished():
    assert phases(feed(ServerState(), submitted("a"), ended("a", 3))[0]) == {"a": "finished"}


def test_after_a_restart_what_worked_works_again_and_what_was_to_stop_has_stopped():
    state, _, _ = feed(ServerState(at_once=3), *(submitted(name) for name in "abc"))
    state, _, _ = feed(state, wished("b", "pause"), wished("c", "cancel"))
    state, actions, _ = feed(state, Restarted(5.0, 5.0))
    assert phases(state) == {"a": "working", "b": "paused", "c": "cancelled"}
    assert actions == [StartCoordinator("a")]


def test_a_restart_does_not_wait_for_a_moment_of_another_clock():
    state, _, _ = feed(ServerState(), submitted("a"), ended("a", -9, now=1e6))
    assert feed(state, Restarted(0.0, 0.0))[1] == [StartCoordinator("a")]


# ---- schedules -------------------------------------------------------------------------------------------------------


def test_a_schedule_starts_a_run_of_its_own_when_it_is_due():
    state, actions, facts = feed(scheduled(), ticked(DAY, DAY))
    assert actions == [StartCoordinator("night-1")]
    assert ScheduleChanged("night", "fleet", "fired", "night-1") in facts
    assert state.runs["night-1"].submission.sets == ("run.name=night-1",)
    assert feed(state, ticked(DAY + 5, DAY))[1] == []


def test_the_next_one_begins_with_the_model_of_the_last_that_finished():
    state, _, _ = feed(scheduled(), ticked(DAY, DAY), ended("night-1", 0), ticked(2 * DAY, 2 * DAY))
    assert state.runs["night-2"].submission.sets == ("run.name=night-2", "run.from=night-1")


def test_it_does_not_begin_with_one_that_failed():
    state, _, _ = feed(scheduled(), ticked(DAY, DAY), ended("night-1", 2), ticked(2 * DAY, 2 * DAY))
    assert state.runs["night-2"].submission.sets == ("run.name=night-2",)


def test_it_never_has_two_that_are_not_ended():
    _, actions, facts = feed(scheduled(), ticked(DAY, DAY), ticked(2 * DAY, 2 * DAY))
    assert actions == [StartCoordinator("night-1")]
    assert ScheduleChanged("night", "fleet", "skipped", "run 'night-1' is working") in facts


def test_a_time_that_passed_while_the_server_was_away_is_made_up_for_once():
    state, actions, _ = feed(scheduled(), ticked(5.4 * DAY, 5 * DAY))
    assert actions == [StartCoordinator("night-1")]
    assert feed(state, ended("night-1", 0), ticked(5.5 * DAY, 5 * DAY))[1] == []


def test_or_skipped_where_the_file_says_so():
    _, actions, facts = feed(scheduled(missed="skip"), ticked(5.4 * DAY, 5 * DAY))
    assert actions == []
    assert facts == [ScheduleChanged("night", "fleet", "skipped", "the time passed while the server was away")]


def test_a_condition_that_does_not_hold_skips_it_and_says_why():
    _, actions, facts = feed(scheduled(), ticked(DAY, DAY, unfit="too few samples"))
    assert (actions, facts) == ([], [ScheduleChanged("night", "fleet", "skipped", "too few samples")])


def test_a_clock_that_was_corrected_a_little_does_not_start_a_night_twice():
    state, _, _ = feed(scheduled(), ticked(DAY + 10, DAY), ended("night-1", 0))
    assert feed(state, ticked(DAY - 1800, 0.0, next=DAY))[1] == []
    assert feed(state, ticked(DAY + 5, DAY))[1] == []


def test_a_clock_that_stood_years_ahead_does_not_end_a_schedule():
    state, _, _ = feed(scheduled(), ticked(9000 * DAY, 9000 * DAY), ended("night-1", 0))
    state, actions, facts = feed(state, ticked(2.5 * DAY, 2 * DAY))
    assert actions == []
    assert facts == [ScheduleChanged("night", "fleet", "clock", "the clock was set back: times count from now")]
    assert feed(state, ticked(3 * DAY, 3 * DAY))[1] == [StartCoordinator("night-2")]


def test_a_paused_schedule_misses_nothing_when_it_is_resumed():
    state, _, _ = feed(scheduled(), wished("night", "pause"), ticked(DAY, DAY))
    assert state.runs == {}
    state, _, _ = feed(state, RunWished(1.5 * DAY, 1.5 * DAY, "night", "resume", "ann"))
    assert feed(state, ticked(1.6 * DAY, DAY))[1] == []
    assert feed(state, ticked(2 * DAY, 2 * DAY))[1] == [StartCoordinator("night-1")]


def test_a_schedule_that_is_set_again_keeps_its_count():
    state, _, _ = feed(scheduled(), ticked(DAY, DAY), ended("night-1", 0), RunSubmitted(0.0, 0.0, "r2", "bob", NIGHT))
    assert feed(state, ticked(2 * DAY, 2 * DAY))[1] == [StartCoordinator("night-2")]


def test_a_removed_schedule_starts_nothing_and_its_runs_stay():
    state, _, _ = feed(scheduled(), ticked(DAY, DAY), wished("night", "cancel"))
    assert (dict(state.schedules), list(state.runs)) == ({}, ["night-1"])


# ---- what is kept ----------------------------------------------------------------------------------------------------


def test_of_a_schedule_s_runs_the_newest_are_kept():
    state, deleted = scheduled(), []
    for day in range(1, 6):
        state, actions, _ = feed(state, ticked(day * DAY, day * DAY), ended(f"night-{day}", 0))
        gone = [action.name for action in actions if isinstance(action, DeleteFolder)]
        state, _, _ = feed(state, *(FolderDeleted(0.0, 0.0, name) for name in gone))
        deleted += gone
    assert deleted == ["night-1", "night-2", "night-3"]


def test_the_newest_model_is_kept_however_many_failed_since():
    state, deleted = scheduled(), []
    for day in range(1, 6):
        state, actions, _ = feed(state, ticked(day * DAY, day * DAY), ended(f"night-{day}", 0 if day == 1 else 2))
        deleted += [action.name for action in actions if isinstance(action, DeleteFolder)]
    assert "night-1" not in deleted


def test_runs_of_their_own_are_deleted_only_when_a_person_says_so():
    state, actions, _ = feed(ServerState(at_once=9), *(submitted(n) for n in "abc"), *(ended(n, 0) for n in "abc"))
    assert not any(isinstance(action, DeleteFolder) for action in actions)
    assert feed(state, Pruned(0.0, 0.0, 1, "ann"))[1] == [DeleteFolder("a"), DeleteFolder("b")]


# ---- whatever happens ------------------------------------------------------------------------------------------------

NAMES = st.sampled_from("abcd")


class Queue(RuleBasedStateMachine):
    """Random lives of a server; `alive` is which processes a shell would have by the actions so far."""

    def __init__(self):
        super().__init__()
        self.state, self.alive, self.now, self.requests = ServerState(at_once=2), set(), 0.0, 0

    def happen(self, event):
        self.now += 1.0
        self.state, actions, facts = step(self.state, replace(event, now=self.now, wall=self.now))
        for action in actions:
            if isinstance(action, StartCoordinator):
                assert action.name not in self.alive, "started twice"
                self.alive.add(action.name)
            elif isinstance(action, StopCoordinator):
                assert action.name in self.alive, "stopped what does not run"
            else:
                assert action.name not in self.alive, "deleted what runs"
        for fact in facts:
            assert isinstance(fact, RunChanged | ScheduleChanged | RequestRefused)

    @rule(name=NAMES, priority=st.integers(-1, 1), again=st.booleans())
    def submit(self, name, priority, again):
        self.requests += not again
        self.happen(submitted(name, f"r{self.requests}", priority))

    @rule()
    def set_schedule(self):
        self.requests += 1
        self.happen(RunSubmitted(0.0, 0.0, f"r{self.requests}", "ann", NIGHT))

    @rule(
        name=st.sampled_from(["a", "b", "c", "night", "night-1", "night-2"]),
        wish=st.sampled_from(["pause", "resume", "cancel"]),
    )
    def wish(self, name, wish):
        self.happen(wished(name, wish))

    @rule(code=st.sampled_from([0, 1, 2, 3, 130, -9]), choice=st.integers(0, 5))
    def end(self, code, choice):
        if self.alive:
            name = sorted(self.alive)[choice % len(self.alive)]
            self.alive.remove(name)
            self.happen(ended(name, code))

    @rule(days=st.integers(0, 3))
    def tick(self, days):
        self.now += days * DAY
        self.happen(ticked(0.0, self.now - self.now % DAY))

    @rule()
    def restart(self):
        self.alive.clear()
        self.happen(Restarted(0.0, 0.0))

    @invariant()
    def what_works_has_a_process_and_nothing_else(self):
        assert {run.name for run in self.state.working} == self.alive
        assert len(self.alive) <= 2

    @invariant()
    def nobody_waits_beside_a_free_place(self):
        ready = [run for run in self.state.waiting if run.again_at is None or run.again_at <= self.now]
        assert len(self.state.working) == 2 or not ready

    @invariant()
    def a_schedule_has_one_open_run_at_most(self):
        assert sum(not run.over for run in self.state.runs_of("night")) <= 1


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=50, stateful_step_count=40)
