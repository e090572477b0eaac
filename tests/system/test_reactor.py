"""The loop around a shell, and slow work beside it."""

from queue import SimpleQueue
from threading import Event, get_ident

from edgefl.system.background import Crashed, Threads
from edgefl.system.clock import SystemClock
from edgefl.system.reactor import DeadlineReached, serve


class Shell:
    """Writes down what it is handed; ends after so many events."""

    def __init__(self, count, due=None):
        self.count, self.due, self.seen, self.started = count, due, [], False

    def start(self):
        self.started = True

    def handle(self, event):
        self.seen.append(event)
        if isinstance(event, DeadlineReached):
            self.due = None

    def deadline(self):
        return self.due

    @property
    def ended(self):
        return len(self.seen) >= self.count


def test_events_come_in_order_until_the_shell_has_ended():
    shell, queue = Shell(3), SimpleQueue()
    for number in range(5):
        queue.put(number)
    serve(shell, queue, SystemClock())
    assert shell.started
    assert shell.seen == [0, 1, 2]
    assert queue.qsize() == 2


def test_a_shell_is_woken_when_its_time_has_come():
    shell = Shell(1, due=SystemClock().now() - 1)
    serve(shell, SimpleQueue(), SystemClock())
    assert isinstance(shell.seen[0], DeadlineReached)


def test_a_flood_does_not_stop_the_clock():
    shell, queue = Shell(3, due=SystemClock().now() - 1), SimpleQueue()
    for number in range(5):
        queue.put(number)
    serve(shell, queue, SystemClock())
    assert shell.seen[0] == 0
    assert isinstance(shell.seen[1], DeadlineReached)


def test_work_is_done_elsewhere_in_order_and_comes_back():
    queue, gate = SimpleQueue(), Event()
    threads = Threads(queue.put, "work")
    threads.start(lambda put: (gate.wait(), put(("first", get_ident()))))
    threads.start(lambda put: put(("second", get_ident())))
    gate.set()
    (first, there), (second, too) = queue.get(), queue.get()
    threads.close()
    assert (first, second) == ("first", "second")
    assert there == too != get_ident()


def test_work_that_fails_says_so():
    queue = SimpleQueue()
    threads = Threads(queue.put, "work")
    threads.start(lambda put: 1 / 0)
    crashed = queue.get()
    threads.close()
    assert isinstance(crashed, Crashed)
    assert isinstance(crashed.error, ZeroDivisionError)
