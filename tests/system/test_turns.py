"""Events that whoever brings them carries out, one after another."""

from threading import Event, Thread, get_ident

import pytest

from edgefl.system.clock import SystemClock
from edgefl.system.reactor import DeadlineReached
from edgefl.system.turns import Turns


class Shell:
    """Writes down what it is handed, and by which thread; ends with the word "end"."""

    def __init__(self, due=None):
        self.due, self.seen, self.by, self.ended = due, [], [], False
        self.started, self.act = Event(), lambda _: None

    def start(self):
        self.started.set()

    def handle(self, event):
        self.seen.append(event)
        self.by.append(get_ident())
        if isinstance(event, DeadlineReached):
            self.due = None
        self.act(event)
        self.ended = event == "end"

    def deadline(self):
        return self.due


@pytest.fixture
def turns():
    return Turns(SystemClock())


def serving(turns, shell):
    thread = Thread(target=turns.serve, args=(shell,), daemon=True)
    thread.start()
    shell.started.wait()
    return thread


def test_who_brings_an_event_carries_it_out(turns):
    shell = Shell()
    thread = serving(turns, shell)
    while not shell.by or shell.by[-1] != get_ident():  # the first ones may be taken by whoever is just beginning
        turns.put("event")
    turns.put("end")
    thread.join()
    assert set(shell.by) <= {get_ident(), thread.ident}


def test_what_was_brought_before_it_is_served_comes_first(turns):
    shell = Shell()
    for event in (1, 2, "end", 3):
        turns.put(event)
    turns.serve(shell)
    assert shell.seen == [1, 2, "end"]
    assert turns.rest() == [3]


def test_what_is_brought_in_the_middle_of_a_turn_comes_behind_it(turns):
    shell = Shell()
    shell.act = lambda event: turns.put("end") if event == 1 else None
    for event in (1, 2):
        turns.put(event)
    turns.serve(shell)
    assert shell.seen == [1, 2, "end"]


def test_an_event_that_finds_somebody_at_work_is_left_to_him(turns):
    shell, at_work, go_on = Shell(), Event(), Event()
    shell.act = lambda event: (at_work.set(), go_on.wait()) if event == "slow" else None
    thread = serving(turns, shell)
    slow = Thread(target=turns.put, args=("slow",))
    slow.start()
    at_work.wait()
    turns.put("quick")  # returns although the shell is busy
    assert "quick" not in shell.seen
    go_on.set()
    slow.join()
    turns.put("end")
    thread.join()
    assert shell.seen == ["slow", "quick", "end"]


def test_events_of_many_threads_are_handed_over_one_at_a_time_and_none_is_lost(turns):
    shell, inside, together = Shell(), [], set()
    shell.act = lambda _: (inside.append(1), together.add(len(inside)), inside.pop())
    thread = serving(turns, shell)
    bringing = [Thread(target=lambda i=i: [turns.put((i, n)) for n in range(500)]) for i in range(4)]
    for one in bringing:
        one.start()
    for one in bringing:
        one.join()
    turns.put("end")
    thread.join()
    assert together == {1}
    for i in range(4):
        assert [event for event in shell.seen if event[0] == i] == [(i, n) for n in range(500)]


def test_the_shell_is_woken_when_its_time_has_come(turns):
    shell = Shell(due=SystemClock().now() - 1)
    shell.act = lambda event: turns.put("end") if isinstance(event, DeadlineReached) else None
    turns.serve(shell)
    assert isinstance(shell.seen[0], DeadlineReached)


def test_a_flood_does_not_stop_the_clock(turns):
    shell = Shell(due=SystemClock().now() - 1)
    for event in (1, 2, "end"):
        turns.put(event)
    turns.serve(shell)
    assert shell.seen[0] == 1
    assert isinstance(shell.seen[1], DeadlineReached)


def test_an_earlier_deadline_is_noticed_by_who_sleeps(turns):
    shell = Shell()  # without a deadline it would sleep for seconds

    def act(event):
        if event == "soon":
            shell.due = SystemClock().now()
        elif isinstance(event, DeadlineReached):
            turns.put("end")

    shell.act = act
    thread = serving(turns, shell)
    turns.put("soon")
    thread.join()
    assert shell.seen[0] == "soon"
    assert isinstance(shell.seen[1], DeadlineReached)


def test_a_signal_handler_leaves_all_to_the_serving_thread(turns):
    shell = Shell()
    thread = serving(turns, shell)
    turns.post("end")
    thread.join()
    assert shell.by == [thread.ident]


def test_what_goes_wrong_is_raised_where_it_is_served(turns):
    shell = Shell()
    shell.act = lambda _: 1 / 0
    turns.put("event")
    with pytest.raises(ZeroDivisionError):
        turns.serve(shell)


def test_who_sleeps_is_not_woken_for_a_moment_at_which_he_looks_anyway(turns):
    clock, looks = SystemClock(), []

    class Looked(Shell):
        def deadline(self):
            looks.append(get_ident())
            return self.due

    shell = Looked(due=clock.now() + 1000)
    shell.act = lambda event: setattr(shell, "due", clock.now() + event) if event != "end" else None
    thread = serving(turns, shell)
    while not turns._asleep:  # it means to look in a thousand seconds
        pass
    before = looks.count(thread.ident)
    for later in (3000, 2000, "end"):  # the second is sooner than the first, and later than that
        turns.put(later)
    thread.join()
    assert looks.count(thread.ident) == before
